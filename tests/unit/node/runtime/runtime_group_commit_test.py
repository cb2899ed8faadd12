"""Rounds of a log directory with real threads: who shares one, and what a failed flush is."""

import asyncio
import errno
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from harness.logs.batches import TOPIC_ID, batch, open_logs, produce
from tidelog.kernel.failures import FailedSyncError
from tidelog.kernel.files import Syncable
from tidelog.kernel.instant import Instant
from tidelog.node.log import rounds
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.flush_policy import FlushRules
from tidelog.node.log.log import Log
from tidelog.node.log.rounds import Round
from tidelog.node.log.settings import LogSettings
from tidelog.node.runtime import group_commit
from tidelog.node.runtime.disk import DiskDirectory, open_disk
from tidelog.node.runtime.flush_threads import THREADS_MAX, FlushThreads, Job
from tidelog.node.runtime.group_commit import NO_FLUSH, GroupCommit, Heard

COMMIT = LogSettings(flush=FlushRules(commit=True))
PATIENCE_S = 20


class Slow:
    """A file whose flush ends when the test lets it, or fails."""

    def __init__(self, failure: OSError | None = None) -> None:
        self.began = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)
        self.syncs = 0
        self._failure = failure

    def sync(self) -> None:
        self.syncs += 1
        self.began.release()
        assert self.may_end.acquire(timeout=PATIENCE_S)
        if self._failure is not None:
            raise self._failure


class Bench:
    """One directory with its rounds, on a running loop."""

    def __init__(self, folder: Path) -> None:
        self.logs: LogDirectory = open_logs(open_disk(str(folder)), settings=COMMIT)
        self.flushed: list[list[tuple[str, int]]] = []
        self.failures: list[OSError] = []
        self.heard = asyncio.Event()
        loop = asyncio.get_running_loop()
        told = Heard(self._on_flushed, self._on_failed, lambda _log, _error: None)
        self.commits = GroupCommit(loop, self.logs.rounds, FlushThreads(loop, "t"), told)

    def _on_flushed(self, _now: Instant, logs: Sequence[Log]) -> None:
        self.flushed.append([(log.name.topic, log.recovery_point) for log in logs])
        self.heard.set()

    def _on_failed(self, failure: OSError) -> None:
        self.failures.append(failure)
        self.heard.set()

    def log(self, name: str) -> Log:
        return self.logs.create(name, 0, TOPIC_ID, COMMIT)

    async def hear(self) -> None:
        await asyncio.wait_for(self.heard.wait(), PATIENCE_S)
        self.heard.clear()


def on_loop(folder: Path, test: Callable[[Bench], Awaitable[None]]) -> None:
    async def run() -> None:
        await test(Bench(folder))

    asyncio.run(run())


def flush_only(log: Log, file: Slow) -> None:
    """Whatever is dirty in it, this file is what a flush forces out."""

    def dirty_files(upto: int) -> list[Syncable]:
        log.dirty.begins(upto)
        return [file]

    log.dirty_files = dirty_files  # type: ignore[method-assign] # a disk as slow or bad as wanted


async def until_began(file: Slow) -> None:
    """The loop turns meanwhile."""
    loop = asyncio.get_running_loop()
    assert await loop.run_in_executor(None, lambda: file.began.acquire(timeout=PATIENCE_S))


