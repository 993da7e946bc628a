"""Lesson 2: how do you stop a crawl, or have it killed, and go on later? With a job directory, as always.

The filter keeps in JOBDIR/bloomdupe/ what was seen and, in the same file and the same transactions, which
requests are pending: the frontier. It is Scrapy's disk queue. One Ctrl-C, and the crawl finishes what is
under way and closes; the same command again goes on. After `kill -9`, a second Ctrl-C or a full disk the
same command goes on as well. Nothing is missing; what was under way at the kill is fetched twice.

    scrapy crawl s02_resume -a shop=http://127.0.0.1:PORT/ -s JOBDIR=job
    bloomdupe pending job
    python run.py s02_resume
    python run.py s02_resume --stock
"""

from shop_crawl.follow_all import FollowAll


class ResumeSpider(FollowAll):
    name = "s02_resume"
    custom_settings = {
        "DUPEFILTER_CLASS": "scrapy_bloomdupe.BloomDupeFilter",
    }
