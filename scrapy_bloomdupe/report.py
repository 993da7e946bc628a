"""What does a person read of a seen-set in the log? Sentences with their figures and next steps.

It formats and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import scrapy_bloomdupe.stats as stats
from scrapy_bloomdupe.errors import message
from scrapy_bloomdupe.estimating import Estimate
from scrapy_bloomdupe.filters.growth import Growth
from scrapy_bloomdupe.filters.remotefilter import RemoteFilter
from scrapy_bloomdupe.gate.gate import GateInfo
from scrapy_bloomdupe.records import Record
from scrapy_bloomdupe.seen import Verdict
from scrapy_bloomdupe.shared.parts import SharedParts
from scrapy_bloomdupe.shared.seen import SharedSeen
from scrapy_bloomdupe.shared.versions import Rebuilt
from scrapy_bloomdupe.state import State

_PLACES = {
    stats.ERROR_OPEN: "the state could not be opened; every request passes unfiltered",
    stats.ERROR_KEY: "the key of a request could not be made; the request passes unfiltered",
    stats.ERROR_RULES: "a rule failed; the request passes as it is",
    stats.ERROR_CHECK: "the seen-set could not answer; the request passes unfiltered",
    stats.ERROR_SERVER: (
        "the server that is shared did not answer; requests pass unjudged until it does, and their pages can "
        "be crawled by several crawls. None is lost"
    ),
    stats.ERROR_COMMIT: (
        "seen keys could not be written; they are kept in memory and tried again. Make room on the "
        "disk: what is not written when the process ends is crawled again by the next run"
    ),
    stats.ERROR_QUEUE: (
        "Scrapy's queue did not take a pending request; it stays pending for the next run. Check the disk "
        "and the limit of open files"
    ),
    stats.ERROR_SYNC: "the state could not be brought to the disk; a power loss could cost it",
    stats.ERROR_REBUILD: (
        "the filter could not be made anew; the old one stays in force, with more layers to ask, until "
        "`bloomdupe rebuild`"
    ),
    stats.ERROR_CLOSE: (
        "the state could not be closed in order; what was not written is crawled again by the next run"
    ),
    stats.ERROR_HISTORY: "figures for `bloomdupe report` could not be kept, which does not touch the crawl",
    stats.ERROR_METRICS: "figures for Prometheus could not be read, which does not touch the crawl",
}


def size(num_bytes: float) -> str:
    """Return a size for people, in units of 1,000 bytes."""
    for unit in ("B", "kB", "MB", "GB"):
        if num_bytes < 1000:
            return f"{num_bytes:.3g} {unit}"
        num_bytes /= 1000
    return f"{num_bytes:.3g} TB"


def opened(state: State) -> str:
    """Return the line of a state that was opened."""
    info = state.filter.measure(1)
    confirm = "exact confirmation" if state.store is not None else "no exact store"
    if state.is_new:
        place = "temporary files" if state.temporary else str(state.directory)
        return (
            f"Seen-set: new in {place} for {info.capacity:,} keys at an error rate of "
            f"{info.error_rate:g} ({size(info.num_bytes)}, {info.layout}, {info.scheme}, {confirm})"
        )
    return (
        f"Seen-set: {state.num_keys():,} keys in {state.directory}, opened in "
        f"{state.open_seconds * 1000:.1f} ms ({size(info.num_bytes)}, {info.layout}, {info.scheme}, "
        f"{confirm})"
    )


def not_imported(seen: Path) -> str:
    """Return the notice of a job that was begun with Scrapy's own filter."""
    return (
        f"{seen} holds what Scrapy's own filter has seen ({size(seen.stat().st_size)}), which this new "
        f"seen-set does not know: its pages will be crawled again. To take it over, stop, run `bloomdupe "
        f"import {seen.parent}`, and resume"
    )


def unclean(state: State) -> str:
    """Return the notice of a state without a journal whose last process was killed."""
    return (
        f"The last run on {state.directory} did not end in order, and it had no journal. What it had seen is "
        "here, but requests that it had scheduled and not sent are marked as seen too, and if Scrapy's own "
        "queue lost them their pages are not crawled. Start in an empty directory to be sure of every page"
    )


def left_waiting(state: State, count: int, *, jobdir: bool) -> str:
    """Return the notice of a crawl without a journal that was stopped with requests in memory only."""
    if jobdir:
        return (
            f"{count:,} requests were scheduled and not sent, and Scrapy could not write them to the JOBDIR "
            "(callbacks that are no methods of the spider, such as lambdas): they are lost, and marked as "
            f"seen in {state.directory}. SCHEDULER_DEBUG shows them; use methods as callbacks"
        )
    return (
        f"{count:,} requests were scheduled and not sent. There is no JOBDIR to keep them, and they are "
        f"marked as seen in {state.directory}: the next run will not crawl them. Set JOBDIR, or leave "
        "BLOOMDUPE_JOURNAL on, to stop and resume a crawl"
    )


