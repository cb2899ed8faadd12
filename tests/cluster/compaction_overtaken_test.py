"""A pass of compaction whose log is cut meanwhile: nobody writes for it while it is discarded."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from harness.logs.batches import flush
from harness.logs.compaction import append
from harness.machines.brokers import START_MS, HandlerBench
from tidelog.kernel.ids import Offset, Partition, TopicPartition
from tidelog.node.log.log import Log
from tidelog.node.runtime.cleaner_thread import CleanerParts, CleanerThread
from tidelog.node.runtime.disk import DiskDirectory
from tidelog.node.runtime.flusher import Flusher
from tidelog.node.runtime.healthy import Healthy
from tidelog.node.runtime.unrecorded import Unrecorded

pytestmark = pytest.mark.slow

KEY: TopicPartition = ("t", Partition(0))
SETTINGS = {
    "log.cleaner.enable": True,
    "log.cleaner.backoff.ms": 1,
    "log.cleaner.dedupe.buffer.size": 1 << 27,
    "log.cleaner.io.max.bytes.per.second": 1e9,
}


def fail(error: OSError) -> None:
    raise error


def unreadable(log: Log, error: Exception) -> None:
    raise AssertionError(log.name) from error


def children() -> list[str]:
    """The processes that this one has started and not collected yet."""
    found: list[str] = []
    for task in Path("/proc/self/task").iterdir():
        found += (task / "children").read_text(encoding="ascii").split()
    return found


class Words:
    """The log of events: it tells when one of a name comes."""

    def __init__(self, awaited: str, come: "asyncio.Future[None]") -> None:
        self._awaited = awaited
        self._come = come

    def __getattr__(self, _level: str) -> Any:
        def said(event: str, **_fields: object) -> None:
            if event == self._awaited:
                self._come.set_result(None)

        return said


def log_of_segments(bench: HandlerBench) -> Log:
    bench.topic("t", cleanup_policy="compact", min_cleanable_dirty_ratio="0.0")
    replica = bench.broker.replicas.get(KEY)
    assert replica is not None
    log = replica.log
    for _ in range(3):
        append(log, [(b"a", b"1"), (b"b", b"1")], timestamp=START_MS)
        log.roll(START_MS)
    flush(log)
    assert replica.leader is not None
    replica.leader.high_watermark = Offset(log.end)
    return log


def test_the_worker_of_an_overtaken_pass_is_dead_before_its_files_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that goes on may leave an index under a name that a start takes for the old segment's."""
    bench = HandlerBench(tmp_path)
    log = log_of_segments(bench)
    others = set(children())
    living: list[set[str]] = []
    names = DiskDirectory.names

    def seen_names(directory: DiskDirectory) -> list[str]:
        if threading.current_thread().name == "cleaner" and directory.path.endswith("t-0"):
            living.append(set(children()) - others)
        return names(directory)

    async def cut() -> None:
        log.truncate_to(2)

    async def run() -> None:
        loop = asyncio.get_running_loop()

        def wall_ms() -> int:
            """The thread asks for it when the worker has made a segment: then the log is cut."""
            if threading.current_thread().name == "cleaner":
                asyncio.run_coroutine_threadsafe(cut(), loop).result(10)
            return START_MS

        overtaken: asyncio.Future[None] = loop.create_future()
        parts = CleanerParts(
            loop=loop,
            logs=bench.logs.all[0],
            share=1.0,
            replicas=bench.broker.replicas,
            settings=SETTINGS,
            flusher=Flusher(loop, bench.logs.all[0], fail, fail, unreadable),
            wall_ms=wall_ms,
            log=Words("compaction_overtaken", overtaken),  # type: ignore[arg-type] # tells of it
            on_disk_failed=fail,
            on_refused=fail,
            on_unreadable=unreadable,
            ledger=Unrecorded(),
            faults=Healthy(),
            begins_later=lambda _key: None,
        )
        thread = CleanerThread(parts)
        monkeypatch.setattr(DiskDirectory, "names", seen_names)
        thread.turn(START_MS)
        await asyncio.wait_for(overtaken, 30)
        thread.close()

    asyncio.run(run())
    monkeypatch.undo()
    assert living, "its files were removed"
    assert not any(living)
    left = [path.name for path in tmp_path.glob("t-0/*") if path.suffix in {".cleaned", ".swap"}]
    assert left == []
