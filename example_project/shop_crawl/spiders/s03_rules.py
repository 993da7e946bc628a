"""Lesson 3: how is each product fetched once? Say where its id stands.

The shop shows a product at `/product?id=7`, with whatever parameters a link adds, and at
`/p/Tea-Pot-7`. The rule says so, for these two paths and no others; all other pages are known by what
Scrapy takes them for, as before. 296 items become 60.

The add-on switches on the filter and the middleware that drops and rewrites (this rule does neither).

    python run.py s03_rules
"""

from shop_crawl.follow_all import FollowAll


class RulesSpider(FollowAll):
    name = "s03_rules"
    custom_settings = {
        "ADDONS": {"scrapy_bloomdupe.Addon": 500},
        "BLOOMDUPE_RULES": [
            {
                "name": "shop_product",
                "match": {"path": ["/product", "/p/*"]},
                # The query is parsed: `?spm=list.7&id=7` has the id 7, and `?mi_id=7` has none.
                "key": {"sources": ["query:id", r"path:^/p/.*-(\d+)$"], "pattern": r"\d+"},
                "examples": [
                    {"same": ["http://shop/product?id=7", "http://shop/p/Tea-Pot-7#photo"]},
                    {"differ": ["http://shop/product?id=7", "http://shop/product?id=8"]},
                ],
            },
        ],
    }
