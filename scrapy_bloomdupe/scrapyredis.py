"""Where does a project that uses scrapy-redis keep its queue, and under which names? Its settings, read."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from scrapy.settings import BaseSettings

# scrapy-redis' own default of SCHEDULER_DUPEFILTER_KEY.
_KEY = "%(spider)s:dupefilter"
_TLS = ("ssl_ca_certs", "ssl_cert_reqs", "ssl_certfile", "ssl_keyfile", "ssl_check_hostname")


def place(settings: BaseSettings) -> tuple[str, str]:
    """Return the URL of the server, and the template of what its names begin with.

    Read are ``REDIS_URL``, or ``REDIS_HOST``, ``REDIS_PORT``, ``REDIS_DB``, ``REDIS_PASSWORD``; what they do
    not say, ``REDIS_PARAMS``; and ``SCHEDULER_DUPEFILTER_KEY``.
    """
    key = str(settings.get("SCHEDULER_DUPEFILTER_KEY") or _KEY)
    params = settings.getdict("REDIS_PARAMS")
    if url := settings.get("REDIS_URL") or params.get("url"):
        return str(url), key
    if path := params.get("unix_socket_path"):
        return f"unix://{path}?db={params.get('db', 0)}", key
    host = settings.get("REDIS_HOST") or params.get("host") or "127.0.0.1"
    port = settings.get("REDIS_PORT") or params.get("port") or 6379
    number = settings.get("REDIS_DB") or params.get("db") or 0
    user = params.get("username") or ""
    password = settings.get("REDIS_PASSWORD") or params.get("password") or ""
    login = f"{quote(str(user), safe='')}:{quote(str(password), safe='')}@" if user or password else ""
    options = {name: str(params[name]) for name in _TLS if params.get(name)}
    scheme = "rediss" if params.get("ssl") else "redis"
    query = f"?{urlencode(options)}" if options else ""
    return f"{scheme}://{login}{host}:{port}/{number}{query}", key