def replaying(count: int, directory: Path, *, was_clean: bool) -> str:
    """Return the notice of a run that goes on from the journal."""
    why = (
        "Scrapy's own queue does not hold what the last run left"
        if was_clean
        else "The last run did not end in order"
    )
    return f"{why}: its {count:,} pending requests are asked again from the journal in {directory}"


def queue_aside(queue: Path, aside: Path) -> str:
    """Return the notice of a queue of Scrapy's that is not trusted."""
    return (
        f"{queue} was moved to {aside.name}: it was not closed in order, or was changed since, and the "
        "journal has what was in it. It can be deleted"
    )


def queue_unreadable(queue: Path, aside: Path, problem: str) -> str:
    """Return the notice of a queue that there is no journal of, and that cannot be read."""
    return (
        f"{queue} was not closed in order, and no journal knows what was in it ({problem}): it was moved to "
        f"{aside.name}. Pages that were waiting in it may never be crawled; start in an empty directory to "
        "be sure of every page"
    )


def adopted(count: int, queue: Path) -> str:
    """Return the line of a queue whose requests the journal took over."""
    return f"The journal took over {count:,} requests that waited in {queue}"


def stuck(number: int) -> str:
    """Return the line of a request that was put back and did not arrive."""
    return (
        f"Pending request {number} was scheduled again and never reached the downloader; it stays pending. "
        "See what drops it (a handler of request_scheduled, a full disk), and run the crawl again"
    )


def unreadable(record: Record, problem: str) -> str:
    """Return the line of a pending request that cannot be restored."""
    return (
        f"Pending request {record.number} cannot be restored: {problem}. Its page is not crawled by this "
        "run, and stays pending. Give the spider back what is missing, or see `bloomdupe pending`"
    )


def foreign(count: int) -> str:
    """Return the line of pending requests of another spider."""
    return f"{count:,} pending requests are of another spider and stay pending until it is run again"


def in_memory(request: object) -> str:
    """Return the line of a request that cannot be written."""
    return f"Not written, since its callback is no method of the spider or it holds what cannot be: {request}"


def in_memory_total(count: int) -> str:
    """Return the line that sums them up."""
    return (
        f"{count:,} requests are in memory only. The next run asks the pages that gave them again, and the "
        "start requests among them; what other code scheduled is gone, but not marked as seen"
    )


def not_written(state: State, exc: Exception) -> str:
    """Return the line of a crawl that is stopped because the journal could not be written."""
    return (
        f"The journal in {state.directory} could not be written: {message(exc) or repr(exc)}. The crawl is "
        "stopped: what it had not written is asked again by the next run. Make room on the disk, and start "
        "it again"
    )


def unsafe_feeds(uris: Sequence[str]) -> str:
    """Return the notice of feeds that a killed process takes with it."""
    return (
        f"Items of these feeds are only stored when the crawl ends, and are lost if it is killed, while "
        f"their pages count as done: {', '.join(uris)}. Local files without postprocessing are complete"
    )


def mended_feeds(uris: Sequence[str]) -> str:
    """Return the notice of feeds whose last line was torn."""
    return (
        f"The last line of these feeds was torn, and was ended: {', '.join(uris)}. It is no whole item; its "
        "page is asked again"
    )


def overwriting_feeds(uris: Sequence[str]) -> str:
    """Return the notice of feeds that a resumed crawl has emptied."""
    return (
        f"This job goes on, and these feeds are overwritten: {', '.join(uris)}. The items of earlier runs "
        "are no more in them; use -o, or overwrite: False"
    )


def shared(shared: SharedSeen, state: State) -> str:
    """Return the line of a seen-set that is shared with other crawls."""
    parts = shared.parts
    names, exact = [], "no exact store: the filter's error rate costs pages"
    if parts.filter is not None:
        names.append(f"{parts.filter.kind} filter {parts.filter.path}")
        size = f" for {parts.filter.capacity:,} keys at an error rate of {parts.filter.error_rate:g}"
        names[-1] += size
    if parts.store is not None:
        names.append(f"exact store {parts.store.path}")
        exact = "exact" if shared.policy != "negatives" else "this crawl's own filter may skip a page"
    here = "temporary files" if state.temporary else str(state.directory)
    owed = (
        f"; {shared.num_owed:,} keys asked for when the last run ended pass once" if shared.num_owed else ""
    )
    unsafe = "" if state.journal is not None else "; a kill loses what it was granted, without a journal"
    return (
        f"Seen-set: shared by {' and '.join(names)}, {'new' if parts.was_created else 'found'} ({exact}); "
        f"this crawl's own part is in {here}{owed}{unsafe}"
    )


