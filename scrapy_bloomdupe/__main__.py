"""How is the command line reached without its script? ``python -m scrapy_bloomdupe``."""

from __future__ import annotations

import sys

from scrapy_bloomdupe.cli import main

sys.exit(main())
