"""Does every setting have its default, understand what people write, and say what is wrong with the rest?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from crawling import filtering
from scrapy.settings import Settings

from scrapy_bloomdupe import settings, stats
from scrapy_bloomdupe.errors import ConfigurationError
from scrapy_bloomdupe.seen import Verdict


def read(**values: Any) -> settings.BloomdupeSettings:
    return settings.read(Settings(values))


def test_every_setting_has_a_default_that_fits_a_small_crawl() -> None:
    found = read()
    options = found.options
    assert found.directory is None
    assert (1_000_000, 0.001) == (options.capacity, options.error_rate)
    assert ("paged", "murmur3", "lmdb") == (options.layout, options.scheme, options.store)
    assert "error" == options.on_mismatch
    assert frozenset() == options.explicit


def _attribute(found: Any, name: str) -> Any:
    return getattr(found, name.removeprefix("BLOOMDUPE_").lower())


@pytest.mark.parametrize("name", settings.SETTINGS)
def test_the_default_that_a_setting_shows_is_the_one_that_holds(name: str) -> None:
    shown = settings.SETTINGS[name].default.partition(",")[0]
    value = eval(shown)
    if name == "BLOOMDUPE_DIR":
        assert value == read().directory
    elif hasattr(read(), name.removeprefix("BLOOMDUPE_").lower()):
        assert value == getattr(read(), name.removeprefix("BLOOMDUPE_").lower())
    elif name == "BLOOMDUPE_SYNC":
        assert (value == "full") is read().options.sync
    elif name == "BLOOMDUPE_FRONTIER":
        assert value == read(JOBDIR="job").options.frontier
    elif name in ("BLOOMDUPE_PRESET", "BLOOMDUPE_RULES", "BLOOMDUPE_RULE_FILES"):
        assert not value
        assert settings.read_rules(Settings()) is None
    elif name.startswith("BLOOMDUPE_REBUILD_"):
        assert value == _attribute(read(BLOOMDUPE_FILTER="redis://127.0.0.1").shared, name)
    elif name in ("BLOOMDUPE_FILTER", "BLOOMDUPE_KEY", "BLOOMDUPE_ON_EMPTY"):
        assert read().shared is None
        shared = read(BLOOMDUPE_FILTER="redis://127.0.0.1").shared
        assert shared is not None
        assert value == ("mapped" if name == "BLOOMDUPE_FILTER" else _attribute(shared, name))
    elif name == "BLOOMDUPE_GATE":
        assert value is settings.read_gate(Settings())
    elif name == "BLOOMDUPE_GATE_SAMPLE":
        gate = settings.read_gate({"BLOOMDUPE_GATE": {"file": "ids.gate", "source": "url"}})
        assert gate is not None
        assert value == gate.sample
    elif name == "BLOOMDUPE_FINGERPRINTER":
        # Read by the add-on, by Scrapy's own getbool.
        assert value == Settings().getbool(name)
    else:
        assert value == getattr(read().options, name.removeprefix("BLOOMDUPE_").lower())


def test_a_dict_will_do_where_there_is_no_scrapy() -> None:
    assert settings.read({}) == read()
    assert 7 == settings.read({"BLOOMDUPE_CAPACITY": 7, "BOT_NAME": "x"}).options.capacity


@pytest.mark.parametrize(
    ("name", "written", "option", "expected"),
    [
        ("BLOOMDUPE_CAPACITY", "1e6", "capacity", 1_000_000),
        ("BLOOMDUPE_CAPACITY", "2500", "capacity", 2_500),
        ("BLOOMDUPE_CAPACITY", "1_000", "capacity", 1_000),
        ("BLOOMDUPE_CAPACITY", 5e3, "capacity", 5_000),
        ("BLOOMDUPE_CAPACITY", 10**13, "capacity", 10**13),
        ("BLOOMDUPE_ERROR_RATE", "1e-4", "error_rate", 1e-4),
        ("BLOOMDUPE_ERROR_RATE", "0.05", "error_rate", 0.05),
        ("BLOOMDUPE_STORE", None, "store", None),
        ("BLOOMDUPE_STORE", "None", "store", None),
        ("BLOOMDUPE_STORE", "none", "store", None),
        ("BLOOMDUPE_STORE", "", "store", None),
        ("BLOOMDUPE_STORE", "memory", "store", "memory"),
        ("BLOOMDUPE_LAYOUT", "classic", "layout", "classic"),
        ("BLOOMDUPE_SCHEME", "blake2b", "scheme", "blake2b"),
        ("BLOOMDUPE_SCHEME", "fnv1a", "scheme", "fnv1a"),
        ("BLOOMDUPE_ON_MISMATCH", "new", "on_mismatch", "new"),
    ],
)
def test_what_people_write_in_a_project_or_on_a_command_line_is_understood(
    name: str, written: Any, option: str, expected: Any
) -> None:
    options = read(**{name: written}).options
    assert expected == getattr(options, option)
    assert type(expected) is type(getattr(options, option))
    assert frozenset([option]) == options.explicit


@pytest.mark.parametrize("name", [name for name in settings.SETTINGS if name != "BLOOMDUPE_STORE"])
def test_none_means_the_default(name: str) -> None:
    assert read() == read(**{name: None})


@pytest.mark.parametrize(
    ("name", "wrong", "takes"),
    [
        ("BLOOMDUPE_CAPACITY", "many", "a number of keys"),
        ("BLOOMDUPE_CAPACITY", [], "a number of keys"),
        ("BLOOMDUPE_CAPACITY", "", "a number of keys"),
        ("BLOOMDUPE_CAPACITY", 0, "from 1 to 1e+13"),
        ("BLOOMDUPE_CAPACITY", -5, "from 1 to 1e+13"),
        ("BLOOMDUPE_CAPACITY", 1.5, "whole number"),
        ("BLOOMDUPE_CAPACITY", 10**14, "from 1 to 1e+13"),
        ("BLOOMDUPE_CAPACITY", float("nan"), "from 1 to 1e+13"),
        ("BLOOMDUPE_CAPACITY", float("inf"), "from 1 to 1e+13"),
        ("BLOOMDUPE_ERROR_RATE", "1%", "a share"),
        ("BLOOMDUPE_ERROR_RATE", {}, "a share"),
        ("BLOOMDUPE_ERROR_RATE", 0.0, "from 1e-12"),
        ("BLOOMDUPE_ERROR_RATE", 1.0, "not including, 1"),
        ("BLOOMDUPE_ERROR_RATE", -0.1, "from 1e-12"),
        ("BLOOMDUPE_ERROR_RATE", float("nan"), "from 1e-12"),
        ("BLOOMDUPE_STORE", "sqlite", "'lmdb', 'memory', 'redis'"),
        ("BLOOMDUPE_STORE", 7, "'lmdb', 'memory', 'redis'"),
        ("BLOOMDUPE_STORE", "redis", "BLOOMDUPE_FILTER, which names none"),
        ("BLOOMDUPE_STORE", "redis://host:port", "is not the URL of a server"),
        ("BLOOMDUPE_FILTER", "bloom", "'mapped' for a file"),
        ("BLOOMDUPE_FILTER", "redis://host/x", "is not the URL of a server"),
        ("BLOOMDUPE_POLICY", "sometimes", "positives, always, negatives"),
        ("BLOOMDUPE_POLICY", "negatives", "give its URL in BLOOMDUPE_STORE"),
        ("BLOOMDUPE_KEY", "%(spyder)s", "is not a template"),
        ("BLOOMDUPE_ON_EMPTY", "cry", "pass, stop, refill"),
        ("BLOOMDUPE_LAYOUT", "square", "classic"),
        ("BLOOMDUPE_SCHEME", "md5", "murmur3"),
        ("BLOOMDUPE_SCHEME", ["murmur3"], "murmur3"),
        ("BLOOMDUPE_ON_MISMATCH", "delete", "'error' or 'new'"),
        ("BLOOMDUPE_DIR", 5, "a path, or None"),
        ("BLOOMDUPE_FRONTIER", "maybe", "True or False"),
        ("BLOOMDUPE_RETRY_FAILED", 3, "True or False"),
        ("BLOOMDUPE_SYNC", "always", "'normal' or 'full'"),
    ],
)
def test_a_wrong_value_is_refused_with_the_name_the_value_and_what_the_setting_takes(
    name: str, wrong: Any, takes: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(**{name: wrong})
    message = str(caught.value)
    assert name in message
    assert repr(wrong) in message
    assert takes in message


@pytest.mark.parametrize("name", ["BLOOMDUPE_CAPACTIY", "BLOOMDUPE_REDIS_URL", "BLOOMDUPE_"])
@pytest.mark.parametrize("source", [dict, Settings])
def test_an_unknown_name_is_refused_with_the_names_that_there_are(name: str, source: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        settings.read(source({name: 1}))
    assert f"{name} is not a setting" in str(caught.value)
    assert all(known in str(caught.value) for known in settings.SETTINGS)


def test_other_peoples_settings_are_left_alone() -> None:
    assert read() == read(BLOOM_FILTER=1, DUPEFILTER_DEBUG=True, bloomdupe_x=1)


def test_the_state_lies_in_the_job_directory_unless_it_has_one_of_its_own(tmp_path: Path) -> None:
    assert tmp_path / "bloomdupe" == read(JOBDIR=str(tmp_path)).directory
    assert tmp_path / "seen" == read(BLOOMDUPE_DIR=tmp_path / "seen").directory
    assert tmp_path / "seen" == read(JOBDIR="job", BLOOMDUPE_DIR=str(tmp_path / "seen")).directory
    assert Path("job/bloomdupe") == read(JOBDIR="job", BLOOMDUPE_DIR="").directory


def test_a_frontier_is_kept_wherever_a_state_is_kept_unless_it_is_switched_off() -> None:
    assert read(JOBDIR="job").options.frontier
    assert read(BLOOMDUPE_DIR="seen").options.frontier
    assert read(JOBDIR="job", BLOOMDUPE_STORE=None).options.frontier
    assert not read(JOBDIR="job", BLOOMDUPE_FRONTIER=False).options.frontier
    # Temporary files are gone when the crawl ends.
    assert not read(BLOOMDUPE_FRONTIER=True).options.frontier


@pytest.mark.parametrize(
    ("written", "expected"),
    [(True, True), ("True", True), ("1", True), (1, True), (False, False), ("false", False), ("0", False)],
)
def test_a_flag_is_read_as_scrapy_reads_it(written: Any, expected: bool) -> None:
    assert expected is read(BLOOMDUPE_RETRY_FAILED=written).retry_failed
    assert expected is read(JOBDIR="job", BLOOMDUPE_FRONTIER=written).options.frontier


def test_every_commit_is_brought_to_the_disk_on_request() -> None:
    assert (False, True) == (read().options.sync, read(BLOOMDUPE_SYNC="full").options.sync)


def test_without_a_store_the_default_rate_is_a_thousand_times_better_and_an_asked_one_holds() -> None:
    assert 1e-6 == read(BLOOMDUPE_STORE=None).options.error_rate
    assert 0.01 == read(BLOOMDUPE_STORE=None, BLOOMDUPE_ERROR_RATE="0.01").options.error_rate


@pytest.mark.parametrize("place", ["JOBDIR", "BLOOMDUPE_DIR"])
def test_a_store_in_memory_is_refused_where_a_directory_keeps_the_filter(tmp_path: Path, place: str) -> None:
    with (
        pytest.raises(ConfigurationError, match="BLOOMDUPE_STORE = 'memory' cannot be kept in"),
        filtering(None, **{place: str(tmp_path / "state"), "BLOOMDUPE_STORE": "memory"}),
    ):
        pass
    assert not (tmp_path / "state" / "seen.bloom").exists()


def test_a_filter_that_counts_is_for_a_state_without_a_store() -> None:
    found = read(BLOOMDUPE_FILTER="counting", BLOOMDUPE_STORE=None).options
    assert ("counting", None, 1e-6) == (found.layout, found.store, found.error_rate)
    assert "filter" in found.explicit
    for store in ("lmdb", "memory", "redis://127.0.0.1"):
        with pytest.raises(ConfigurationError, match="'counting' is for BLOOMDUPE_STORE = None"):
            read(BLOOMDUPE_FILTER="counting", BLOOMDUPE_STORE=store)
    with pytest.raises(ConfigurationError, match="BLOOMDUPE_LAYOUT is for BLOOMDUPE_FILTER = 'mapped'"):
        read(BLOOMDUPE_FILTER="counting", BLOOMDUPE_STORE=None, BLOOMDUPE_LAYOUT="paged")
    with pytest.raises(ConfigurationError, match="it takes one of classic, paged"):
        read(BLOOMDUPE_LAYOUT="counting")
    assert "classic" == read(BLOOMDUPE_FILTER="mapped", BLOOMDUPE_LAYOUT="classic").options.layout


@pytest.mark.parametrize("store", ["lmdb", "memory", None])
def test_a_filter_of_a_crawls_own_is_made_anew_between_two_runs(store: str | None) -> None:
    read(BLOOMDUPE_STORE=store, BLOOMDUPE_REBUILD_LAYERS=0)
    for name, value in (("BLOOMDUPE_REBUILD_LAYERS", 3), ("BLOOMDUPE_REBUILD_EVERY", 86_400)):
        with pytest.raises(ConfigurationError) as caught:
            read(**{"BLOOMDUPE_STORE": store, name: value})
        assert str(caught.value) == (
            f"{name} = {value} needs a filter and an exact store that are both shared: leave it out. A "
            "filter of this crawl's own is made anew between two runs, by `bloomdupe rebuild JOBDIR`"
        )


@pytest.mark.parametrize(
    ("layers", "values"),
    [
        (4, {"BLOOMDUPE_FILTER": "redis://h"}),
        (3, {"BLOOMDUPE_FILTER": "redis://h", "BLOOMDUPE_REBUILD_LAYERS": 3}),
        (0, {"BLOOMDUPE_FILTER": "redis://h", "BLOOMDUPE_REBUILD_LAYERS": 0}),
        (4, {"BLOOMDUPE_FILTER": "redis://h", "BLOOMDUPE_STORE": "sqlite:///x.db"}),
        (0, {"BLOOMDUPE_FILTER": "redis://h", "BLOOMDUPE_STORE": None}),
        (0, {"BLOOMDUPE_FILTER": "redis://h", "BLOOMDUPE_STORE": "lmdb"}),
        (0, {"BLOOMDUPE_STORE": "redis://h"}),
    ],
)
def test_a_shared_filter_is_made_anew_where_a_store_is_shared_beside_it(
    layers: int, values: dict[str, Any]
) -> None:
    shared = read(**values).shared
    assert shared is not None
    assert layers == shared.rebuild_layers
    if not layers and "BLOOMDUPE_REBUILD_LAYERS" not in values:
        with pytest.raises(
            ConfigurationError, match="needs a filter and an exact store that are both shared"
        ):
            read(**values, BLOOMDUPE_REBUILD_EVERY="1h")
        return
    every = read(**values, BLOOMDUPE_REBUILD_EVERY="1h").shared
    assert every is not None
    assert 3600 == every.rebuild_every


def test_every_verdict_has_a_stat_and_no_stat_has_two_names() -> None:
    assert set(stats.VERDICTS) == set(Verdict)
    assert len(stats.ALL) == len(set(stats.ALL))
    assert all(name.startswith("bloomdupe/") for name in stats.ALL)
    constants = {value for name, value in vars(stats).items() if name.isupper() and isinstance(value, str)}
    prefixes = {stats.PREFIX, stats.ERROR, stats.RULE, stats.RECOVERED, stats.GATE, stats.GATE_LOOKUP}
    assert constants - prefixes <= set(stats.ALL)


def test_times_are_read_as_people_write_them() -> None:
    found = read(BLOOMDUPE_EXPIRE="1h", BLOOMDUPE_RESET=86_400)
    assert (3600, 86_400) == (found.expire, found.options.reset)
    assert (None, None) == (read(BLOOMDUPE_EXPIRE="none").expire, read(BLOOMDUPE_RESET=None).options.reset)


@pytest.mark.parametrize("name", ["BLOOMDUPE_EXPIRE", "BLOOMDUPE_RESET"])
def test_a_time_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(**{name: "soon"})
    expected = "None, or a length of time such as '30m', '1h', '7d', or a number of seconds, above 0"
    assert f"{name} = 'soon' is not valid; it takes {expected}" == str(caught.value)


@pytest.mark.parametrize("settings", [{}, {"BLOOMDUPE_FILTER": "redis://server"}])
def test_a_filter_alone_knows_no_times_and_says_what_to_do(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(BLOOMDUPE_EXPIRE="7d", BLOOMDUPE_STORE=None, **settings)
    assert str(caught.value) == (
        "BLOOMDUPE_EXPIRE = '7d' needs an exact store of this crawl's own, which keeps the time of each key: "
        "set BLOOMDUPE_STORE = 'lmdb' (in a directory of its own, nothing on a server), or BLOOMDUPE_RESET "
        "to forget everything from time to time"
    )
    assert read(BLOOMDUPE_RESET="7d", BLOOMDUPE_STORE=None).options.reset == 604_800


@pytest.mark.parametrize("store", ["lmdb", "memory"])
def test_a_store_knows_the_times(store: str) -> None:
    found = read(BLOOMDUPE_EXPIRE="7d", BLOOMDUPE_STORE=store)
    assert (604_800, True) == (found.expire, found.keeps_times)
