"""Checkpoints that somebody waits for."""

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from harness.logs.batches import TOPIC_ID, batch, open_logs, produce
from tidelog.kernel.ids import Partition
from tidelog.node.log.directory import Checkpoint
from tidelog.node.log.flush_policy import OS, FlushRules
from tidelog.node.log.log import Log
from tidelog.node.log.settings import LogSettings
from tidelog.node.runtime import flusher as flusher_module
from tidelog.node.runtime.disk import DiskDirectory, open_disk
from tidelog.node.runtime.flusher import Flusher
from tidelog.wire import checkpoints

Started = Callable[[Flusher, Log], Awaitable[None]]


def kept_start(folder: Path) -> int:
    content = (folder / checkpoints.LOG_STARTS).read_bytes()
    return checkpoints.decode_offsets(content, place="start")["t", Partition(0)]


def fail(error: OSError) -> None:
    raise error


def unreadable(log: Log, error: Exception) -> None:
    raise AssertionError(log.name) from error


def with_flusher(folder: Path, started: Started) -> None:
    """Run a test with one log of ten records and the flusher of its directory."""

    async def run() -> None:
        logs = open_logs(open_disk(str(folder)), settings=LogSettings())
        log = logs.create("t", 0, TOPIC_ID, LogSettings())
        produce(log, batch(10))
        flusher = Flusher(asyncio.get_running_loop(), logs, fail, fail, unreadable)
        await started(flusher, log)

    asyncio.run(run())


async def asked(flusher: Flusher) -> "asyncio.Future[bool]":
    done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    flusher.checkpoint(done.set_result)
    return done


def test_a_start_is_in_the_checkpoint_when_its_asker_is_told(tmp_path: Path) -> None:
    async def started(flusher: Flusher, log: Log) -> None:
        log.advance_start(4)
        assert await (await asked(flusher)) is True
        assert kept_start(tmp_path) == 4

    with_flusher(tmp_path, started)


def test_a_round_that_began_before_does_not_count(tmp_path: Path) -> None:
    async def started(flusher: Flusher, log: Log) -> None:
        log.advance_start(2)
        flusher.turn({})
        log.advance_start(4)
        first = await asked(flusher)
        log.advance_start(5)
        second = await asked(flusher)
        assert await first is True
        assert kept_start(tmp_path) == 5, "both were served by the next round"
        assert second.done()

    with_flusher(tmp_path, started)


def test_what_is_kept_already_is_told_at_once(tmp_path: Path) -> None:
    async def started(flusher: Flusher, log: Log) -> None:
        log.advance_start(4)
        await (await asked(flusher))
        again = await asked(flusher)
        assert again.done()

    with_flusher(tmp_path, started)


def test_a_turn_writes_only_after_a_change(tmp_path: Path) -> None:
    """However many logs there are: an idle broker takes such a turn every five seconds."""

    def written() -> dict[str, int]:
        return {path.name: path.stat().st_ino for path in tmp_path.glob("*-checkpoint")}

    async def started(flusher: Flusher, log: Log) -> None:
        async def turn() -> dict[str, int]:
            flusher.turn({log.name.key: log.end})
            await (await asked(flusher))
            return written()

        first = await turn()
        assert await turn() == first
        produce(log, batch(1))
        second = await turn()
        changed = {name for name in first if first[name] != second[name]}
        assert changed == {checkpoints.HIGH_WATERMARKS}

    with_flusher(tmp_path, started)


def test_the_last_round_is_left_even_if_somebody_waits(tmp_path: Path) -> None:
    async def started(flusher: Flusher, log: Log) -> None:
        closed = asyncio.get_running_loop().create_future()
        flusher.turn({})
        log.advance_start(4)
        await asked(flusher)
        flusher.close(dict, sync=False, done=lambda: closed.set_result(None))
        await closed
        assert kept_start(tmp_path) == 4

    with_flusher(tmp_path, started)


def test_a_checkpoint_without_descriptors_is_written_when_there_are_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory goes on: its disk has no fault."""
    monkeypatch.setattr(flusher_module, "SHORT_AGAIN_S", 0.001)
    left = 2
    write = Checkpoint.write

    def write_later(checkpoint: Checkpoint) -> None:
        nonlocal left
        if left:
            left -= 1
            raise OSError(errno.EMFILE, "too many open files")
        write(checkpoint)

    monkeypatch.setattr(Checkpoint, "write", write_later)
    told: list[OSError] = []

    async def run() -> None:
        logs = open_logs(open_disk(str(tmp_path)), settings=LogSettings())
        log = logs.create("t", 0, TOPIC_ID, LogSettings())
        produce(log, batch(10))
        log.advance_start(4)
        flusher = Flusher(asyncio.get_running_loop(), logs, fail, told.append, unreadable)
        assert await (await asked(flusher)) is True
        assert kept_start(tmp_path) == 4

    asyncio.run(run())
    assert [error.errno for error in told] == [errno.EMFILE] * 2


@pytest.mark.parametrize(
    ("rules", "flushed"),
    [(OS, 0), (FlushRules(interval_ms=60_000), 10), (FlushRules(messages=100), 10)],
)
def test_a_stop_flushes_what_a_policy_bounds(
    tmp_path: Path, rules: FlushRules, flushed: int
) -> None:
    """Nobody flushes it while the broker is down, and power may go meanwhile."""

    async def run() -> None:
        logs = open_logs(open_disk(str(tmp_path)), settings=LogSettings())
        settings = LogSettings(flush=rules)
        produce(logs.create("t", 0, TOPIC_ID, settings), batch(10))
        done = asyncio.Event()
        flusher = Flusher(asyncio.get_running_loop(), logs, fail, fail, unreadable)
        flusher.close(dict, sync=False, done=done.set)
        await done.wait()

    asyncio.run(run())
    content = (tmp_path / checkpoints.RECOVERY_POINTS).read_bytes()
    assert checkpoints.decode_offsets(content, place="points")["t", Partition(0)] == flushed


def test_a_sealed_segment_that_there_is_no_descriptor_for_is_flushed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        logs = open_logs(open_disk(str(tmp_path)), settings=LogSettings())
        log = logs.create("t", 0, TOPIC_ID, LogSettings())
        produce(log, batch(10))
        log.roll(0)
        short: list[OSError] = []
        flusher = Flusher(asyncio.get_running_loop(), logs, fail, short.append, unreadable)

        def no_descriptor(_directory: DiskDirectory) -> list[str]:
            raise OSError(errno.EMFILE, "too many open files")

        with monkeypatch.context() as patch:
            patch.setattr(DiskDirectory, "names", no_descriptor)
            flusher.turn(None)
        assert (len(short), log.recovery_point) == (1, 0)
        flusher.turn(None)
        assert await (await asked(flusher)) is True
        assert log.recovery_point == 10

    asyncio.run(run())
