"""Which processes hang: stopped by a signal, or silent on the board. Pure.

A busy machine must not look like a hung process: where the watcher itself was late, every silence
is counted anew from that moment; and the time a process wants to run and is not let is no silence.
A tracer such as strace stops a process at each system call, so that every look may find it stopped
while it serves its clients. Only a process that did nothing since the last look stays stopped.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import (
    BROKER_SILENT_MS,
    BROKER_STOPPED_MS,
    COORDINATOR_SILENT_MS,
    COORDINATOR_STOPPED_MS,
)
from tidelog.node.ipc.layout import Role
from tidelog.tools.supervisor.plan import Name

LOOK_EVERY = ms(250)
_LATE = 3 * LOOK_EVERY
_STARVED_SHARE = 10
"""A runnable process that gets less than this part of a CPU waits for the machine. One that spins
in a bug gets more, but where ten others spin on every CPU."""


class Reading(Struct, frozen=True):
    """One look at a living process."""

    pid: int
    stopped: bool
    heartbeat: Instant
    """0 where it has none yet, or is not ready: it is judged from its first one."""
    runnable: bool = False
    """It runs, or would if it were given a CPU."""
    cpu_ns: int = 0
    """Time on a CPU in its whole life."""
    switches: int = 0
    """How often it has given up a CPU; only told of one that is stopped."""
    replaceable: bool = False
    """Another process stands by to take its place."""


class Hung(Struct, frozen=True):
    name: Name
    why: str


class Resumed(Struct, frozen=True):
    name: Name


class _Watched(Struct):
    pid: int
    stopped_since: Instant | None = None
    seen: tuple[int, ...] = ()
    """Heartbeat, time on a CPU and switches at the last look; if one has changed, it has run."""
    hung: bool = False
    heartbeat: Instant = Instant(0)
    silent_from: Instant = Instant(0)
    """When it last beat, and later by all the time it was kept from that."""
    cpu_ns: int = 0
    """What it had used when it last beat."""
    replaceable: bool = False


class HangWatch(Struct):
    """Takes a reading of all every `LOOK_EVERY`; says who began and who ceased to hang."""

    looked: Instant | None = None
    trusted_from: Instant = Instant(0)
    """No silence before this moment counts."""
    watched: dict[Name, _Watched] = field(default_factory=dict)

    def look(self, now: Instant, readings: Mapping[Name, Reading]) -> list[Hung | Resumed]:
        since_last = 0 if self.looked is None else now - self.looked
        if self.looked is None or since_last > _LATE:
            self.trusted_from = now
        self.looked = now
        self.watched = {
            name: self._of_this_life(name, reading) for name, reading in readings.items()
        }
        changes: list[Hung | Resumed] = []
        for name, reading in readings.items():
            self._note_silence(now, since_last, self.watched[name], reading)
            changes += self._judge(now, name, reading)
        return changes

    def deadline(self) -> Instant | None:
        """When the first process that is stopped now will have been so for too long."""
        moments = [
            Instant(
                max(watched.stopped_since, self.trusted_from)
                + stopped_patience(name, replaceable=watched.replaceable)
            )
            for name, watched in self.watched.items()
            if watched.stopped_since is not None and not watched.hung
        ]
        return min(moments, default=None)

    def is_hung(self, name: Name) -> bool:
        return name in self.watched and self.watched[name].hung

    def _of_this_life(self, name: Name, reading: Reading) -> _Watched:
        known = self.watched.get(name)
        return known if known is not None and known.pid == reading.pid else _Watched(reading.pid)

    def _judge(self, now: Instant, name: Name, reading: Reading) -> list[Hung | Resumed]:
        watched = self.watched[name]
        watched.replaceable = reading.replaceable
        seen = reading.heartbeat, reading.cpu_ns, reading.switches
        if not reading.stopped:
            watched.stopped_since = None
        elif watched.stopped_since is None or seen != watched.seen:
            watched.stopped_since = now
        watched.seen = seen
        why = self._why_hung(now, name, watched)
        if (why is not None) == watched.hung:
            return []
        watched.hung = why is not None
        return [Resumed(name) if why is None else Hung(name, why)]

    def _note_silence(
        self, now: Instant, since_last: int, watched: _Watched, reading: Reading
    ) -> None:
        """Who waits for a CPU has only that time excused: one that sleeps is found waking at some
        look or other, above all where the machine is busy."""
        if reading.heartbeat != watched.heartbeat:
            watched.heartbeat = watched.silent_from = reading.heartbeat
            watched.cpu_ns = reading.cpu_ns
        elif reading.runnable:
            used = (reading.cpu_ns - watched.cpu_ns) * _STARVED_SHARE
            if used < now - max(watched.heartbeat, self.trusted_from):
                counted_from = max(watched.silent_from, self.trusted_from)
                watched.silent_from = min(now, Instant(counted_from + since_last))

    def _why_hung(self, now: Instant, name: Name, watched: _Watched) -> str | None:
        if watched.stopped_since is not None:
            stopped_from = max(watched.stopped_since, self.trusted_from)
            if now - stopped_from >= stopped_patience(name, replaceable=watched.replaceable):
                return "stopped"
        silent_from = max(watched.silent_from, self.trusted_from)
        if watched.heartbeat and now - silent_from >= silence(name):
            return "silent"
        return None


def silence(name: Name) -> int:
    """How long a process may be silent, in nanoseconds."""
    return ms(BROKER_SILENT_MS if name.role is Role.BROKER else COORDINATOR_SILENT_MS)


def stopped_patience(name: Name, *, replaceable: bool = False) -> int:
    """How long a process may be stopped by a signal, in nanoseconds."""
    if replaceable:
        return ms(COORDINATOR_STOPPED_MS)
    return ms(BROKER_STOPPED_MS if name.role is Role.BROKER else COORDINATOR_SILENT_MS)
