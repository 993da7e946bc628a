"""Under which names do things lie on a server?"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.remote import naming


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"spider": "shop"}, "shop:bloomdupe"),
        ({"spider": "shop", "namespace": "test"}, "test:shop:bloomdupe"),
        ({"template": "seen", "spider": "shop"}, "seen"),
        ({"template": "%(namespace)s/%(spider)s", "spider": "a", "namespace": "b"}, "b/a"),
        ({"template": "100%%:%(spider)s", "spider": "a"}, "100%:a"),
        ({"spider": "a{b}*?[c]\\"}, "a%7Bb%7D%2A%3F%5Bc%5D%5C:bloomdupe"),
    ],
)
def test_a_template_gives_a_prefix(arguments: dict[str, str], expected: str) -> None:
    assert expected == naming.prefix(**arguments)


@pytest.mark.parametrize("template", ["", "{%(spider)s}", "%(site)s", "50%", "%(spider)d", "%s"])
def test_what_is_no_template_is_refused(template: str) -> None:
    with pytest.raises(ConfigurationError, match="template"):
        naming.prefix(template, spider="shop")


@pytest.mark.parametrize(("tag", "slot"), [(b"123456789", 0x31C3), (b"foo", 12182), (b"bar", 5061), (b"", 0)])
def test_a_slot_is_what_the_specification_of_clusters_says(tag: bytes, slot: int) -> None:
    assert slot == naming.slot(tag)


def test_names_are_frozen() -> None:
    epoch = bytes(range(16))
    assert "0001020304050607.0" == naming.shard_tag(epoch, 0, 1)
    assert ["0001020304050607.3", "0001020304050607.19", "0001020304050607.5"] == [
        naming.shard_tag(epoch, shard, 3) for shard in range(3)
    ]


@given(st.binary(min_size=16, max_size=16), st.integers(1, 40))
def test_shards_are_dealt_evenly_over_the_slots(epoch: bytes, num_shards: int) -> None:
    tags = [naming.shard_tag(epoch, shard, num_shards) for shard in range(num_shards)]
    assert num_shards == len(set(tags))
    slots = [naming.slot(tag.encode()) for tag in tags]
    assert [slot * num_shards // 16384 for slot in slots] == list(range(num_shards))
