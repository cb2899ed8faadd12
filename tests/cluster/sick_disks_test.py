"""Disks of running brokers made sick by `chaos`: who resigns, who leads, what clients see, and that
a healed disk costs nothing."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.produce_raw import VERSION, batch_of, produce_request
from harness.clients.raw_socket import RawClient
from harness.processes.cluster import until
from harness.processes.stage import Stage, staged
from tidelog.tools.chaos.sick_disks import sick_disks
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k00_produce as k00
from tidelog.wire.messages import k35_describe_log_dirs as k35

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
    found = sick_disks(stage.cluster.runs[-1].run_id, lambda _broker: ())
    return sum(one.struck for one in found)


def heal(stage: Stage) -> None:
    assert stage.cluster.done("chaos", "heal", "--json").document["healed"]


def is_well(stage: Stage, kept: list[bytes]) -> None:
    """All in sync and equal; what was acknowledged is there, once, and in order."""
    stage.until_isr(A, B, C)
    stage.sent(b"in the end")
    stage.until_equal()
    assert stage.read() == [*kept, b"in the end"]
    assert stage.view().lossy_elections == 0
    assert stage.cluster.done("status", "--json").document["faults"] == []


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
    assert stage.cluster.done("status", "--json").document["faults"][0]["on"] == ["write", "fsync"]
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
    until(lambda: bool(stage.events("started_anew", process="broker-0")), "A begins anew")
    is_well(stage, values)


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


def test_disk_full_roll(stage: Stage) -> None:
    """And at a write, and at a checkpoint: a leader without room hands over at once to one that has
    some, the producer goes on, and with room again all is there, in order. Nobody is restarted."""
    kept: list[bytes] = []
    pids = [stage.pid(one) for one in (A, B, C)]

    def write(count: int) -> None:
        for _ in range(count):
            kept.append(b"%d " % len(kept) * 1_000)
            stage.sent(kept[-1])

    write(2)
    for epoch, point in enumerate(("roll", "write")):
        full = stage.until_led()
        sick(stage, "full-disk", full, "--at", point)
        filling = [b"full %d " % number * 280 for number in range(7)]
        stage.sent(*filling)
        kept += filling
        view = stage.view()
        assert struck(stage) > 0
        assert (view.leader_epoch, set(view.isr)) == (epoch + 1, {A, B, C} - {full})
        assert stage.events("no_room", process=f"broker-{full}", leader_epoch=epoch)
        assert stage.read() == kept
        heal(stage)
        stage.until_isr(A, B, C)
        stage.until_equal()
    assert [stage.pid(one) for one in (A, B, C)] == pids
    assert not stage.events("started_anew")
    assert [stage.cuts(one) for one in (A, B, C)] == [[], [], []]
    full = stage.until_led()
    sick(stage, "full-disk", full, "--at", "checkpoint")
    write(8)
    until(lambda: struck(stage) > 0, "full at a checkpoint")
    until(lambda: "disk_full" in stage.cluster.logs(), "which is told")
    stage.die(stage.pid(full))
    assert stage.until_led(*{A, B, C} - {full}) != full
    heal(stage)
    stage.start(full)
    is_well(stage, kept)


def test_where_no_disk_has_room_somebody_leads_on(stage: Stage) -> None:
    """Reads go on and records are refused; each gives up its leadership once at most."""
    stage.sent(b"before")
    pids = [stage.pid(one) for one in (A, B, C)]
    for one in (A, B, C):
        sick(stage, "full-disk", one, "--at", "write")
    waits = stage.sending(b"waits")
    until(lambda: stage.view().leader_epoch == 2, "each has tried")
    stage.until_isr(A, B, C)
    leader = stage.until_led()
    for _ in range(50):
        assert stage.code(leader, batch_of(b"refused"), acks=1) == (
            ErrorCode.KAFKA_STORAGE_ERROR,
            -1,
        )
    assert (waits.offset, waits.error) == (None, None)
    assert stage.read() == [b"before"]
    view = stage.view()
    assert (view.leader, view.leader_epoch) == (leader, 2)
    heal(stage)
    assert stage.until_said(waits) == [1]
    is_well(stage, [b"before", b"waits"])
    assert [stage.pid(one) for one in (A, B, C)] == pids


def test_a_disk_that_is_full_at_a_flush_has_lost_what_it_took(stage: Stage) -> None:
    """So it is an error like any other: the directory ends, and is not asked again."""
    stage.cluster.done("config", "set", "topic", "t", "flush.policy=commit")
    stage.sent(b"before")
    pid = stage.pid(A)
    sick(stage, "full-disk", A, "--at", "fsync")
    assert stage.sent(b"over a full disk") == [1]
    ends(pid)
    assert stage.until_led(B, C) in {B, C}
    heal(stage)
    stage.start(A)
    is_well(stage, [b"before", b"over a full disk"])


def test_a_follower_whose_disk_is_full_holds_nobody_up(tmp_path: Path) -> None:
    """Its broker tells that nothing is free, though the machine's disk has room for all others."""
    with staged(tmp_path, "min.insync.replicas=2", lag_ms=2_000) as stage:
        stage.sent(b"before")
        sick(stage, "full-disk", C)
        assert stage.sent(b"without it") == [1]
        assert set(stage.view().isr) == {A, B}
        until(lambda: "No space left on device" in stage.cluster.logs(), "C says why")
        assert free(stage, C) == 0 < free(stage, A)
        pid = stage.pid(C)
        heal(stage)
        is_well(stage, [b"before", b"without it"])
        assert stage.pid(C) == pid


