"""A cluster's metrics: their names, and their values out of facts."""

import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_client.parser import text_string_to_metric_families

import tidelog.tools
from tidelog.kernel.ids import BrokerId, Epoch, Partition, Uuid
from tidelog.kernel.instant import Instant
from tidelog.node.ipc.layout import WORDS_PER_SLOT, Slot, Word
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.runtime.page_cache import KernelView
from tidelog.tools.cli import cli
from tidelog.tools.disk_view import Broker, Flush, Replica, Segment
from tidelog.tools.metrics_rows import COUNTER, Facts, all_metrics, families, rows
from tidelog.tools.metrics_text import serve, text_of
from tidelog.wire.metadata_records import PartitionCreated, PartitionView, TopicCreated

TOPIC_ID = Uuid(bytes(range(16)))
NOW_NS, NOW_MS = 5_000_000_000, 10_000

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


def slot(*words: tuple[Word, int], heartbeat: int = NOW_NS) -> Slot:
    values = [0] * WORDS_PER_SLOT
    for word, value in words:
        values[word] = value
    return Slot(Instant(heartbeat), tuple(values))


def image() -> MetadataImage:
    made = MetadataImage()
    made.replay(TopicCreated(TOPIC_ID, 'odd"name'))
    both = (BrokerId(0), BrokerId(1))
    view = PartitionView(replicas=both, isr=both[:1], leader=BrokerId(0), leader_epoch=Epoch(3))
    made.replay(PartitionCreated(TOPIC_ID, Partition(0), view))
    return made


def facts(**given: object) -> Facts:
    flush = Flush(age_ms=1_500.0, took_ms=0.7)
    segments = (
        Segment("0.log", size=100, cached=40, dirty=0, stable=100, last_flush=flush),
        Segment("9.log", size=50, cached=50, dirty=30, stable=20),
    )
    one = Replica('odd"name', 0, "/log0", "commit", segments, 11, oldest_at_ms=4_000)
    brokers = (Broker(0, "running", "os", (one,), flush), Broker(1, "stopped", "os", ()))
    words = ((Word.LEADERS, 7), (Word.PRODUCE_BYTES, 123), (Word.HELD, 9))
    made: dict[str, object] = {
        "brokers": brokers,
        "slots": {0: slot(*words, heartbeat=NOW_NS - 250_000_000)},
        "coordinator": slot((Word.UNDER_REPLICATED, 2), (Word.CONTROLLER_EPOCH, 4)),
        "transactions": slot((Word.TRANSACTIONS_COMMITTED, 5)),
        "image": image(),
        "kernel": KernelView({"dirty_ratio": 20}, 4096, None),
        "now_ms": NOW_MS,
        "now_ns": NOW_NS,
    }
    return Facts(**{**made, **given})  # type: ignore[arg-type] # a test names what it changes


