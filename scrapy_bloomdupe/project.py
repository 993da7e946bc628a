"""What does the Scrapy project around us say? Its settings, and its keys of URLs, for the command line.

Only imported when there is a project: it imports Scrapy.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.settings import Settings
from scrapy.utils.misc import build_from_crawler, load_object
from scrapy.utils.project import get_project_settings

import scrapy_bloomdupe.settings as bloomdupe_settings
from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.keys import RequestKeys, rules_of


def project_settings(module: str | None) -> Any:
    """Return the settings of a module, or of the project around us.

    Raises:
        ConfigurationError: the module cannot be imported.
    """
    if module is None:
        return get_project_settings()
    try:
        importlib.import_module(module)
    except ImportError as exc:
        raise ConfigurationError(f"the settings module {module!r} cannot be imported: {exc}") from exc
    settings = Settings()
    settings.setmodule(module, priority="project")
    return settings


class KeyMaker:
    """Makes the keys that a crawl of the project would make of URLs.

    Args:
        module: its settings; None: of the project around us, or Scrapy's own.
        spider: whose; None: the one that made the state, if the project has it.
        made: the identity of a state.

    Raises:
        ConfigurationError: a setting is wrong, or there is no such spider.
    """

    def __init__(self, module: str | None, spider: str | None, made: Mapping[str, str]) -> None:
        settings = project_settings(module)
        name = spider or made.get("spider")
        crawler = Crawler(_spider_class(settings, name, asked=spider is not None), settings)
        crawler.addons.load_settings(crawler.settings)
        # In the place of the spider, which may need arguments that nobody has here.
        stand_in: Any = SimpleNamespace(
            name=name, bloomdupe_rules=getattr(crawler.spidercls, "bloomdupe_rules", ())
        )
        crawler.spider = stand_in
        found = load_object(crawler.settings["REQUEST_FINGERPRINTER_CLASS"])
        fingerprinter: Any = build_from_crawler(found, crawler)
        crawler.request_fingerprinter = fingerprinter
        self._made = made
        self._keys = RequestKeys(fingerprinter, *rules_of(crawler))
        # Keys are by fingerprints then.
        self._by_rules = not bloomdupe_settings.read(crawler.settings).dry_run

    def refuse_other(self, directory: Path) -> None:
        """Make sure that these are the keys of the state.

        Raises:
            ConfigurationError: they are not; names both and the next step.
        """
        wanted, made = self._keys.identity(with_rules=self._by_rules), self._made
        # Imported from Scrapy's own filter: its keys are fingerprints.
        same = made.get("canary", wanted["canary"]) == wanted["canary"]
        if same and made.get("rules") == wanted.get("rules"):
            return
        raise ConfigurationError(
            f"{directory}: its keys were made by {_shown(made)}; here a URL gets its key by "
            f"{_shown(wanted)}, which is another one. Run this inside the crawl's project, give its "
            "--settings and --spider, or give the keys themselves by --keys. Nothing was changed"
        )

    def key(self, url: str) -> bytes | None:
        """Return the key of *url*; None: it is never a duplicate.

        Raises:
            ConfigurationError: it is no URL.
        """
        try:
            request = Request(url)
        except ValueError as exc:
            raise ConfigurationError(f"{url!r:.200} is no URL: {exc}. Nothing was changed") from exc
        return self._keys.key(request) if self._by_rules else self._keys.fingerprint(request)


def _spider_class(settings: Any, name: str | None, *, asked: bool) -> type[Spider]:
    if name is not None and (asked or settings.getlist("SPIDER_MODULES")):
        loader = load_object(settings["SPIDER_LOADER_CLASS"]).from_settings(settings.frozencopy())
        try:
            found: type[Spider] = loader.load(name)
        except KeyError:
            if asked:
                raise ConfigurationError(
                    f"there is no spider {name!r} in the project; it has {', '.join(loader.list()) or 'none'}"
                ) from None
        else:
            return found
    return Spider


def _shown(identity: Mapping[str, str]) -> str:
    rules = f"rules {identity['rules'][:12]}" if "rules" in identity else "no rules"
    return f"{identity.get('fingerprinter')} (canary {identity.get('canary', '')[:12]}, {rules})"
