"""How is the command line reached inside a project? ``scrapy bloomdupe ...``, by Scrapy's entry point.

The commands are those of ``cli``; the settings are the project's, and the directory is the crawl's own where
none is named.
"""

from __future__ import annotations

import argparse

from scrapy.commands import ScrapyCommand


class BloomdupeCommand(ScrapyCommand):
    """``scrapy bloomdupe COMMAND``, with the options of ``bloomdupe COMMAND`` and of Scrapy's commands."""

    requires_crawler_process = False
    # Scrapy 2.13 makes a process all the same, and says so.
    default_settings = {"LOG_ENABLED": False}

    def syntax(self) -> str:
        return "COMMAND [DIR] [options]"

    def short_desc(self) -> str:
        return "Look at and mend the seen-set of a crawl"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        # Scrapy's own answer would be about its options only.
        parser.add_argument("-h", "--help", action="store_true", dest="bloomdupe_help")

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        # Scrapy makes this object for every command of its own, which need not wait for ours.
        import scrapy_bloomdupe.cli as cli

        assert self.settings is not None
        words = [*args, "--help"] if opts.bloomdupe_help else args
        self.exitcode = cli.main(words, self.settings)