def parsed(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def told(name: str, samples: Samples, **labels: str) -> float | None:
    return samples.get((f"tidelog_{name}", frozenset(labels.items())))


def test_names_are_prometheus_and_each_is_there_once() -> None:
    found = all_metrics()
    assert Counter(one.name for one in found).most_common(1)[0][1] == 1
    for one in found:
        assert re.fullmatch(r"tidelog_[a-z_]+", one.name)
        assert one.name.endswith("_total") == (one.kind == COUNTER)
        assert not re.search(r"_(ms|ns|kb|mb)(_|$)", one.name), "base units only"
        assert one.help.endswith(".")
        assert set(one.labels) <= {"broker", "topic", "partition", "policy", "setting"}


def test_every_metric_that_is_told_is_on_the_list() -> None:
    listed = all_metrics()
    told_of = [one.metric for one in families(facts())]
    assert [one for one in listed if one in told_of] == told_of, "in its order, too"
    assert len(listed) - len(told_of) == 1, "the one word that the kernel does not say"


def test_values_are_what_was_seen_in_base_units() -> None:
    samples = parsed(text_of(families(facts())))
    place = {"broker": "0", "topic": 'odd"name', "partition": "0"}
    assert told("log_size_bytes", samples, **place) == 150
    assert told("log_cached_bytes", samples, **place) == 90
    assert told("log_dirty_bytes", samples, **place) == 30
    assert told("log_unflushed_bytes", samples, **place) == 30
    assert told("log_durable_offset", samples, **place) == 11
    assert told("log_durable_offset_exact", samples, **place) == 1
    assert told("log_oldest_unflushed_age_seconds", samples, **place) == 6.0
    assert told("log_last_flush_age_seconds", samples, **place) == 1.5
    assert told("log_last_flush_duration_seconds", samples, **place) == 0.0007
    assert told("log_flush_policy_info", samples, **place, policy="commit") == 1
    assert told("broker_last_flush_age_seconds", samples, broker="0") == 1.5
    assert told("broker_heartbeat_age_seconds", samples, broker="0") == 0.25
    assert told("broker_leaders", samples, broker="0") == 7
    assert told("broker_produced_bytes_total", samples, broker="0") == 123
    assert told("broker_cache_held_bytes", samples, broker="0") == 9
    assert told("under_replicated_partitions", samples) == 2
    assert told("controller_epoch", samples) == 4
    assert told("transactions_committed_total", samples) == 5
    assert told("machine_dirty_bytes", samples) == 4096
    assert told("machine_vm_setting", samples, setting="dirty_ratio") == 20


def test_a_partition_says_who_leads_it_and_how_many_are_in_sync() -> None:
    samples = parsed(text_of(families(facts())))
    place = {"topic": 'odd"name', "partition": "0"}
    assert told("partition_leader", samples, **place) == 0
    assert told("partition_leader_epoch", samples, **place) == 3
    assert told("partition_replicas", samples, **place) == 2
    assert told("partition_in_sync_replicas", samples, **place) == 1
    assert told("partition_lossy_elections_total", samples, **place) == 0


def test_of_a_broker_that_is_down_its_files_are_told_and_no_counter() -> None:
    samples = parsed(text_of(families(facts(slots={}, coordinator=None, transactions=None))))
    assert told("broker_up", samples, broker="0") == 1
    assert told("broker_up", samples, broker="1") == 0
    assert told("broker_leaders", samples, broker="0") is None
    assert told("controller_epoch", samples) is None


def test_what_is_not_known_has_no_sample() -> None:
    unknown = Segment("0.log", size=7, cached=None, dirty=None, stable=None)
    one = Replica("t", 0, "/log0", "os", (unknown,))
    samples = parsed(text_of(families(facts(brokers=(Broker(0, "running", "os", (one,)),)))))
    place = {"broker": "0", "topic": "t", "partition": "0"}
    assert told("log_size_bytes", samples, **place) == 7
    for name in ("cached_bytes", "dirty_bytes", "unflushed_bytes", "durable_offset"):
        assert told(f"log_{name}", samples, **place) is None


def test_json_has_the_same_samples() -> None:
    found = families(facts())
    from_json = {
        (str(row["name"]), frozenset(sample["labels"].items())): sample["value"]
        for row in rows(found)
        for sample in row["samples"]  # type: ignore[attr-defined] # as JSON
    }
    assert from_json == parsed(text_of(found))


def test_a_port_that_is_taken_is_told() -> None:
    port, end = serve(list, 0)
    try:
        with pytest.raises(OSError, match="in use"):
            serve(list, port)
    finally:
        end()


def test_without_the_extra_a_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "cluster.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "tidelog.tools.metrics_text")
    monkeypatch.delattr(tidelog.tools, "metrics_text")
    for words in ([], ["--port", "0"]):
        result = CliRunner().invoke(cli, ["metrics", *words, "--data", str(tmp_path)])
        assert result.exit_code == 1, result.output
        assert "install tidelog[metrics]" in result.output
    done = CliRunner().invoke(cli, ["metrics", "--json", "--data", str(tmp_path)])
    assert done.exit_code == 0
