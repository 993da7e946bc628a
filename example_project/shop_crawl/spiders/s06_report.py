"""Lesson 5: how is a crawl doing? Make a page of its figures, during it or after.

A crawl with a job directory keeps its figures in JOBDIR/bloomdupe/history.jsonl: a line a minute, here ten
a second, since this crawl takes a few. The page shows them over all runs, what the preset took for one page,
and what to do if something is off. It is one file, needs no network, and is made beside a running crawl, too:

    scrapy crawl s06_report -a shop=http://127.0.0.1:PORT/ -s JOBDIR=job
    scrapy bloomdupe report -s JOBDIR=job -o report.html
    python run.py s06_report --report report.html
"""

from shop_crawl.follow_all import FollowAll


class ReportSpider(FollowAll):
    name = "s06_report"
    custom_settings = {
        "ADDONS": {"scrapy_bloomdupe.Addon": 500},
        "BLOOMDUPE_PRESET": "usual",
        # Too small for the shop, to show what happens: the filter grows, and the crawl goes on.
        "BLOOMDUPE_CAPACITY": 250,
        "BLOOMDUPE_HISTORY": 0.1,
    }
