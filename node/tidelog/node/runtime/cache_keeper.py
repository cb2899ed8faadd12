"""Holds the logs of a directory to their page-cache rules, in threads of its own. A shell.

The loop collects what grew and decides (`log/cache_keep.py`); threads alone touch the disk. One
gives it what is to be written back; another looks at all bounded logs, and drops what is to go.
"""

# A Path object costs more than the call it names, and these are called for each segment:
# ruff: noqa: PTH208

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import MIB
from tidelog.kernel.steps import one_step
from tidelog.node.log.cache_keep import Drop, Extent, Pages, Push, Writeback, held, plan
from tidelog.node.log.directory import LogDirectory
from tidelog.node.log.log import Log
from tidelog.node.runtime import page_cache
from tidelog.node.runtime.aside import Aside
from tidelog.wire.log_files import LOG_SUFFIX

_LOOK_EVERY: Final = ms(1_000)
_GROWN_BYTES_MAX: Final = 2 * MIB
"""Or so much was appended to bounded logs."""
_PART_BYTES: Final = 8 * MIB
_REST: Final = 10
"""A look that took long is followed by a rest so many times as long: it takes a processor."""
_FOR_THIS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
_T = TypeVar("_T")
_Seen = Mapping[str, tuple[Pages, ...]]
"""By the log's directory."""


class Kept(NamedTuple):
    """What was done since the start, and what bounded logs held at the last look."""

    written_back: int = 0
    dropped: int = 0
    held: int = 0

    def plus(self, other: "Kept") -> "Kept":
        return Kept(*(one + another for one, another in zip(self, other, strict=True)))


class _Done(NamedTuple):
    """Of one piece of work in the thread."""

    seen: _Seen = MappingProxyType({})
    took_ns: int = 0
    dropped: int = 0
    failure: OSError | None = None


class _Lane:
    """A thread with one piece of work at a time: where it waits for the disk, another goes on."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._aside = Aside(loop, name)
        self.is_busy = False

    def do(self, work: Callable[[], _Done], then: Callable[[Instant, _Done], None]) -> None:
        assert not self.is_busy
        self.is_busy = True

        def ended(now: Instant, done: _Done) -> None:
            self.is_busy = False
            then(now, done)

        self._aside(one_step(work), ended)


class CacheKeeper:
    """Invariant: no page is dropped that is not on the disk."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        logs: LogDirectory,
        on_failure: Callable[[OSError], None],
    ) -> None:
        """`on_failure` is told what the disk could not take: that is the directory's end, for the
        kernel tells nobody a second time."""
        name = logs.path.rpartition("/")[2]
        self._logs = logs
        self._writing, self._keeping = _Lane(loop, f"write-{name}"), _Lane(loop, f"pages-{name}")
        self._on_failure = on_failure
        self._writebacks: dict[Log, Writeback] = {}
        self._sizes: dict[Log, int] = {}
        self._unwritten: dict[Log, None] = {}
        """Logs that grew since they were looked at for what is to be written back."""
        self._grown = 0
        """Bytes since the last look."""
        self._look_at = self._rest_until = Instant(0)
        self._abandoned = False
        self.done = Kept()

    def turn(self, now: Instant) -> None:
        """Ten times a second."""
        if self._abandoned:
            return
        self._note_growth(self._logs.take_grown())
        if self._unwritten and not self._writing.is_busy:
            self._write_back()
        if self._keeping.is_busy or now < self._rest_until:
            return
        if now >= self._look_at or self._grown >= _GROWN_BYTES_MAX:
            self._look(now)

    @property
    def is_busy(self) -> bool:
        return self._writing.is_busy or self._keeping.is_busy

    def abandon(self) -> None:
        """The directory is at its end: nothing is touched again."""
        self._abandoned = True

    def _has_failed(self, done: _Done) -> bool:
        """Or is not to be touched any more."""
        if not self._abandoned and done.failure is not None:
            self.abandon()
            self._on_failure(done.failure)
        return self._abandoned

    # -- what was appended

    def _note_growth(self, grown: Iterable[Log]) -> None:
        for log in grown:
            self._unwritten[log] = None
            if log.settings.cache.is_bounded:
                size = log.size_bytes
                self._grown += max(size - self._sizes.get(log, 0), 0)
                self._sizes[log] = size

    def _write_back(self) -> None:
        grown, self._unwritten = self._unwritten, {}
        pushes = [
            (log.directory.path, push)
            for log in grown
            if log.settings.cache.writes_back and log.has_files
            for push in self._due(log)
        ]
        if pushes:
            written = self.done.written_back + sum(push.size for _, push in pushes)
            self.done = self.done._replace(written_back=written)
            self._writing.do(partial(_push, pushes), self._written)

    def _written(self, _now: Instant, done: _Done) -> None:
        self._has_failed(done)

    def _due(self, log: Log) -> list[Push]:
        extents = [Extent(one.base, one.name, one.size) for one in log.segments]
        known = self._writebacks.setdefault(log, Writeback())
        return known.due(extents, log.settings.cache.step)

    # -- what is to stay

    def _look(self, now: Instant) -> None:
        self._look_at = Instant(now + _LOOK_EVERY)
        self._grown = 0
        bounded = {log.directory.path: log for log in self._logs if _is_bounded(log)}
        self._forget_deleted()
        if bounded:
            self._keeping.do(partial(_look, tuple(bounded)), partial(self._looked, bounded))
        else:
            self.done = self.done._replace(held=0)

    def _forget_deleted(self) -> None:
        there = set(self._logs) if self._writebacks or self._sizes else ()
        self._writebacks = {log: one for log, one in self._writebacks.items() if log in there}
        self._sizes = {log: one for log, one in self._sizes.items() if log in there}

    def _looked(self, bounded: Mapping[str, Log], now: Instant, done: _Done) -> None:
        if self._has_failed(done):
            return
        self._rest_until = Instant(now + _REST * done.took_ns)
        total = sum(held(segments) for segments in done.seen.values())
        self.done = self.done._replace(held=total)
        gone: dict[str, list[Drop]] = {}
        for logs, bound in _pools(bounded, done.seen):
            gone |= plan(logs, bound)
        if gone:
            doubt = partial(_doubt, bounded, gone)
            doubt()
            self._keeping.do(partial(_drop, gone), partial(self._dropped, doubt))

    def _dropped(self, doubt: Callable[[], None], _now: Instant, done: _Done) -> None:
        if self._has_failed(done):
            return
        doubt()  # once more: a reader may have checked some of it meanwhile
        dropped = self.done.dropped + done.dropped
        self.done = self.done._replace(dropped=dropped, held=self.done.held - done.dropped)


