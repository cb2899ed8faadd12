"""Flush policies of running brokers: changed under load, on slow disks and on broken ones."""

import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Self

import pytest

from harness.clients.fetch_raw import offset_at
from harness.clients.produce_raw import VERSION, batch_of, produce_request
from harness.clients.raw_socket import RawClient
from harness.disks.traced import need_strace
from harness.faults.chaos import BROKERS, Load, wrong_in_the_end
from harness.processes.cluster import Cluster, until
from harness.processes.stage import staged
from tidelog.kernel.launch import board_name
from tidelog.node.ipc.board import Board
from tidelog.node.ipc.layout import Role, Word, slot_of
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k00_produce

pytestmark = pytest.mark.slow

TOPIC, PARTITIONS = "t", 3
LATEST = -1
DELAY_S = 2
"""Less than the producer's patience (5 s), also on a machine that has other things to do."""


def flushes(cluster: Cluster) -> list[int]:
    """Rounds of each broker since its start, as the board shows them."""
    board = Board.open(board_name(cluster.runs[-1].run_id))
    try:
        slots = [board.read_slot(slot_of(Role.BROKER, one)) for one in range(cluster.brokers)]
        return [slot[Word.FLUSHES] if slot is not None else 0 for slot in slots]
    finally:
        board.close()


class Watermarks:
    """Asks for high watermarks all the time: none may go back."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.seen = [0] * PARTITIONS
        self.wrong: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _run(self) -> None:
        while not self._stop.is_set():
            rows = self._cluster.done("topic", "offsets", TOPIC, "--json").document
            for row in rows["topics"][0]["partitions"]:
                partition, end = row["partition"], row["latest"]
                if end < self.seen[partition]:
                    self.wrong.append(f"{partition}: {end} after {self.seen[partition]}")
                self.seen[partition] = end


def test_os_to_commit_to_os_under_load(tmp_path: Path) -> None:
    """By topic and by broker, while producers write: nothing acknowledged is lost, twice or moved,
    and no high watermark goes back."""
    with Cluster(tmp_path, brokers=BROKERS, settings={"min.insync.replicas": "2"}) as cluster:
        cluster.done("topic", "create", TOPIC, "-p", str(PARTITIONS), "-r", str(BROKERS))
        loads = [Load(cluster.bootstrap, TOPIC, PARTITIONS, f"load{n}") for n in range(2)]
        with Watermarks(cluster) as waters, loads[0], loads[1]:
            loads[0].wait_for_more(50)
            assert flushes(cluster) == [0] * BROKERS
            for *where, shown in (("topic", TOPIC, "os"), ("broker", "all", "commit")):
                before = flushes(cluster)
                cluster.done("config", "set", *where, "flush.policy=commit")
                for load in loads:
                    load.wait_for_more(100)
                until(partial(_all_flush, cluster, before), "every broker flushes")
                rows = [cluster.process("broker", one) for one in range(BROKERS)]
                assert {row["flush_policy"] for row in rows} == {shown}
                cluster.done("config", "set", *where, "flush.policy=os")
                until(lambda: _rests(cluster), "nobody flushes any more")
                for load in loads:
                    load.wait_for_more(100)
                cluster.done("config", "unset", *where, "flush.policy")
        assert waters.wrong == []
        assert all(waters.seen)
        until(lambda: not _is_behind(cluster), "all replicas have all of it")
        assert wrong_in_the_end(cluster, TOPIC, PARTITIONS, loads) == []


def _all_flush(cluster: Cluster, before: list[int]) -> bool:
    return all(now > was + 10 for was, now in zip(before, flushes(cluster), strict=True))


def _rests(cluster: Cluster) -> bool:
    """A broker publishes once a second."""
    before = flushes(cluster)
    time.sleep(1.2)
    return flushes(cluster) == before


def _is_behind(cluster: Cluster) -> bool:
    return bool(cluster.status()["under_replicated"])


@contextmanager
def injected(pid: int, folder: Path, what: str) -> Iterator[None]:
    """Flushes of this process take long, or fail. Its main thread is left alone: traced, it might
    be taken for hung."""
    threads = [one.name for one in Path(f"/proc/{pid}/task").iterdir() if one.name != str(pid)]
    calls = "fsync,fdatasync"
    words = ["-qq", "-e", f"trace={calls}", "-e", f"inject={calls}:{what}"]
    words += ["-o", str(folder / "strace"), *(f"-p{one}" for one in threads)]
    statuses = [Path(f"/proc/{pid}/task/{one}/status") for one in threads]
    with subprocess.Popen(["strace", *words], stderr=subprocess.DEVNULL) as strace:
        tracer = f"TracerPid:\t{strace.pid}\n"
        until(lambda: all(tracer in one.read_text() for one in statuses), "strace attaches")
        try:
            yield
        finally:
            strace.send_signal(signal.SIGINT)


def _is_answered(client: RawClient) -> bool:
    with selectors.DefaultSelector() as selector:
        selector.register(client.sock, selectors.EVENT_READ)
        return bool(selector.select(0))


def test_a_disk_that_takes_seconds_holds_up_who_waits_for_it_and_nobody_else(
    fresh_cluster: Cluster, tmp_path: Path
) -> None:
    """The broker's loop goes on: while one client waits for its flush, others are answered."""
    need_strace(tmp_path)
    cluster = fresh_cluster
    slow = cluster.create_topic(configs={"flush.policy": "commit"})
    quick = cluster.create_topic()
    with RawClient(cluster.bootstrap) as waiting, RawClient(cluster.bootstrap) as other:
        for client, topic in ((waiting, slow), (other, quick)):
            client.ask(k00_produce.API, VERSION, produce_request(topic, batch_of(b"first")))
        with injected(cluster.broker_pid(0), tmp_path, f"delay_enter={DELAY_S * 1_000_000}"):
            waiting.start(k00_produce.API, VERSION, produce_request(slow, batch_of(b"waits")))
            served = 0
            ends: list[int] = []
            while not _is_answered(waiting):
                request = produce_request(quick, batch_of(b"%d" % served))
                row = other.ask(k00_produce.API, VERSION, request).responses[0]
                assert row.partition_responses[0].error_code == 0
                ends.append(offset_at(other, slow, LATEST))
                served += 1
            # As many as there were while the loop waited: none, or the one that came before.
            assert served > 2
            assert set(ends[:-1]) == {1}, "what nobody vouches for is not to be read"
            _, answer = decode_response(
                k00_produce.API, VERSION, memoryview(waiting.receive_frame())
            )
            (row,) = answer.responses
            assert row.partition_responses[0].error_code == 0
        assert offset_at(other, slow, LATEST) == 2


def test_nothing_is_acknowledged_over_a_flush_that_failed(tmp_path: Path) -> None:
    """The leader's disk breaks under `commit`: it ends without a second try, another leads, and
    the record is acknowledged once, by those who have it on their disks."""
    need_strace(tmp_path)
    with staged(tmp_path, "min.insync.replicas=2", "flush.policy=commit") as stage:
        stage.sent(b"before")
        pid = stage.pid(0)
        with injected(pid, tmp_path, "error=EIO"):
            stage.sent(b"over a broken disk")
            until(lambda: not Path(f"/proc/{pid}").exists(), "it ended")
        assert stage.until_led(1, 2) in {1, 2}
        assert "disk_failed" in stage.cluster.logs()
        stage.start(0)  # on another disk, so to say
        stage.until_isr(0, 1, 2)
        stage.until_equal()
        assert stage.read() == [b"before", b"over a broken disk"]
        assert stage.view().lossy_elections == 0
