"""Logs held to their page-cache rules, on a real disk with its real pages."""

import asyncio
import errno
import mmap
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from harness.disks.real_pages import need_cachestat, need_disk, pages
from harness.logs.batches import TOPIC_ID, batch, open_logs, produce
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import MIB
from tidelog.node.log.cache_rules import CacheRules
from tidelog.node.log.log import Log
from tidelog.node.log.settings import LogSettings
from tidelog.node.runtime import page_cache
from tidelog.node.runtime.cache_keeper import CacheKeeper
from tidelog.node.runtime.disk import open_disk

SEGMENT = 256 * 1024
BATCH = 64 * 1024


class Bench:
    """A directory with logs, and its keeper."""

    def __init__(self, folder: Path) -> None:
        self.failures: list[OSError] = []
        self.logs = open_logs(open_disk(str(folder)), settings=LogSettings())
        self.keeper = CacheKeeper(asyncio.get_running_loop(), self.logs, self.failures.append)
        self.now = time.monotonic_ns()

    def log(self, topic: str, rules: CacheRules, size: int = 0) -> Log:
        settings = LogSettings(segment_bytes=SEGMENT, cache=rules)
        log = self.logs.create(topic, 0, TOPIC_ID, settings)
        self.fill(log, size)
        return log

    def fill(self, log: Log, size: int) -> None:
        for _ in range(size // BATCH):
            produce(log, batch(1, size=BATCH))

    async def turn(self) -> None:
        """As seconds later; all that comes of it: what is written back, and what goes."""
        for _ in range(2):
            self.now += ms(2_000)
            self.keeper.turn(Instant(self.now))
            await reached(lambda: not self.keeper.is_busy)


async def reached(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 -- the kernel and a thread, who tell nobody
            await asyncio.sleep(0)


def cached(log: Log) -> list[int]:
    """Of each segment."""
    return [pages(one.place).cached for one in log.segments]


def dirty(log: Log) -> int:
    return sum(pages(one.place).dirty or 0 for one in log.segments)


def with_bench(folder: Path, test: Callable[[Bench], Awaitable[None]]) -> None:
    need_disk(folder)
    need_cachestat(folder)

    async def run() -> None:
        await test(Bench(folder / "log0"))

    asyncio.run(run())


def test_a_tail_holds_its_bound_and_the_newest_bytes_are_what_is_left(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        log = bench.log("t", CacheRules(keep="tail", max_bytes=MIB), 3 * MIB)
        assert sum(cached(log)) == log.size_bytes
        await bench.turn()
        found = cached(log)
        assert MIB // 2 < sum(found) <= MIB
        assert found[0] == 0
        assert found[-1] == log.segments[-1].size
        assert bench.keeper.done.dropped == log.size_bytes - sum(found)
        assert bench.keeper.done.held == sum(found)

    with_bench(tmp_path, test)


def test_what_is_dropped_is_read_from_the_disk_as_it_was(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        log = bench.log("t", CacheRules(keep="none"), MIB)
        before = [bytes(one.file.read(0, one.size)) for one in log.segments]
        await bench.turn()
        assert sum(cached(log)) < 2 * mmap.PAGESIZE, "the page that is written to stays"
        assert [bytes(one.file.read(0, one.size)) for one in log.segments] == before

    with_bench(tmp_path, test)


def test_what_comes_from_the_disk_again_is_checked_again(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        log = bench.log("t", CacheRules(keep="none"), MIB)
        first = log.segments[0]
        assert first.trusts(0, first.size)
        await bench.turn()
        assert not first.trusts(0, first.size)

    with_bench(tmp_path, test)


def test_logs_of_a_broker_share_the_bound_and_a_topic_may_have_its_own(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        shared = CacheRules(keep="tail", max_bytes=MIB)
        own = CacheRules(keep="tail", max_bytes=MIB // 2, own_bound=True)
        one, two = bench.log("a", shared, MIB), bench.log("b", shared, MIB)
        three, four = bench.log("c", own, MIB), bench.log("e", own, MIB)
        free = bench.log("d", CacheRules(), MIB)
        await bench.turn()
        held = {log.name.topic: sum(cached(log)) for log in (one, two, three, four, free)}
        assert held["a"] + held["b"] <= MIB
        assert min(held["a"], held["b"]) > MIB // 4
        assert 3 * MIB // 8 < held["c"] <= MIB // 2
        assert 3 * MIB // 8 < held["e"] <= MIB // 2
        assert held["d"] == free.size_bytes

    with_bench(tmp_path, test)


def test_the_bound_holds_while_more_is_appended(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        log = bench.log("t", CacheRules(keep="tail", max_bytes=MIB))
        for _ in range(8):
            bench.fill(log, MIB)
            await bench.turn()
            assert sum(cached(log)) <= MIB

    with_bench(tmp_path, test)


def test_rules_that_change_are_those_of_the_next_look(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        log = bench.log("t", CacheRules(), 2 * MIB)
        await bench.turn()
        assert sum(cached(log)) == log.size_bytes
        log.settings = LogSettings(cache=CacheRules(keep="tail", max_bytes=MIB))
        await bench.turn()
        assert sum(cached(log)) <= MIB
        log.settings = LogSettings()
        for one in log.segments:
            one.file.read(0, one.size)
        await bench.turn()
        assert sum(cached(log)) == log.size_bytes

    with_bench(tmp_path, test)


def test_a_log_that_nobody_used_since_a_clean_stop_is_held_to_it_too(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        rules = CacheRules(keep="tail", max_bytes=MIB)
        bench.log("t", rules, 3 * MIB)
        bench.logs.close_clean({}, synced=False)
        again = Bench(tmp_path / "log0")
        log = again.log("t", rules)
        assert log.closed is not None
        await again.turn()
        assert log.closed is not None, "it is not opened for that"
        assert 0 < again.keeper.done.held <= MIB

    with_bench(tmp_path, test)


def test_behind_the_writer_bytes_are_given_to_the_disk(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        log = bench.log("t", CacheRules(writeback_bytes=SEGMENT // 4), BATCH)
        await bench.turn()
        bench.fill(log, 2 * MIB)
        assert dirty(log) > MIB
        await bench.turn()
        done = bench.keeper.done
        assert log.size_bytes - SEGMENT // 4 - mmap.PAGESIZE <= done.written_back <= log.size_bytes
        await reached(lambda: dirty(log) <= SEGMENT // 2)
        assert sum(cached(log)) == log.size_bytes, "all of it stays"

    with_bench(tmp_path, test)


def test_a_topic_that_is_deleted_meanwhile_is_no_failure(tmp_path: Path) -> None:
    async def test(bench: Bench) -> None:
        rules = CacheRules(keep="tail", max_bytes=0, writeback_bytes=SEGMENT)
        bench.log("t", rules, MIB)
        bench.keeper.turn(Instant(bench.now))
        bench.logs.delete("t", 0)
        await bench.turn()
        await bench.turn()
        assert bench.failures == []

    with_bench(tmp_path, test)


@pytest.mark.parametrize("rules", [CacheRules(keep="none"), CacheRules(writeback_bytes=4096)])
def test_a_disk_that_cannot_take_it_is_told_of_and_nothing_is_touched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rules: CacheRules
) -> None:
    def fails(_descriptor: int, _start: int, _size: int, *, wait: bool) -> bool:
        raise OSError(errno.EIO, "bad sector", str(wait))

    async def test(bench: Bench) -> None:
        log = bench.log("t", rules, MIB)
        monkeypatch.setattr(page_cache, "write_back", fails)
        await bench.turn()
        assert [one.errno for one in bench.failures] == [errno.EIO]
        bench.fill(log, MIB)
        await bench.turn()
        assert len(bench.failures) == 1
        assert sum(cached(log)) == log.size_bytes, "what is not on the disk stays"

    with_bench(tmp_path, test)
