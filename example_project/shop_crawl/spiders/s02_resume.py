"""Lesson 2: how do you stop a crawl and go on later? With a job directory, as always in Scrapy.

Scrapy keeps the requests that still wait in JOBDIR/requests.queue, the filter keeps what was seen
in JOBDIR/bloomdupe/. One Ctrl-C, and the crawl finishes what is under way and closes. The same
command again goes on: nothing is missing and nothing is fetched twice. (Press Ctrl-C once. A second
one means "at once", and Scrapy then forgets the waiting requests.)

    scrapy crawl s02_resume -a shop=http://127.0.0.1:PORT/ -s JOBDIR=job
    python run.py s02_resume
"""

from shop_crawl.follow_all import FollowAll


class ResumeSpider(FollowAll):
    name = "s02_resume"
    custom_settings = {
        "DUPEFILTER_CLASS": "scrapy_bloomdupe.BloomDupeFilter",
    }
