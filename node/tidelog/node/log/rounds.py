"""Group commit in one log directory: which logs are flushed together, and which wait. No I/O.

What comes while a round is under way joins the next one, so that many small writes share what one
flush costs, and nobody waits for a timer.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final, NamedTuple

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.files import Held, Syncable
from tidelog.kernel.instant import Instant
from tidelog.node.log.log import Log

LOGS_MAX: Final = 1_000
"""In one round: what the loop does for it must not take long. The others are in the next one."""
HELD_MAX: Final = 64
"""Descriptors are scarce; beyond that files are opened one by one by who flushes them."""


class Round(NamedTuple):
    """What is forced out at one time."""

    logs: tuple[tuple[Log, int], ...]
    """And up to where each is flushed when all of it is done."""
    chains: tuple[tuple[Syncable, ...], ...]
    """Each in its order, one beside the other."""
    last: tuple[Syncable, ...]
    """When all chains are done."""
    held: tuple[Held, ...] = ()
    """Of these, what is to be let go of afterwards."""

    def let_go(self) -> None:
        for file in self.held:
            file.let_go()


class Rounds:
    """Invariant: one round is under way at most, and a log that is in one is in no other flush."""

    def __init__(self) -> None:
        self.wake: Callable[[Instant], None] = _nobody_flushes
        """Told when `begin` is wanted."""
        self.failed: list[tuple[Log, Exception]] = []
        """Logs that could not even be read."""
        self._wanted: dict[Log, Instant] = {}
        self._under_way: Round | None = None

    @property
    def is_under_way(self) -> bool:
        return self._under_way is not None

    def next_after(self, now: Instant) -> Instant | None:
        """When the next round should begin for logs that had no reason to be in one of now. Who had
        and was not, is in another flush, and asks again when that is over."""
        return min((at for at in self._wanted.values() if at > now), default=None)

    def want(self, log: Log, when: Instant) -> None:
        """Have it in a round that begins then, or earlier."""
        known = self._wanted.get(log)
        if known is None or when < known:
            self._wanted[log] = when
        if self._under_way is None and not log.dirty.in_round:
            self.wake(when)

    def forget(self, log: Log) -> None:
        self._wanted.pop(log, None)

    def forget_all(self) -> None:
        self._wanted.clear()

    def begin(self, now: Instant) -> Round | None:
        """The next round, where there is something for it and none is under way."""
        if self._under_way is not None:
            return None
        ready = (one for one, at in self._wanted.items() if at <= now and not one.dirty.in_round)
        due = list(islice(ready, LOGS_MAX))
        for log in due:
            del self._wanted[log]
        made = self._make(due)
        if made.logs:
            self._under_way = made
            return made
        return None

    def _make(self, due: Iterable[Log]) -> Round:
        logs: list[tuple[Log, int]] = []
        chains: list[tuple[Syncable, ...]] = []
        last: dict[int, Syncable] = {}
        kept: list[Held] = []
        for log in due:
            upto = log.end
            held = log.hold_dirty() if len(kept) < HELD_MAX else None
            if held is not None:
                kept.append(held)
                chains.append((held,))
            elif not self._name_files(log, chains, last):
                continue
            log.dirty.in_round = True
            logs.append((log, upto))
        return Round(tuple(logs), tuple(chains), tuple(last.values()), tuple(kept))

    def _name_files(
        self, log: Log, chains: list[tuple[Syncable, ...]], last: dict[int, Syncable]
    ) -> bool:
        """Whether it could be read."""
        try:
            files = log.dirty_files(log.end)
        except (CorruptError, OSError) as failure:
            self.failed.append((log, failure))
            return False
        parent = log.directory.parent
        if parent in files:  # many logs have the same one; its names come after theirs
            files.remove(parent)
            last[id(parent)] = parent
        if files:
            chains.append(tuple(files))
        return True

    def ended(self, now: Instant) -> list[Log]:
        """All of the round is on stable storage; its logs."""
        done = self._under_way
        assert done is not None
        self._under_way = None
        done.let_go()
        for log, upto in done.logs:
            log.dirty.in_round = False
            log.flushed(upto)
        logs = [log for log, _ in done.logs]
        for log in logs:
            log.look_for_flush(now)
        return logs


def want_what_was_left(logs: Iterable[Log], now: Instant) -> None:
    """At a start: a killed process could not flush what its policy bounds, and it may be long until
    a log takes part in anything."""
    for log in logs:
        if log.owes_flush:
            log.dirty.ask(now)


def _nobody_flushes(_when: Instant) -> None: ...