def _is_bounded(log: Log) -> bool:
    return log.settings.cache.is_bounded and log.has_files


def _pools(
    bounded: Mapping[str, Log], seen: _Seen
) -> list[tuple[dict[str, tuple[Pages, ...]], int]]:
    """Logs that share a bound, and the bound."""
    found: dict[tuple[str | None, int], dict[str, tuple[Pages, ...]]] = {}
    for path, segments in seen.items():
        log = bounded[path]
        rules = log.settings.cache
        topic = log.name.topic if rules.own_bound else None
        found.setdefault((topic, rules.bound), {})[path] = segments
    return [(logs, bound) for (_, bound), logs in found.items()]


def _doubt(bounded: Mapping[str, Log], gone: Mapping[str, Sequence[Drop]]) -> None:
    """What comes from the disk again is checked again, before a consumer gets it."""
    for path, drops in gone.items():
        names = {drop.name for drop in drops}
        for segment in () if bounded[path].closed is not None else bounded[path].segments:
            if segment.name in names:
                segment.doubted()


# -- in the thread


def _push(pushes: Sequence[tuple[str, Push]]) -> _Done:
    for path, push in pushes:
        failure = _with(path, push.name, partial(_write_back, push))
        if isinstance(failure, OSError):
            return _Done(failure=failure)
    return _Done()


def _write_back(push: Push, descriptor: int) -> OSError | None:
    try:
        page_cache.write_back(descriptor, push.start, push.size, wait=False)
    except OSError as failure:
        return failure
    return None


def _look(paths: Sequence[str]) -> _Done:
    begun = time.monotonic_ns()
    seen = {path: tuple(_pages(path)) for path in paths}
    return _Done(seen=seen, took_ns=time.monotonic_ns() - begun)


def _pages(path: str) -> Iterator[Pages]:
    try:
        names = sorted(name for name in os.listdir(path) if name.endswith(LOG_SUFFIX))
    except OSError:
        return  # the topic is being deleted
    for name in names:
        found = _with(path, name, _size_and_cached)
        if isinstance(found, tuple):
            yield Pages(name, *found)


def _size_and_cached(descriptor: int) -> tuple[int, int]:
    size = os.fstat(descriptor).st_size
    found = page_cache.cached(descriptor, size)
    return size, 0 if found is None else found.cached


def _drop(gone: Mapping[str, Sequence[Drop]]) -> _Done:
    dropped = 0
    for path, drops in gone.items():
        for drop in drops:
            found = _with(path, drop.name, partial(_forget, drop))
            if isinstance(found, OSError):
                return _Done(dropped=dropped, failure=found)
            dropped += found or 0
    return _Done(dropped=dropped)


def _forget(drop: Drop, descriptor: int) -> int | OSError:
    """How many bytes less are cached now."""
    _, before = _size_and_cached(descriptor)
    try:
        # In parts: what the disk has goes at once, and waits for no byte behind it.
        for start in range(0, drop.upto, _PART_BYTES):
            page_cache.forget(descriptor, start, min(_PART_BYTES, drop.upto - start))
    except OSError as failure:
        return failure
    _, after = _size_and_cached(descriptor)
    return max(before - after, 0)


def _with(path: str, name: str, work: Callable[[int], _T]) -> _T | None:
    """None where it has gone, or there are no descriptors: then the kernel will do."""
    try:
        descriptor = os.open(f"{path}/{name}", _FOR_THIS)
    except OSError:
        return None
    try:
        return work(descriptor)
    finally:
        os.close(descriptor)