def given_up(count: int, lost: int) -> str:
    """Return the line of a crawl without a journal that was stopped before it was done."""
    if lost:
        return (
            f"{count:,} requests were scheduled and not sent. They are marked as seen on the server, which "
            "cannot forget them: no crawl will have their pages. Set JOBDIR, so that the next run goes on "
            "with them"
        )
    return (
        f"{count:,} requests were scheduled and not sent. Their keys were given back to the server: whoever "
        "finds them again crawls them. Set JOBDIR, so that the next run goes on with them"
    )


def emptied(exc: Exception, on_empty: str) -> str:
    """Return the line of a server that has lost what had been seen."""
    what = {
        "pass": "It is made anew, empty, and the crawl goes on",
        "stop": "BLOOMDUPE_ON_EMPTY is 'stop': the crawl is stopped",
        "refill": "It is made anew and filled from this crawl's own store",
    }[on_empty]
    return f"{message(exc)}. {what}"


def emptied_between(parts: SharedParts, directory: Path) -> str:
    """Return the line of a server that is not what the last run of a job left."""
    return (
        f"{parts.names} is not what the last run on {directory} worked with: it was emptied, cleared or made "
        "anew, or is another server. Pages that were crawled before can be crawled again; none is lost"
    )


def renewed(names: str, refilled: int | None) -> str:
    """Return the line of a server that is in use again after it was emptied."""
    return f"{names} is in use again" + (f", with {refilled:,} keys of this crawl" if refilled else "")


def not_refilled(names: str, count: int, exc: BaseException) -> str:
    """Return the line of a refill that ended early."""
    return (
        f"{names} was filled with {count:,} keys only: {message(exc)}. Pages of the others can be crawled "
        "again; none is lost"
    )


def server_away(names: str, exc: BaseException) -> str:
    """Return the line of a server that did not answer when it was looked at."""
    return f"{names} does not answer: {message(exc) or repr(exc)}. Requests pass unjudged until it does"


def server_back(names: str) -> str:
    """Return the line of a server that answers again."""
    return f"{names} answers again"


def server_trouble(names: str, trouble: str) -> str:
    """Return the line of a server that will forget, or take no more."""
    return f"{names}: {trouble}"


def summary(state: State, counts: Mapping[Verdict, int]) -> str:
    """Return the one line of a crawl's end."""
    new = counts.get(Verdict.NEW, 0) + counts.get(Verdict.FALSE_POSITIVE, 0)
    parts = [f"{new:,} new"]
    exact = state.store is not None or state.seen.store is not None
    if exact or counts.get(Verdict.DUPLICATE):
        parts.append(f"{counts.get(Verdict.DUPLICATE, 0):,} duplicates")
    if exact:
        parts.append(f"{counts.get(Verdict.FALSE_POSITIVE, 0):,} false positives caught")
    if again := counts.get(Verdict.EXPIRED, 0):
        parts.append(f"{again:,} expired and crawled again")
    if not exact or counts.get(Verdict.UNCONFIRMED):
        parts.append(f"{counts.get(Verdict.UNCONFIRMED, 0):,} unconfirmed duplicates")
    if state.shared is not None:
        return f"Seen-set: {', '.join(parts)}; shared on {state.shared.parts.names}"
    info = state.filter.info()
    layers = "1 layer" if len(info.layers) == 1 else f"{len(info.layers)} layers"
    return (
        f"Seen-set: {', '.join(parts)}; {state.num_keys():,} keys in {layers}, {info.fill:.0%} full, error "
        f"rate {max(info.error_rate_estimate, 1e-12):.2g} (asked: {info.error_rate:g}), "
        f"{size(state.num_bytes())} on disk"
        + (f". {audited(state.audit.num_keys, state.audit.estimate())}" if state.audit is not None else "")
    )


def audited(num_keys: int, lost: Estimate) -> str:
    """Return the sentence of an audit of *num_keys* keys."""
    if not lost.found:
        return (
            f"Audit: of {num_keys:,} keys none was wrongly called seen; of the others at most {lost.high:,} "
            "pages were lost (95 %)"
        )
    return (
        f"Audit: of {num_keys:,} keys {lost.found:,} were wrongly called seen, and saved; of the others "
        f"about {lost.others:,.0f} pages were lost ({lost.low:,} to {lost.high:,}, 95 %)"
    )


def lossy(state: State, num_keys: int, lost: Estimate, promised: float) -> str:
    """Return the notice of a filter that loses more than was asked for."""
    return (
        f"{audited(num_keys, lost)}. Asked for was an error rate of {state.filter.error_rate:g}: at most "
        f"{promised:,.3g} of {state.num_keys():,} pages. `bloomdupe info` says whether the filter is "
        "over-full. In a new directory BLOOMDUPE_STORE = 'lmdb' loses none, a larger BLOOMDUPE_CAPACITY fewer"
    )


