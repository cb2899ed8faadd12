"""Which processes hang: stopped by a signal, or silent on the board. Pure.

A busy machine must not look like a hung process: where the watcher itself was late, every silence
is counted anew from that moment.
"""

from collections.abc import Mapping

from msgspec import Struct, field

from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import BROKER_SILENT_MS, BROKER_STOPPED_MS, COORDINATOR_SILENT_MS
from tidelog.node.ipc.layout import Role
from tidelog.tools.supervisor.plan import Name

LOOK_EVERY = ms(250)
_LATE = 3 * LOOK_EVERY


class Reading(Struct, frozen=True):
    """One look at a living, ready process."""

    pid: int
    stopped: bool
    heartbeat: Instant
    """0 where it has none yet: it is judged from its first one."""


class Hung(Struct, frozen=True):
    name: Name
    why: str


class Resumed(Struct, frozen=True):
    name: Name


class _Watched(Struct):
    pid: int
    stopped_since: Instant | None = None
    hung: bool = False


class HangWatch(Struct):
    """Takes a reading of all every `LOOK_EVERY`; says who began and who ceased to hang."""

    looked: Instant | None = None
    trusted_from: Instant = Instant(0)
    """No silence before this moment counts."""
    watched: dict[Name, _Watched] = field(default_factory=dict)

    def look(self, now: Instant, readings: Mapping[Name, Reading]) -> list[Hung | Resumed]:
        if self.looked is None or now - self.looked > _LATE:
            self.trusted_from = now
        self.looked = now
        self.watched = {
            name: self._of_this_life(name, reading) for name, reading in readings.items()
        }
        changes: list[Hung | Resumed] = []
        for name, reading in readings.items():
            changes += self._judge(now, name, reading)
        return changes

    def is_hung(self, name: Name) -> bool:
        return name in self.watched and self.watched[name].hung

    def _of_this_life(self, name: Name, reading: Reading) -> _Watched:
        known = self.watched.get(name)
        return known if known is not None and known.pid == reading.pid else _Watched(reading.pid)

    def _judge(self, now: Instant, name: Name, reading: Reading) -> list[Hung | Resumed]:
        watched = self.watched[name]
        if not reading.stopped:
            watched.stopped_since = None
        elif watched.stopped_since is None:
            watched.stopped_since = now
        why = self._why_hung(now, name, reading, watched.stopped_since)
        if (why is not None) == watched.hung:
            return []
        watched.hung = why is not None
        return [Resumed(name) if why is None else Hung(name, why)]

    def _why_hung(
        self, now: Instant, name: Name, reading: Reading, stopped_since: Instant | None
    ) -> str | None:
        if stopped_since is not None:
            stopped_from = max(stopped_since, self.trusted_from)
            if now - stopped_from >= stopped_patience(name):
                return "stopped"
        if reading.heartbeat and now - max(reading.heartbeat, self.trusted_from) >= silence(name):
            return "silent"
        return None


def silence(name: Name) -> int:
    """How long a process may be silent, in nanoseconds."""
    return ms(BROKER_SILENT_MS if name.role is Role.BROKER else COORDINATOR_SILENT_MS)


def stopped_patience(name: Name) -> int:
    """How long a process may be stopped by a signal, in nanoseconds."""
    return ms(BROKER_STOPPED_MS if name.role is Role.BROKER else COORDINATOR_SILENT_MS)
