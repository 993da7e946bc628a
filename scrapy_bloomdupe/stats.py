"""Which stats does a crawl get, and what are they called?

``README.md`` says of each what to do when it grows; a test compares.
"""

from __future__ import annotations

from scrapy_bloomdupe.seen import Verdict

PREFIX = "bloomdupe/"

#: One count per request that was judged.
VERDICTS: dict[Verdict, str] = {verdict: PREFIX + verdict.value for verdict in Verdict}

#: Duplicates that were known by their exact URL; they count as duplicates, too.
CACHED = PREFIX + "cached"

#: Duplicates that passed because they are the target of their own redirect.
REDIRECT_PASS = PREFIX + "redirect_pass"

#: Requests that passed and were remembered whatever the filter knew: ``meta["bloomdupe"]``, start requests.
RECORDED = PREFIX + "recorded"

#: Keys that ``BloomDupeFilter.forget`` made new again.
FORGOTTEN = PREFIX + "forgotten"

#: Failures after which the request passed, by place.
ERROR = PREFIX + "error/"
ERROR_KEY = ERROR + "key"
ERROR_RULES = ERROR + "rules"
ERROR_CHECK = ERROR + "check"
ERROR_SERVER = ERROR + "server"
ERROR_COMMIT = ERROR + "commit"
ERROR_SYNC = ERROR + "sync"
ERROR_GROWTH = ERROR + "growth"
ERROR_REBUILD = ERROR + "rebuild"
ERROR_OPEN = ERROR + "open"
ERROR_CLOSE = ERROR + "close"
ERROR_HISTORY = ERROR + "history"
ERROR_METRICS = ERROR + "metrics"
ERROR_GATE = ERROR + "gate"

#: Requests that a rule keeps from ever being a duplicate (``missing="keep"``).
KEPT = PREFIX + "kept"

#: In a dry run: requests that the rules would have called duplicates and Scrapy does not.
DRY_RUN_MERGED = PREFIX + "dry_run/merged"

#: What rules did, by rule and by what.
RULE = PREFIX + "rule/"
RULE_COUNTS = ("key", "missing", "dropped", "rewritten")


def rule(name: str, what: str) -> str:
    """Return the stat of what a rule did: one of ``RULE_COUNTS``."""
    return f"{RULE}{name}/{what}"


#: The frontier: requests scheduled and not done, done in this run, failed and kept for the next run, pending
#: from an earlier run and taken up by this one, in memory only because they cannot be serialized.
PENDING = PREFIX + "pending"
DONE = PREFIX + "done"
FAILED = PREFIX + "failed"
RESUMED = PREFIX + "resumed"
UNSERIALIZABLE = PREFIX + "unserializable"
COMMITS = PREFIX + "commits"
COMMIT_SECONDS = PREFIX + "commit_seconds"

#: What was damaged or missing when the state was opened, and was made good.
RECOVERED = PREFIX + "recovered/"
RECOVERABLE = ("filter",)

#: Filters that were made anew in the middle of the crawl.
REBUILDS = PREFIX + "rebuilds"
#: What several crawls share: round trips of whole batches, keys in them, seconds for which the server was
#: not asked, how often it had lost what had been seen, keys that were granted and never scheduled, and keys
#: that passed since the last run was killed before it had written what the server granted it.
SERVER_ASKED = PREFIX + "server/asked"
SERVER_KEYS = PREFIX + "server/keys"
CIRCUIT_OPEN_SECONDS = PREFIX + "circuit_open_seconds"
EMPTIED = PREFIX + "server/emptied"
UNUSED = PREFIX + "server/unused"
OWED = PREFIX + "server/owed"
#: The gate: one count per request that it was asked about, and its figures at the end.
GATE = PREFIX + "gate/"
GATE_PASSED = GATE + "passed"
GATE_REJECTED = GATE + "rejected"
GATE_SAMPLED = GATE + "sampled"
GATE_WRONG = GATE + "wrong"
GATE_NO_VALUE = GATE + "no_value"
GATE_BYPASSED = GATE + "bypassed"
GATE_VERSION = GATE + "version"
GATE_KEYS = GATE + "keys"
GATE_ERROR_RATE_ESTIMATE = GATE + "error_rate_estimate"
#: Microseconds that 50, 95 and 99 % of the look-ups did not exceed.
GATE_LOOKUP = GATE + "lookup_us/"

# Set when the state is opened, grows, and is closed.
KEYS = PREFIX + "keys"
LAYERS = PREFIX + "layers"
FILL = PREFIX + "fill"
ERROR_RATE_ESTIMATE = PREFIX + "error_rate_estimate"
FILTER_BYTES = PREFIX + "filter_bytes"
OPEN_SECONDS = PREFIX + "open_seconds"

ALL = (
    *VERDICTS.values(),
    CACHED,
    REDIRECT_PASS,
    RECORDED,
    FORGOTTEN,
    KEPT,
    DRY_RUN_MERGED,
    *(f"{RULE}<name>/{what}" for what in RULE_COUNTS),
    ERROR_KEY,
    ERROR_RULES,
    ERROR_CHECK,
    ERROR_SERVER,
    ERROR_COMMIT,
    ERROR_SYNC,
    ERROR_GROWTH,
    ERROR_REBUILD,
    ERROR_OPEN,
    ERROR_CLOSE,
    ERROR_HISTORY,
    ERROR_METRICS,
    ERROR_GATE,
    GATE_PASSED,
    GATE_REJECTED,
    GATE_SAMPLED,
    GATE_WRONG,
    GATE_NO_VALUE,
    GATE_BYPASSED,
    GATE_VERSION,
    GATE_KEYS,
    GATE_ERROR_RATE_ESTIMATE,
    f"{GATE_LOOKUP}<percentile>",
    PENDING,
    DONE,
    FAILED,
    RESUMED,
    UNSERIALIZABLE,
    COMMITS,
    COMMIT_SECONDS,
    *(RECOVERED + what for what in RECOVERABLE),
    REBUILDS,
    SERVER_ASKED,
    SERVER_KEYS,
    CIRCUIT_OPEN_SECONDS,
    EMPTIED,
    UNUSED,
    OWED,
    KEYS,
    LAYERS,
    FILL,
    ERROR_RATE_ESTIMATE,
    FILTER_BYTES,
    OPEN_SECONDS,
)
