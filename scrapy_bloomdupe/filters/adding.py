"""How is a key put into one layer in as few steps as Python has? The same bits as step by step.

Only for what nearly every filter is: one layer, ``paged``, ``murmur3``. What ``hashing`` and ``layouts`` do
in three calls of Python functions is one call here, and none for the keys of a batch. What is left is the
limit of this layout in Python: two calls of mmh3, eleven numbers made from the digest, two indexings of a
bitarray.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import mmh3

import scrapy_bloomdupe.hashing as hashing
from scrapy_bloomdupe.filters.layouts import Layer, PagedLayer


class ShortWay(NamedTuple):
    """A layer and all that is done to a key for it.

    Attributes:
        add: key -> whether all its positions were set; they are now.
        add_many: keys, at least one, and how many new ones there is room for, at least one -> the answers
            of ``add``, up to and with the key that took the last room.
    """

    add: Callable[[bytes], bool]
    add_many: Callable[[Sequence[bytes], int], list[bool]]


def short_way(layer: Layer, scheme: hashing.Scheme, secret: bytes, num_hashes: int) -> ShortWay | None:
    """Return the short way into *layer*; None: there is none."""
    if scheme.name != "murmur3" or not isinstance(layer, PagedLayer):
        return None
    seeds = hashing.murmur3_seeds(secret, hashing.digest_size(num_hashes))
    if len(seeds) == 2:
        # 7 to 14 positions: error rates of about 0.01 to 0.0001.
        return _two_digests(layer, *seeds)
    if len(seeds) == 3:
        # 15 to 22 positions: to about 10^-6, the default without an exact store.
        return _three_digests(layer, *seeds)
    return None


def _two_digests(layer: PagedLayer, first: int, second: int) -> ShortWay:
    hash128 = mmh3.mmh3_x64_128_digest
    unpack, views, make_view, num_pages = layer.unpack, layer.views, layer.view, layer.num_pages

    def add(key: bytes) -> bool:
        positions = list(unpack(hash128(key, first) + hash128(key, second)))
        page = positions.pop(0) % num_pages
        view = views[page] or make_view(page)
        if view[positions].all():
            return True
        view[positions] = 1
        return False

    def add_many(keys: Sequence[bytes], room: int) -> list[bool]:
        answers: list[bool] = []
        append = answers.append
        for key in keys:
            positions = list(unpack(hash128(key, first) + hash128(key, second)))
            page = positions.pop(0) % num_pages
            view = views[page] or make_view(page)
            if view[positions].all():
                append(True)
            else:
                view[positions] = 1
                append(False)
                room -= 1
                if not room:
                    break
        return answers

    return ShortWay(add, add_many)


def _three_digests(layer: PagedLayer, first: int, second: int, third: int) -> ShortWay:
    hash128 = mmh3.mmh3_x64_128_digest
    unpack, views, make_view, num_pages = layer.unpack, layer.views, layer.view, layer.num_pages

    def add(key: bytes) -> bool:
        positions = list(unpack(hash128(key, first) + hash128(key, second) + hash128(key, third)))
        page = positions.pop(0) % num_pages
        view = views[page] or make_view(page)
        # One of the first two positions of a new key is not set, nearly always: no need to cut out all twice.
        if view[positions[0]] and view[positions[1]] and view[positions].all():
            return True
        view[positions] = 1
        return False

    def add_many(keys: Sequence[bytes], room: int) -> list[bool]:
        answers: list[bool] = []
        for key in keys:
            seen = add(key)
            answers.append(seen)
            room -= not seen
            if not room:
                break
        return answers

    return ShortWay(add, add_many)
