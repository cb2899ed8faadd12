"""Disks of running brokers made sick by `chaos`: who resigns, who leads, what clients see, and that
a healed disk costs nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.cluster import until
from harness.stage import Stage, staged

pytestmark = pytest.mark.slow

A, B, C = range(3)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with staged(tmp_path, "min.insync.replicas=2", "segment.bytes=16384") as made:
        yield made


def sick(stage: Stage, ailment: str, broker: int, *words: str) -> None:
    stage.cluster.done("chaos", ailment, str(broker), *words)


def struck(stage: Stage) -> int:
    """By all faults together."""
    rows: list[dict[str, Any]] = stage.cluster.done("chaos", "status", "--json").document["faults"]
    return sum(row["struck"] for row in rows)


def heal(stage: Stage) -> None:
    assert stage.cluster.done("chaos", "heal", "--json").document["healed"]


def is_well(stage: Stage, kept: list[bytes]) -> None:
    """All in sync and equal; what was acknowledged is there, once, and in order."""
    stage.until_isr(A, B, C)
    stage.sent(b"in the end")
    stage.until_equal()
    assert stage.read() == [*kept, b"in the end"]
    assert stage.view().lossy_elections == 0
    assert stage.cluster.status()["faults"] == []


def ends(pid: int) -> None:
    until(lambda: not Path(f"/proc/{pid}").exists(), "the broker ended")


def test_a_flush_that_fails_once_ends_the_leader(stage: Stage) -> None:
    """The first flush that fails ends the directory, and with it the broker that has no other:
    nothing is tried again, nothing is acknowledged over it, and others lead."""
    stage.cluster.done("config", "set", "topic", "t", "flush.policy=commit")
    stage.sent(b"before")
    pid = stage.pid(A)
    sick(stage, "io-error", A, "--on", "fsync", "--once")
    assert stage.sent(b"over a broken disk") == [1]
    ends(pid)
    assert stage.until_led(B, C) in {B, C}
    assert struck(stage) == 1, "it was tried again"
    assert "log_directory_failed" in stage.cluster.logs()
    heal(stage)
    stage.start(A)
    is_well(stage, [b"before", b"over a broken disk"])


def test_a_write_that_fails_ends_the_leader(stage: Stage) -> None:
    """A write fails, and so does the next one that tells whether anything can be written there."""
    stage.sent(b"before")
    pid = stage.pid(A)
    sick(stage, "io-error", A, "--on", "write", "--on", "fsync")
    assert stage.cluster.status()["faults"][0]["on"] == ["write", "fsync"]
    (row,) = stage.cluster.done("disk", "--broker", str(A), "--json").document["brokers"]
    assert row["faults"][0]["fault"] == "io-error"
    assert stage.sent(b"elsewhere") == [1]
    ends(pid)
    assert stage.until_led(B, C) in {B, C}
    why = stage.cluster.done("why", "broker", str(A), "--json").document
    assert [one["code"] for one in why["reasons"]][:2] == ["broker-away", "sick-disk"]
    heal(stage)
    stage.start(A)
    is_well(stage, [b"before", b"elsewhere"])


def test_a_leader_that_cannot_read_sends_nothing_out_of_memory_either(stage: Stage) -> None:
    """A consumer whose records are in the page cache, so that no byte of them is touched, meets the
    disk all the same; it gets them from the next leader, and others' partitions do not notice."""
    values = [b"number %d" % number for number in range(50)]
    stage.sent(*values)
    stage.until_equal()
    pid = stage.pid(A)
    sick(stage, "io-error", A, "--on", "read", "--partition", "t:0", "--file", "log")
    with stage.consumer() as reader:
        assert [one.value() for one in reader.take(50)] == values
    assert struck(stage) > 0
    assert stage.until_led(B, C) in {B, C}
    assert stage.pid(A) == pid
    heal(stage)
    is_well(stage, values)
    assert stage.events("started_anew", process="broker-0")


def test_a_leader_that_cannot_read_is_not_caught_up_from(stage: Stage) -> None:
    """A follower that was away asks the leader for old batches, which it cannot read: it resigns,
    and both get what they lack from the next."""
    stage.sent(b"all three")
    stage.kill(C)
    stage.until_isr(A, B)
    values = [b"%d " % number * 500 for number in range(20)]
    for value in values:
        stage.sent(value)
    sick(stage, "io-error", A, "--on", "read", "--partition", "t:0", "--file", "log")
    stage.start(C)
    stage.until_led(B)
    assert struck(stage) > 0
    heal(stage)
    is_well(stage, [b"all three", *values])
