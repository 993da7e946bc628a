"""Which server does a URL mean? Pure: nothing is connected.

::

    redis://[user:password@]host[:6379][/0]            one server; valkey:// is the same
    rediss://...                                       with TLS; valkeys:// is the same
    unix:///run/valkey.sock?db=0                       a socket in the file system
    redis+sentinel://host[:26379],host.../service[/0]  the master that Sentinel names
    redis+cluster://host[:6379],host...                a Cluster; any of its nodes
    rediss+sentinel://, rediss+cluster://              with TLS

Options follow as a query: ``?timeout=0.5`` and what else stands in ``OPTIONS``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from scrapy_bloomdupe.errors import ConfigurationError

#: What may follow a URL. ``timeout``, ``connect_timeout``: seconds; ``failures``: see ``breaker``.
OPTIONS = (
    "connect_timeout",
    "db",
    "failures",
    "password",
    "sentinel_password",
    "sentinel_username",
    "ssl_ca_certs",
    "ssl_cert_reqs",
    "ssl_certfile",
    "ssl_check_hostname",
    "ssl_keyfile",
    "timeout",
    "username",
)
_NUMBERS = ("connect_timeout", "timeout")
_SCHEMES = {
    scheme + form: (form[1:] or "single", scheme in ("rediss", "valkeys"))
    for scheme in ("redis", "rediss", "valkey", "valkeys")
    for form in ("", "+sentinel", "+cluster")
}
_PORTS = {"single": 6379, "cluster": 6379, "sentinel": 26379}


@dataclass(frozen=True)
class Address:
    """Where a server is.

    Attributes:
        form: ``single``, ``unix``, ``sentinel`` or ``cluster``.
        hosts: host and port; empty for ``unix``.
        path: of the socket, for ``unix``.
        service: the name that Sentinel knows the master by.
        db: number of the database, at least 0; a Cluster has only 0.
        tls: whether the connection is encrypted.
        timeout, connect_timeout: seconds, > 0.
        failures: in a row until the circuit opens, at least 1.
        tls_options, sentinel_options: passed on to redis-py.
    """

    form: str
    hosts: tuple[tuple[str, int], ...] = ()
    path: str = ""
    service: str = ""
    db: int = 0
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    timeout: float = 0.5
    connect_timeout: float = 0.5
    failures: int = 3
    tls_options: Mapping[str, str] = field(default_factory=dict)
    sentinel_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        """The URL as it may be logged: without the password and the options."""
        if self.form == "unix":
            return f"unix://{self.path}?db={self.db}"
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts)
        scheme = ("rediss" if self.tls else "redis") + ("" if self.form == "single" else f"+{self.form}")
        user = ""
        if self.username or self.password:
            user = quote(self.username or "", safe="") + (":***@" if self.password else "@")
        service = f"/{self.service}" if self.service else ""
        return f"{scheme}://{user}{hosts}{service}/{self.db}"


def is_address(text: object) -> bool:
    """Return whether *text* is a URL of the kind that ``parse`` takes, right or wrong."""
    return isinstance(text, str) and (scheme_of(text) in _SCHEMES or scheme_of(text) == "unix")


def scheme_of(text: str) -> str:
    """Return what stands before ``://``, in small letters; empty: nothing."""
    scheme, separator, _ = text.partition("://")
    return scheme.lower() if separator else ""


def parse(url: str) -> Address:
    """Return the address that *url* means.

    Raises:
        ConfigurationError: it means none. The message shows no password.
    """
    scheme = scheme_of(url)
    if scheme != "unix" and scheme not in _SCHEMES:
        raise ConfigurationError(
            f"{hidden(url)!r} is not the URL of a server; write for example 'redis://127.0.0.1:6379/0' "
            f"(known: {', '.join(sorted(_SCHEMES))}, unix)"
        )
    form, tls = ("unix", False) if scheme == "unix" else _SCHEMES[scheme]
    try:
        parts = urlsplit(url)
        options = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        user, _, hosts = parts.netloc.rpartition("@")
        name, _, password = user.partition(":")
        path = unquote(parts.path)
        service = ""
        if form == "sentinel":
            service, _, path = path.strip("/").partition("/")
        number = options.pop("db", "") if form == "unix" else options.pop("db", path.strip("/"))
        db = int(number or 0)
        names = [] if form == "unix" else [part for part in hosts.split(",") if part]
        found = tuple(_host(part, _PORTS[form]) for part in names)
        numbers = {option: float(options.pop(option)) for option in _NUMBERS if option in options}
        failures = int(options.pop("failures", 3))
    except ValueError as exc:
        raise ConfigurationError(f"{hidden(url)!r} is not the URL of a server: {exc}") from None
    _check(url, form, found or ((path, 0),), service, db, options)
    if failures < 1 or not all(number > 0 for number in numbers.values()):
        raise ConfigurationError(f"{hidden(url)!r}: timeouts have to be > 0 s, failures at least 1")
    return Address(
        form=form,
        hosts=found,
        path=path if form == "unix" else "",
        service=service,
        db=db,
        username=options.get("username") or unquote(name) or None,
        password=options.get("password") or unquote(password) or None,
        tls=tls,
        failures=failures,
        tls_options={option: value for option, value in options.items() if option.startswith("ssl_")},
        sentinel_options={
            option.removeprefix("sentinel_"): value
            for option, value in options.items()
            if option.startswith("sentinel_")
        },
        **numbers,
    )


def hidden(url: str) -> str:
    """Return *url* with its password and options left out, whatever it is."""
    scheme, separator, rest = url.partition("://")
    rest = rest.partition("?")[0]
    user, at, hosts = rest.rpartition("@")
    return scheme + separator + (user.partition(":")[0] + ":***@" if at else "") + hosts


def _host(text: str, port: int) -> tuple[str, int]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        number = rest.removeprefix(":")
    else:
        host, _, number = text.partition(":")
    if number and not 0 < int(number) < 65536:
        raise ValueError(f"{number} is not a port")
    return unquote(host) or "localhost", int(number) if number else port


def _check(
    url: str,
    form: str,
    places: tuple[tuple[str, int], ...],
    service: str,
    db: int,
    options: Mapping[str, str],
) -> None:
    problem = ""
    if unknown := sorted(set(options) - set(OPTIONS)):
        problem = f"{unknown[0]!r} is not an option; there are {', '.join(OPTIONS)}"
    elif not places[0][0]:
        problem = "it names no host" if form != "unix" else "it names no socket"
    elif form == "single" and len(places) > 1:
        problem = "several hosts are a Cluster or Sentinel: write redis+cluster:// or redis+sentinel://"
    elif form == "sentinel" and not service:
        problem = "the service that Sentinel watches is missing: redis+sentinel://host:26379/mymaster"
    elif db < 0:
        problem = f"db={db} is below 0"
    elif form == "cluster" and db:
        problem = f"a Cluster has no database {db}; leave the number out"
    if problem:
        raise ConfigurationError(f"{hidden(url)!r}: {problem}")
