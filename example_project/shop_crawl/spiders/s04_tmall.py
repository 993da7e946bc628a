"""Lesson 4: what does a preset for a site bring? The rules somebody wrote before you.

`tmall` knows the product pages of Tmall and Taobao, whatever their form: fourteen links to one product
are one request. A product URL without an id is dropped; lists and shops keep their URL as key, or no
product would be found behind them. Redirects from one form to another of the same id pass.

The URLs are Tmall's; the answers come from the server of this example, which is the crawl's proxy.

    python run.py s04_tmall
"""

from collections.abc import AsyncIterator

from scrapy import Request

from shop_crawl.follow_all import FollowAll


class TmallSpider(FollowAll):
    name = "s04_tmall"
    custom_settings = {
        "ADDONS": {"scrapy_bloomdupe.Addon": 500},
        "BLOOMDUPE_PRESET": "tmall",
        # Before Scrapy's HttpProxyMiddleware (750).
        "DOWNLOADER_MIDDLEWARES": {"shop_crawl.proxy.ShopProxy": 740},
    }

    async def start(self) -> AsyncIterator[Request]:
        yield Request("http://www.tmall.com/")
