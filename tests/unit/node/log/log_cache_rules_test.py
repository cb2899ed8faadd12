"""What the settings of the page cache come to."""

import pytest

from tidelog.kernel.limits import MIB
from tidelog.node.cache_settings import CACHE_ROWS
from tidelog.node.changing import DYNAMIC
from tidelog.node.log.cache_rules import CACHE_BYTES_DEFAULT, KERNEL, CacheRules
from tidelog.node.log.settings import LogSettings
from tidelog.node.log_settings import log_settings
from tidelog.node.settings import BROKER, TOPIC

NAMES = [row.name for row in CACHE_ROWS]


def rules(topic: dict[str, str] | None = None, broker: dict[str, str] | None = None) -> CacheRules:
    return log_settings(topic or {}, broker or {}).cache


def test_all_is_left_to_the_kernel_unless_somebody_says_otherwise() -> None:
    assert rules() is KERNEL
    assert rules({"cache.keep": "all"}, {"cache.read": "sendfile"}) is KERNEL
    assert LogSettings().cache is KERNEL
    assert not KERNEL.is_bounded
    assert not KERNEL.writes_back
    assert not KERNEL.drops_behind


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("cache.keep", "tail", CacheRules(keep="tail")),
        ("cache.read", "mmap", CacheRules(read="mmap")),
        ("cache.read.behind", "drop", CacheRules(behind="drop")),
        ("cache.readahead", "random", CacheRules(ahead="random")),
        ("cache.writeback.bytes", str(MIB), CacheRules(writeback_bytes=MIB)),
    ],
)
def test_a_topic_wins_over_its_broker(name: str, value: str, said: CacheRules) -> None:
    assert rules({}, {name: value}) == said
    default = TOPIC.rows[name].default
    assert rules({name: default}, {name: value}) is KERNEL
    assert rules({name: value}, {name: default}) == said


def test_a_bound_of_its_own_is_not_the_brokers() -> None:
    shared = rules({"cache.keep": "tail"}, {"cache.max.bytes": str(MIB)})
    assert (shared.bound, shared.own_bound) == (MIB, False)
    own = rules({"cache.keep": "tail", "cache.max.bytes": "5"}, {"cache.max.bytes": str(MIB)})
    assert (own.bound, own.own_bound) == (5, True)
    assert rules({"cache.keep": "tail"}).bound == CACHE_BYTES_DEFAULT


@pytest.mark.parametrize(
    ("made", "step"),
    [
        (CacheRules(keep="tail", max_bytes=80 * MIB), 10 * MIB),
        (CacheRules(keep="tail", max_bytes=80 * MIB, writeback_bytes=2 * MIB), 2 * MIB),
        (CacheRules(keep="none"), MIB),
        (CacheRules(writeback_bytes=5 * MIB), 5 * MIB),
    ],
)
def test_what_cannot_stay_is_given_to_the_disk_early(made: CacheRules, step: int) -> None:
    assert made.writes_back
    assert made.step == step


def test_none_keeps_nothing_whatever_the_bound_is() -> None:
    assert rules({"cache.keep": "none", "cache.max.bytes": str(MIB)}).bound == 0


@pytest.mark.parametrize("name", NAMES)
def test_each_is_a_brokers_and_a_topics_and_may_change_while_they_run(name: str) -> None:
    assert name in TOPIC.rows
    assert name in BROKER.rows
    assert name in DYNAMIC


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("cache.keep", "some"),
        ("cache.read", "read"),
        ("cache.read.behind", "forget"),
        ("cache.readahead", "much"),
        ("cache.max.bytes", "-1"),
        ("cache.writeback.bytes", "4096"),
    ],
)
def test_what_means_nothing_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name):
        TOPIC.check(name, value)