def test_what_comes_in_one_turn_of_the_loop_is_one_round(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        for name in ("a", "b", "c"):
            produce(bench.log(name), batch(2))
        await bench.hear()
        assert bench.flushed == [[("a", 2), ("b", 2), ("c", 2)]]

    on_loop(tmp_path, test)


def test_a_deadline_that_passes_while_a_round_is_looked_for_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(bench: Bench) -> None:
        first, second = bench.log("a"), bench.log("b")
        produce(second, batch(2))
        await bench.hear()
        produce(second, batch(2))
        bench.logs.rounds.forget(second)
        await asyncio.sleep(0)  # the round that it asked for finds nothing
        soon = time.monotonic_ns() + 20_000_000
        later = soon + 1_000_000
        bench.logs.rounds.want(first, Instant(soon))
        bench.logs.rounds.want(second, Instant(later))
        bench.logs.rounds.forget(first)
        # The alarm rings; the round is looked for just before the deadline, which then passes.
        told = [later + 1_000_000_000, later - 1, later + 1]
        clock = SimpleNamespace(monotonic_ns=lambda: told.pop(0) if told else time.monotonic_ns())
        monkeypatch.setattr(group_commit, "time", clock)
        await bench.hear()
        assert bench.flushed[-1] == [("b", 4)]

    on_loop(tmp_path, test)


def test_what_comes_during_a_round_is_the_next_one(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        log, other = bench.log("a"), bench.log("b")
        slow = Slow()
        flush_only(log, slow)
        produce(log, batch(1))
        await until_began(slow)
        for _ in range(5):
            produce(log, batch(1))
            produce(other, batch(1))
            await asyncio.sleep(0)
        assert bench.flushed == []
        assert slow.syncs == 1
        del log.dirty_files
        slow.may_end.release()
        await bench.hear()
        while len(bench.flushed) < 2:
            await bench.hear()
        assert bench.flushed[0] == [("a", 1)]
        assert sorted(bench.flushed[1]) == [("a", 6), ("b", 5)]

    on_loop(tmp_path, test)


def test_the_first_failed_flush_is_the_last_one(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        log = bench.log("a")
        bad = Slow(OSError(errno.EIO, "the disk is broken"))
        bad.may_end.release()
        flush_only(log, bad)
        produce(log, batch(1))
        await bench.hear()
        assert [failure.errno for failure in bench.failures] == [errno.EIO]
        bad.may_end.release()
        produce(log, batch(1))
        log.dirty.ask(Instant(0))
        for _ in range(3):
            await asyncio.sleep(0)
        assert bad.syncs == 1, "a second try might say that all is well"
        assert bench.flushed == []
        assert log.recovery_point == 0

    on_loop(tmp_path, test)


def test_many_files_are_flushed_side_by_side_and_reported_once() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        files = [Slow() for _ in range(THREADS_MAX + 2)]
        last = Slow()
        ended: asyncio.Future[BaseException | None] = loop.create_future()
        chains: tuple[tuple[Syncable, ...], ...] = tuple((one,) for one in files)
        FlushThreads(loop, "t").flush(Round((), chains, (last,)), ended.set_result)
        for one in files[:THREADS_MAX]:
            await until_began(one)
        assert not files[-1].syncs, "so many threads and no more"
        for one in files:
            assert not last.syncs
            one.may_end.release()
        await until_began(last)
        assert not ended.done()
        last.may_end.release()
        assert await ended is None
        assert all(one.syncs == 1 for one in (*files, last))

    asyncio.run(run())


def test_a_thread_that_comes_late_ends_no_round_whose_last_file_is_under_way() -> None:
    """Its wake-up may take so long that another one has taken all there was."""
    quick, slow, over = Slow(), Slow(), list[BaseException | None]()
    quick.may_end.release()
    job = Job(Round((), ((quick,), (slow,)), ()), over.append)
    first = threading.Thread(target=job.run)
    first.start()
    assert slow.began.acquire(timeout=PATIENCE_S)
    job.run()
    assert over == [], "its bytes are on no disk yet"
    slow.may_end.release()
    first.join(PATIENCE_S)
    assert over == [None]


def test_a_stop_waits_for_the_round_under_way_and_begins_no_other(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        log, slow = bench.log("a"), Slow()
        flush_only(log, slow)
        produce(log, batch(1))
        await until_began(slow)
        stopped = asyncio.Event()
        bench.commits.stop(stopped.set)
        produce(log, batch(1))
        await asyncio.sleep(0)
        assert not stopped.is_set()
        slow.may_end.release()
        await asyncio.wait_for(stopped.wait(), PATIENCE_S)
        await asyncio.sleep(0)
        assert slow.syncs == 1

    on_loop(tmp_path, test)


def test_who_waits_for_the_end_is_told_once_though_the_disk_fails_then(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        told: list[None] = []
        bench.commits.stop(lambda: told.append(None))
        bench.commits.abandon()
        assert len(told) == 1

    on_loop(tmp_path, test)


def test_a_log_that_is_flushed_in_the_background_waits_for_that(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        log = bench.log("a")
        log.dirty.in_round = True
        produce(log, batch(1))
        await asyncio.sleep(0)
        log.dirty.in_round = False
        assert bench.flushed == []
        log.look_for_flush(Instant(1))
        await bench.hear()
        assert bench.flushed == [[("a", 1)]]

    on_loop(tmp_path, test)


def test_a_round_takes_a_bounded_number_of_logs_and_the_next_one_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rounds, "LOGS_MAX", 3)
    monkeypatch.setattr(rounds, "HELD_MAX", 1)

    async def once(bench: Bench) -> list[int]:
        bench.flushed.clear()
        for name in "abcde":
            produce(bench.log(name), batch(1))
        while len(bench.flushed) < 2:
            await bench.hear()
        return [len(one) for one in bench.flushed]

    async def test(bench: Bench) -> None:
        assert await once(bench) == [3, 2]
        assert await once(bench) == [3, 2], "and where their files are there already"
        assert all(bench.log(name).recovery_point == 2 for name in "abcde")

    on_loop(tmp_path, test)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_no_descriptor_is_left_of_rounds(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        log = bench.log("a")
        produce(log, batch(1))
        await bench.hear()
        before = descriptors()
        for _ in range(20):
            produce(log, batch(1))
            await bench.hear()
        assert descriptors() == before

    on_loop(tmp_path, test)


def test_it_says_when_the_last_flush_was_and_how_long_it_took(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        assert bench.commits.last == NO_FLUSH
        before = time.monotonic_ns()
        produce(bench.log("t"), batch(1))
        await bench.hear()
        last = bench.commits.last
        assert 0 < last.took_ns <= last.at - before

    on_loop(tmp_path, test)


def test_a_flush_that_failed_is_not_the_last_one(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        log, file = bench.log("t"), Slow(OSError(errno.EIO, "bad disk"))
        file.may_end.release()
        flush_only(log, file)
        produce(log, batch(1))
        await bench.hear()
        assert len(bench.failures) == 1
        assert bench.commits.last == NO_FLUSH

    on_loop(tmp_path, test)


class Short:
    """A file that cannot be opened for a while, for there are too few descriptors."""

    def __init__(self, times: int) -> None:
        self.times = times
        self.syncs = 0

    def sync(self) -> None:
        if self.times:
            self.times -= 1
            raise OSError(errno.EMFILE, "too many open files")
        self.syncs += 1


@pytest.mark.parametrize("times", [1, 3])
def test_a_round_without_descriptors_waits_for_some_and_claims_nothing(
    tmp_path: Path, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No disk is damaged, and nothing is told to be flushed before it is."""
    monkeypatch.setattr(group_commit, "SHORT_AGAIN_S", 0.001)

    async def test(bench: Bench) -> None:
        log, file = bench.log("a"), Short(times)
        flush_only(log, file)  # type: ignore[arg-type] # as slow as its descriptors are few
        produce(log, batch(2))
        await bench.hear()
        assert bench.failures == []
        assert (bench.flushed, file.syncs, file.times) == ([[("a", 2)]], 1, 0)

    on_loop(tmp_path, test)


def test_a_sync_that_fails_for_want_of_descriptors_is_a_failure(tmp_path: Path) -> None:
    """Pages may be lost whenever a sync fails."""

    async def test(bench: Bench) -> None:
        log = bench.log("a")
        file = Slow(FailedSyncError(errno.EMFILE, "too many open files"))
        flush_only(log, file)
        produce(log, batch(2))
        await until_began(file)
        file.may_end.release()
        await bench.hear()
        assert (len(bench.failures), bench.flushed) == (1, [])

    on_loop(tmp_path, test)


def test_a_log_that_there_is_no_descriptor_for_is_flushed_though_nothing_is_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(bench: Bench) -> None:
        log = bench.log("a")
        tries = 0

        def names(_directory: DiskDirectory) -> list[str]:
            nonlocal tries
            tries += 1
            if tries == 1:
                raise OSError(errno.EMFILE, "too many open files")
            return []

        monkeypatch.setattr(DiskDirectory, "names", names)
        produce(log, batch(2))
        await bench.hear()
        assert (tries, bench.flushed, bench.failures) == (2, [[("a", 2)]], [])

    on_loop(tmp_path, test)