def no_next(error: Exception) -> str:
    """Return the error of a generation that could not be made."""
    return (
        f"The next generation of the filter could not be made ({message(error) or repr(error)}); it is tried "
        "again, and meanwhile keys are remembered for longer than BLOOMDUPE_EXPIRE says. No page is lost for "
        "it. Make room on the disk"
    )


def grew(growth: Growth) -> str:
    """Return the notice of a further layer."""
    return (
        f"The filter reached {growth.num_keys:,} keys and grew to {growth.layers} layers for "
        f"{growth.capacity:,} keys; the error rate stays as asked. A larger BLOOMDUPE_CAPACITY from the "
        "start makes checks faster"
    )


def rebuilt(state: State, version: int, layers: int, seconds: float) -> str:
    """Return the notice of a filter that was made anew in the middle of a crawl."""
    new = state.filter
    return (
        f"The filter was made anew from the store: version {version}, {new.num_keys:,} keys, "
        f"{new.num_layers} instead of {layers} layers, room for {new.capacity:,} keys; it took "
        f"{seconds:.1f} s beside the crawl"
    )


def rebuilt_shared(path: str, rebuilt: Rebuilt, seconds: float) -> str:
    """Return the notice of a shared filter that this crawl has made anew."""
    return (
        f"{path} was made anew from the store: version {rebuilt.new}, {rebuilt.count:,} keys and "
        f"{rebuilt.caught_up:,} that came meanwhile, room for {rebuilt.capacity:,} keys; it took "
        f"{seconds:.1f} s beside the crawl"
    )


def followed(filter: RemoteFilter) -> str:  # noqa: A002
    """Return the notice of a shared filter that somebody has made anew."""
    return (
        f"{filter.path} was made anew from the store: this crawl goes on with version {filter.version}; "
        "nothing was lost"
    )


def overfull(growth: Growth, *, exact: bool) -> str:
    """Return the notice of a filter that could not grow."""
    cost = (
        "checks get slower; no page is lost, since the exact store confirms"
        if exact
        else "the share of pages lost to false positives rises, and the crawl will be stopped before it "
        "is ten times what was asked"
    )
    return (
        f"The filter is full with {growth.num_keys:,} keys and could not grow: {growth.error}. It goes on "
        f"over-full (error rate now {growth.rate:.2g}): {cost}. Make room for it"
    )


def full(growth: Growth, error_rate: float) -> str:
    """Return the notice of a crawl that is stopped for its filter."""
    return (
        f"The filter holds {growth.num_keys:,} keys, cannot grow ({growth.error}) and has no exact store "
        f"to confirm: its error rate is {growth.rate:.2g}, {error_rate:g} was asked for. The crawl is "
        "stopped so that no more pages are lost; make room on the disk and resume"
    )


def failed(where: str, exc: Exception, request: object | None) -> str:
    """Return the one warning of a place that failed."""
    of = f" ({request})" if request is not None else ""
    return f"Seen-set: {_PLACES[where]}{of}: {message(exc) or repr(exc)}. Counted in {where}, shown once"


def gate_opened(info: GateInfo) -> str:
    """Return the line of a gate that was opened."""
    return (
        f"Gate: version {info.version} of {info.path}, {info.num_keys:,} keys, lets "
        f"{info.error_rate_estimate:.2g} of all others pass ({size(info.num_bytes)})"
    )


def gate_without_url(info: GateInfo) -> str:
    """Return the warning of a gate that is asked for URLs and does not know how they are sent."""
    return (
        f"Gate: {info.path} is asked for URLs and was built without the step `url`: a URL that its list "
        "spells otherwise than Scrapy sends it is rejected. Build it with --steps url,trim"
    )


def gate_problem(exc: Exception) -> str:
    """Return the one warning of a gate that cannot judge."""
    return (
        f"Gate: {message(exc) or repr(exc)}: until it can judge every request passes. Counted in "
        f"{stats.ERROR_GATE} and {stats.GATE_BYPASSED}, shown once"
    )


def gate_source_failed(exc: Exception, request: object) -> str:
    """Return the one warning of a source that raised."""
    return (
        f"Gate: its source failed on {request}: {exc!r}; the request passes. Counted in "
        f"{stats.ERROR_GATE} and {stats.GATE_BYPASSED}, shown once"
    )


def gate_wrong(text: str, request: object) -> str:
    """Return the one warning of a list that lacks something."""
    return (
        f"Gate: {text!r} is not in it, and the page that was let through to see ({request}) brought an item: "
        "the list is not complete, or its keys are spelled otherwise. Counted in "
        f"{stats.GATE_WRONG}, shown once"
    )
