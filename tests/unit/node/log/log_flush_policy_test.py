"""What the settings on flushing come to, and which of them are refused."""

import pytest

from harness.simulation.cluster import A, SimulatedCluster
from tidelog.kernel.config import SettingError, Table
from tidelog.kernel.instant import Instant, ms
from tidelog.node.log.dirty import Dirty
from tidelog.node.log.flush_policy import LONG_MAX, OS, FlushRules, word_of
from tidelog.node.log_settings import log_settings
from tidelog.node.settings import BROKER, TOPIC

AFTER, MEANWHILE = "what came after the last flush: ", ", and what came while that was under way"


def rules(topic: dict[str, str], broker: dict[str, str] | None = None) -> FlushRules:
    return log_settings(topic, broker or {}).flush


def test_unless_told_otherwise_the_kernel_decides() -> None:
    assert rules({}) is OS
    assert OS.word == "os"


@pytest.mark.parametrize(
    ("topic", "window"),
    [
        ({}, "all that the kernel had not written back"),
        ({"flush.policy": "commit"}, "nothing that was acknowledged"),
        (
            {"flush.policy": "bytes+messages", "flush.messages": "7"},
            f"{AFTER}7 records or 500 bytes{MEANWHILE}",
        ),
        (
            {"flush.policy": "interval", "flush.ms": "5"},
            f"{AFTER}5 ms{MEANWHILE}",
        ),
    ],
)
def test_what_a_power_loss_may_take_is_said_in_words(topic: dict[str, str], window: str) -> None:
    assert rules(topic, {"flush.bytes": "500"}).window == window


@pytest.mark.parametrize(
    ("topic", "broker", "word"),
    [
        ({}, {"flush.policy": "commit"}, "commit"),
        ({"flush.policy": "os"}, {"flush.policy": "commit"}, "os"),
        ({"flush.policy": "commit"}, {"flush.policy": "os"}, "commit"),
        ({"flush.policy": "interval+messages"}, {}, "os"),
        ({"flush.policy": "interval", "flush.ms": "5", "flush.messages": "5"}, {}, "interval"),
        ({"flush.policy": "bytes"}, {"flush.bytes": "100"}, "bytes"),
        (
            {"flush.policy": "messages+interval+bytes"},
            {"log.flush.interval.messages": "10", "log.flush.interval.ms": "20"},
            "messages+interval+bytes",
        ),
    ],
)
def test_a_topics_policy_wins_and_names_the_limits_that_count(
    topic: dict[str, str], broker: dict[str, str], word: str
) -> None:
    assert rules(topic, broker).word == word


@pytest.mark.parametrize(
    ("topic", "broker", "word"),
    [
        ({"flush.messages": "10"}, {}, "messages"),
        ({"flush.ms": "10"}, {}, "interval"),
        (
            {},
            {"log.flush.interval.messages": "5", "log.flush.scheduler.interval.ms": "5"},
            "messages+interval",
        ),
        ({"flush.messages": "1"}, {}, "commit"),
        ({"flush.messages": "1", "flush.policy": "messages"}, {}, "commit"),
        ({"flush.messages": "1", "flush.policy": "os"}, {}, "os"),
    ],
)
def test_without_a_policy_kafkas_settings_mean_what_they_mean_in_kafka(
    topic: dict[str, str], broker: dict[str, str], word: str
) -> None:
    assert rules(topic, broker).word == word


@pytest.mark.parametrize("words", ["os", "commit", "messages", "interval+bytes"])
def test_a_policy_is_told_as_a_number(words: str) -> None:
    given = {"flush.policy": words, "flush.messages": "9", "flush.ms": "9"}
    assert word_of(rules(given).code) == words
    assert word_of(0) == ""


@pytest.mark.parametrize(
    "text", ["", "none", "os+commit", "commit+bytes", "bytes+bytes", "bytes,ms"]
)
@pytest.mark.parametrize("table", [TOPIC, BROKER])
def test_what_is_no_policy_is_refused(table: Table, text: str) -> None:
    with pytest.raises(SettingError, match="must be os or commit, or messages, interval, bytes"):
        table.check("flush.policy", text)


def test_internal_topics_follow_the_cluster() -> None:
    cluster = SimulatedCluster(settings={"flush.policy": "commit"})
    cluster.create("__consumer_offsets")
    cluster.create("t", flush_policy="os")
    assert cluster.replica(A, "__consumer_offsets").by_flush
    assert not cluster.replica(A).by_flush


def asked(rules: FlushRules, *batches: tuple[int, int]) -> list[Instant]:
    """When a log under these rules wanted to be flushed: batches come at a millisecond each, so
    many records of so many bytes."""
    wanted: list[Instant] = []
    dirty, end = Dirty(wanted.append), 0
    for at, (records, size) in enumerate(batches):
        end += records
        dirty.grew(Instant(ms(at)), size, end, rules)
    return wanted


def test_each_limit_asks_once_when_it_is_reached() -> None:
    batches = [(2, 100)] * 6
    assert asked(OS, *batches) == []
    assert asked(FlushRules(commit=True), *batches) == [ms(0)]
    assert asked(FlushRules(messages=5), *batches) == [ms(2)]
    assert asked(FlushRules(bytes=350), *batches) == [ms(3)]
    assert asked(FlushRules(interval_ms=50), *batches) == [ms(50)]
    assert asked(FlushRules(interval_ms=50, messages=5), *batches) == [ms(50), ms(2)]
    assert asked(FlushRules(messages=LONG_MAX - 1), *batches) == []


def test_during_a_round_nobody_is_asked_and_afterwards_at_once() -> None:
    wanted: list[Instant] = []
    dirty, rules = Dirty(wanted.append), FlushRules(commit=True)
    dirty.grew(Instant(1), 10, 1, rules)
    dirty.begins(1)
    dirty.in_round = True
    dirty.grew(Instant(2), 10, 2, rules)
    assert wanted == [1]
    dirty.in_round = False
    dirty.look(Instant(3), 2, rules)
    dirty.look(Instant(4), 2, rules)
    assert wanted == [1, 3]
