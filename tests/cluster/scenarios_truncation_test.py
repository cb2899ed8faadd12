"""Named scenarios 5.1 to 5.6 and 5.12 with real processes, signals and published clients: where a
log is cut, by whose word, and what a reader sees of it."""

from pathlib import Path

import pytest

from harness.clients.fetch_raw import FetchRefusedError, offset_at
from harness.clients.raw_socket import RawClient
from harness.processes.stage import TOPIC, staged
from tidelog.wire.errors import ErrorCode

pytestmark = pytest.mark.slow

A, B, C = range(3)
TEN = [b"%d" % number for number in range(10)]


def test_hw_truncation_loss(tmp_path: Path) -> None:
    """5.1, KIP-101: a restarted follower that leads at once has everything that was acknowledged,
    also what is above the high watermark it knows."""
    with staged(tmp_path, "min.insync.replicas=1", replicas=(B, A)) as stage:
        assert stage.sent(b"m0") == [0]
        stage.kill(A)
        stage.start(A)
        stage.until_isr(A, B)
        pid = stage.pid(B)
        stage.slow(B, A, 700)  # what B says of its high watermark dies with B
        assert stage.sent(b"m1") == [1]
        stage.die(pid)
        stage.until_led(A)
        assert (stage.log(A), stage.seen()) == ("0-1:0", "0-1:0")
        stage.slow(B, A, 0)
        assert stage.sent(b"m2") == [2]
        stage.start(B)
        stage.until_isr(A, B)
        assert stage.until_equal() == stage.seen() == "0-1:0 2-2:1"
        assert stage.read() == [b"m0", b"m1", b"m2"]
        assert stage.cuts(A) == stage.cuts(B) == []
        (leads,) = stage.events("leads", process="broker-0")
        assert leads.fields == {"leader_epoch": 1, "end": 2, "high_watermark": 1}


def test_fast_failover_divergence(tmp_path: Path) -> None:
    """5.3, KIP-279: two elections before a follower is back, of which it knows one."""
    configs = ("min.insync.replicas=1", "unclean.leader.election.enable=true")
    with staged(tmp_path, *configs, replicas=(A, B), idempotent=False) as stage:
        stage.sent(*TEN)
        stage.until_log(B, "0-9:0")
        stage.cut(A, B)
        stage.sent_to_leader(*TEN)
        assert stage.log(A) == "0-19:0"
        stage.kill(A)
        stage.until_led(B)
        stage.sent(*TEN[:5])
        assert (stage.log(B), stage.view().leader_epoch) == ("0-9:0 10-14:1", 1)
        stage.kill(B)
        stage.start(A)
        stage.until_led(A)
        epoch = stage.view().leader_epoch
        assert stage.sent(b"x", b"y") == [20, 21]
        stage.join(A, B)
        stage.start(B)
        stage.until_isr(A, B)
        wanted = f"0-19:0 20-21:{epoch}"
        assert (stage.until_equal(), stage.seen()) == (wanted, wanted)
        assert stage.cuts(B) == [(15, 10)]
        assert stage.view().lossy_elections == 1


def test_stale_epoch_fetch_counts_for_hw(tmp_path: Path) -> None:
    """5.4, KIP-320: what a follower holds of an old epoch vouches for nothing in the new one."""
    with staged(tmp_path, "min.insync.replicas=1") as stage:
        stage.sent(b"m0")
        stage.until_high(B, 1)
        stage.cut(A, B)
        stage.sent_to_leader(b"on A and C")
        stage.until_log(C, "0-1:0")
        stage.cut(B, C)
        stage.kill(A)
        stage.until_led(B)
        waits = stage.sending(b"m1")
        stage.until_log(B, "0-0:0 1-1:1")
        assert (stage.log(C), set(stage.view().isr)) == ("0-1:0", {B, C})
        assert stage.read() == [b"m0"]  # and no more: C's second record is another one
        assert waits.offset is None
        assert stage.fetched(B, epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert stage.fetched(B, epoch=2).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        stage.join(B, C)
        assert stage.until_said(waits) == [1]
        stage.until_log(C, "0-0:0 1-1:1")
        assert stage.cuts(C) == [(2, 1)]
        assert stage.seen() == "0-0:0 1-1:1"


def test_isr_expand_before_leso_and_lagging_hw_after_election(tmp_path: Path) -> None:
    """5.5 and 5.6, KAFKA-7128: a new leader whose high watermark is late shows no reader a step
    back, and takes nobody in who has reached no more than that high watermark."""
    with staged(tmp_path, "min.insync.replicas=2") as stage, stage.consumer() as reader:
        stage.sent(b"m0")
        stage.until_high(B, 1)
        stage.kill(C)
        stage.until_isr(A, B)
        pid = stage.pid(A)
        stage.slow(A, B, 700)  # what A says of its high watermark dies with A
        assert stage.sent(*TEN[1:5]) == [1, 2, 3, 4]
        assert len(reader.take(5)) == 5
        stage.die(pid)
        stage.slow(A, B, 0)
        stage.slow(B, C, 400)
        assert stage.until_led(B) == B
        assert stage.log(B) == "0-4:0"
        assert stage.fetched(B).high_watermark == 1
        with RawClient(stage.address(B)) as raw, pytest.raises(FetchRefusedError) as refused:
            offset_at(raw, TOPIC, -1)
        assert refused.value.code == ErrorCode.OFFSET_NOT_AVAILABLE
        stage.start(C)
        stage.until_isr(B, C)
        assert stage.log(C) == "0-4:0"
        stage.slow(B, C, 0)
        assert stage.sent(b"m5") == [5]
        assert [one.offset() for one in reader.take(1)] == [5]
        stage.until_high(C, 6)
        stage.kill(B)
        stage.until_led(C)
        assert stage.view().leader_epoch == 2
        assert stage.seen() == "0-4:0 5-5:1"


def test_paused_leader_returns(tmp_path: Path) -> None:
    """5.12: what a stopped leader held alone is cut when it wakes up; the producer, which never
    heard of any of it, has each record there once."""
    with staged(tmp_path, "min.insync.replicas=2") as stage:
        stage.sent(*[b"%d" % number for number in range(50)])
        stage.until_equal()
        stage.cut(A, C)
        unacked = [stage.sending(b"50"), stage.sending(b"51")]
        stage.until_log(B, "0-51:0")
        stage.cut(A, B)
        unacked.append(stage.sending(b"52"))
        stage.until_log(A, "0-52:0")
        assert stage.sent_to_leader(b"promised little") == [53]
        stage.pause(A)
        stage.until_led(B)
        assert stage.view().leader_epoch == 1
        stage.join(A, B)
        stage.join(A, C)
        assert stage.until_said(*unacked) == [50, 51, 52]
        assert stage.sent(b"53") == [53]
        stage.resume(A)
        stage.until_isr(A, B, C)
        assert stage.until_equal() == stage.seen() == "0-51:0 52-53:1"
        assert stage.cuts(A) == [(54, 52)]
        assert stage.read() == [b"%d" % number for number in range(54)]