def free(stage: Stage, broker: int) -> int:
    """As DescribeLogDirs tells."""
    with RawClient(stage.address(broker)) as raw:
        (row,) = raw.ask(k35.API, 4, k35.DescribeLogDirsRequest(topics=None)).results
    assert isinstance(row.usable_bytes, int)
    return row.usable_bytes


def test_a_follower_whose_disk_is_slow_leaves_in_time_and_comes_back(tmp_path: Path) -> None:
    """Under `commit` it answers for what it has flushed: nobody waits longer than it takes to leave
    it out, and nothing is acknowledged before that."""
    with staged(tmp_path, "min.insync.replicas=2", "flush.policy=commit", lag_ms=2_000) as stage:
        stage.sent(b"before")
        sick(stage, "slow-disk", C, "--fsync-delay", "20s", "--partition", "t:0", "--once")
        assert stage.sent(b"without it") == [1]
        assert set(stage.view().isr) == {A, B}
        assert stage.sent(b"nobody waits") == [2]
        heal(stage)
        is_well(stage, [b"before", b"without it", b"nobody waits"])


def test_a_leader_whose_disk_is_slow_answers_for_nothing_early(stage: Stage) -> None:
    """Nobody reads what it has not flushed, though the others have; each request ends in time."""
    stage.cluster.done("config", "set", "topic", "t", "flush.policy=commit")
    stage.sent(b"before")
    sick(stage, "slow-disk", A, "--fsync-delay", "60s", "--partition", "t:0", "--once")
    request = produce_request("t", batch_of(b"late"))
    request.timeout_ms = 500
    with RawClient(stage.address(A)) as client:
        row = client.ask(k00.API, VERSION, request).responses[0].partition_responses[0]
    assert (row.error_code, struck(stage)) == (ErrorCode.REQUEST_TIMED_OUT, 1)
    assert stage.fetched(A, 1).high_watermark == 1
    assert stage.view().leader == A
    heal(stage)
    stage.until_high(A, 2)
    is_well(stage, [b"before", b"late"])


def test_a_leader_whose_disk_stands_still_hands_over(stage: Stage) -> None:
    """Its loop waits in a write: it is taken for hung, another leads, and when it moves again it
    has nothing to say."""
    stage.sent(b"before")
    pid = stage.pid(A)
    sick(stage, "slow-disk", A, "--delay", "20s", "--partition", "t:0", "--file", "log", "--once")
    assert stage.sent(b"elsewhere") == [1]
    assert stage.view().leader in {B, C}
    heal(stage)
    is_well(stage, [b"before", b"elsewhere"])
    assert stage.pid(A) == pid
