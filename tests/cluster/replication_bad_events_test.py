"""Bad events between brokers, with real processes: a copy that is broken off, a ring
that its dead owner left torn, messages that were meant for an earlier life."""

import os
import signal
from pathlib import Path

import pytest
import zmq

from harness.disks.mounts import SHARED_MEMORY
from harness.processes.cluster import until
from harness.processes.stage import TOPIC, Stage, staged
from tidelog.kernel.ids import BrokerId, Offset
from tidelog.kernel.launch import broker_endpoint, ring_name
from tidelog.node.ipc.ring import DATA_AT
from tidelog.wire.replication import Ack, Head, encode

pytestmark = pytest.mark.slow

A, B, C = range(3)
TEN = [b"%d" % number for number in range(10)]
LARGE = bytes(200_000)
BACKLOG = 320
BETWEEN_WINDOWS_MS = 800
TORN_BYTES = 1 << 20


def test_a_follower_killed_and_stopped_in_mid_copy_of_a_backlog_has_all_of_it_in_the_end(
    tmp_path: Path,
) -> None:
    """Four windows of credit are needed; each breaking off comes after one of them."""
    with staged(tmp_path, "min.insync.replicas=2") as stage:
        stage.sent(*TEN)
        stage.kill(C)
        stage.until_isr(A, B)
        stage.sent(*[LARGE] * BACKLOG)
        for break_off in (stage.kill, stage.pause):
            stage.slow(A, C, BETWEEN_WINDOWS_MS)
            before = size(stage, C)
            stage.start(C)
            under_way = [stage.sending(value) for value in TEN]
            until_larger(stage, C, before)
            break_off(C)
            assert size(stage, C) < size(stage, A), "it had not ended"
            stage.until_said(*under_way)
        stage.slow(A, C, 0)
        stage.resume(C)
        stage.until_isr(A, B, C)
        assert stage.until_equal() == stage.seen() == f"0-{BACKLOG + 29}:0"
        assert stage.cuts(C) == []


def until_larger(stage: Stage, broker: int, before: int) -> None:
    until(lambda: size(stage, broker) > before, "it copies")


def size(stage: Stage, broker: int) -> int:
    folder = stage.folder(broker) / f"{TOPIC}-0"
    return sum(path.stat().st_size for path in folder.glob("*.log"))


def test_a_ring_that_its_dead_owner_left_torn_gives_nobody_a_bad_record(tmp_path: Path) -> None:
    """C was told where the batch lies, and looks there when it is not whole any more."""
    with staged(tmp_path, "min.insync.replicas=2") as stage:
        stage.sent(*TEN)
        stage.until_equal()
        leader, follower = stage.pid(A), stage.pid(C)
        life = stage.image().brokers[BrokerId(A)].incarnation
        name = ring_name(stage.cluster.runs[-1].run_id, BrokerId(A), life, 1)
        ring = SHARED_MEMORY / name.removeprefix("/")
        os.kill(follower, signal.SIGSTOP)
        stage.sent_to_leader(LARGE)
        stage.until_log(B, "0-10:0")
        with ring.open("r+b") as memory:
            stage.die(leader)
            memory.seek(DATA_AT)
            memory.write(bytes(TORN_BYTES))
        os.kill(follower, signal.SIGCONT)
        stage.until_led(B)
        stage.until_isr(B, C)
        stage.start(A)
        stage.until_isr(A, B, C)
        stage.sent(b"next")
        assert stage.read() == [*TEN, LARGE, b"next"]
        assert stage.until_equal() == "0-10:0 11-11:1"


def test_messages_for_an_earlier_life_mean_nothing_to_the_next(tmp_path: Path) -> None:
    """They are held on a slow link while B dies and is started again, and come to its next life
    before anything that is meant for it."""
    with staged(tmp_path, "min.insync.replicas=2") as stage:
        stage.sent(*TEN)
        stage.until_high(B, 10)
        old = stage.image().brokers[BrokerId(B)].incarnation
        stage.slow(A, B, 700)
        stage.sent_to_leader(*TEN)
        stage.kill(B)
        assert stage.log(B) == "0-9:0", "so they come to its next life"
        stage.start(B)
        stage.until_isr(A, B, C)
        stage.slow(A, B, 0)
        stage.sent(*TEN)
        assert stage.until_equal() == stage.seen() == "0-29:0"
        assert stage.cuts(B) == []
        stage.cut(A, B)
        waits = stage.sending(b"not on B")
        stage.until_log(C, "0-30:0")
        vouch(stage, Head(BrokerId(B), old, stage.image().brokers[BrokerId(A)].incarnation, 0))
        for _ in range(20):
            assert stage.fetched(A, 30).high_watermark == 30
        assert waits.offset is None
        stage.join(A, B)
        assert stage.until_said(waits) == [30]


def vouch(stage: Stage, head: Head) -> None:
    """Say to A, in the name of an earlier life of B, that it has everything."""
    with zmq.Context() as context, context.socket(zmq.PUSH) as push:
        push.connect(broker_endpoint(stage.cluster.runs[-1].runtime_dir, BrokerId(A)))
        acks = [(Ack(channel, Offset(1_000), Offset(0)), None) for channel in range(20)]
        for stream in range(20):
            said = Head(head.sender, head.incarnation, head.to, stream)
            push.send_multipart([bytes(part) for part in encode(said, acks)])
