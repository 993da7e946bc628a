"""Which rules does the package bring? The Tmall and Taobao rules of the preset ``tmall``.

Tmall and Taobao share one space of item ids. Only product pages are spoken of: list, search and shop
pages keep their URL as key, or the discovery of links would end. H. Shu, X. Liang, J. Wang drop every URL
without an id; that is ``tmall_strict``.
"""

from __future__ import annotations

from dataclasses import replace

from scrapy_bloomdupe.rules.rule import Key, Match, Rule

# Item ids have 8 digits and more: shorter ones are ids of something else.
_ITEM = {"namespace": "taobao_item", "text": ("strip",), "pattern": r"\d+", "min_length": 8}

_QUERY_PAGES = Rule(
    name="tmall_item",
    match=Match(
        host=(
            "detail.tmall.com",
            "detail.tmall.hk",
            "detail.m.tmall.com",
            "world.tmall.com",
            "chaoshi.detail.tmall.com",
            "item.taobao.com",
            "h5.m.taobao.com",
            "m.intl.taobao.com",
            "world.taobao.com",
            "tw.taobao.com",
            "a.m.taobao.com",
        ),
        # With a digit: /index.htm and /item/list.htm are no products, and must not be dropped as such.
        path=(
            "/item.htm",
            "/hk/item.htm",
            "/awp/core/detail.htm",
            "/detail/detail.html",
            "*/item/[0-9]*.htm",
            "/i[0-9]*.htm",
        ),
        ignore_case=True,
    ),
    key=Key(sources=(r"path:(?i)(?:^/i|/item/)(\d+)\.htm$", "query:id"), **_ITEM),  # type: ignore[arg-type]
    missing="drop",
    examples=(
        (
            "same",
            (
                "https://detail.tmall.com/item.htm?id=612345678901",
                "https://item.taobao.com/item.htm?spm=a.b&mi_id=123456789012&id=612345678901",
                "https://world.tmall.com/item/612345678901.htm",
            ),
        ),
        (
            "differ",
            (
                "https://detail.tmall.com/item.htm?id=612345678901",
                "https://detail.tmall.com/item.htm?id=612345678902",
            ),
        ),
    ),
)

_GROUP_BUY = Rule(
    name="tmall_group_buy",
    # Here `id` is the number of the group buy.
    match=Match(
        host=("detail.ju.taobao.com", "ju.taobao.com"), path=("/home.htm", "*/mtp.htm"), ignore_case=True
    ),
    key=Key(sources=("query:item_id", "query:itemId"), **_ITEM),  # type: ignore[arg-type]
    examples=(
        (
            "differ",
            (
                "https://detail.ju.taobao.com/home.htm?id=10000059000001&item_id=612345678901",
                "https://detail.ju.taobao.com/home.htm?id=10000059000001&item_id=612345678902",
            ),
        ),
    ),
)

_STRICT = Rule(
    name="tmall_without_id",
    match=Match(domain=("tmall.com", "tmall.hk", "taobao.com")),
    missing="drop",
    priority=-1,
)

#: Rules that come with a preset of the same name.
RULES: dict[str, tuple[Rule, ...]] = {
    "tmall": (_QUERY_PAGES, _GROUP_BUY),
    "tmall_strict": (_QUERY_PAGES, replace(_GROUP_BUY, missing="drop"), _STRICT),
}
