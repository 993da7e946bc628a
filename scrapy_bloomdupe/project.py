"""What does the Scrapy project around us say? Its settings, for the command line.

Only imported when there is a project: it imports Scrapy.
"""

from __future__ import annotations

import importlib
from typing import Any

from scrapy.settings import Settings
from scrapy.utils.project import get_project_settings

from scrapy_bloomdupe.errors import ConfigurationError


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
