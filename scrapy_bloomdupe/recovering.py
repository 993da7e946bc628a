"""Does the filter have what the store has, after a run that did not end in order? If not, it is made anew.

After the death of a process it always has; after that of the machine its pages may not have reached the
disk. Looks at the counts and at a sample: ``rebuilding.check`` looks at everything.
"""

from __future__ import annotations

import random
import time

from scrapy_bloomdupe.building import build_filter, roomy, version_of, with_version
from scrapy_bloomdupe.errors import StateCorrupt, StoreError
from scrapy_bloomdupe.state import State
from scrapy_bloomdupe.stores.lmdb import LmdbStore

# One page in a hundred lost is found with a probability of 1 - 0.99^500 = 0.993.
_SAMPLE = 500
# The count of an unclean filter is an estimate from its bits: 5 standard deviations of it at the least
# size that there is, see ``sizing.estimate_keys``.
_TOLERANCE = 0.9
_FEWEST = 1_000


def recover(state: State) -> None:
    """Make the filter anew from the store if it lacks keys, and say so in ``state.notices``.

    Raises:
        StateCorrupt: the store cannot be read.
        FilterError, StateUnusable: the new filter could not be made; the old one is in its place.
    """
    store = state.store
    if state.was_clean or not isinstance(store, LmdbStore):
        return
    try:
        count = store.count()
        lacks = state.filter.num_keys < _TOLERANCE * count and count > _FEWEST
        if not lacks:
            rng = random.Random(count)
            lacks = any(key not in state.filter for key, _ in store.sample(_SAMPLE, rng))
    except StoreError as exc:
        raise StateCorrupt(
            f"{state.directory}: the exact store cannot be read: {exc.args[-1]}. Restore it from a copy, or "
            "move the directory aside to start anew"
        ) from exc
    if lacks:
        old = state.filter
        new = build_filter(
            state.directory,
            store,
            roomy(old, count),
            filter_id=old.filter_id,
            identity=with_version(old.identity, version_of(old.identity) + 1, time.time()),
            created=old.created,
            progress=lambda keys, _: keys,
        )
        state.replace_filter(new)
        state.recovered["filter"] = count
        state.notices.append(
            f"The filter in {state.directory} lacked keys that the exact store has: it was made anew from "
            f"the {count:,} keys of the store"
        )
