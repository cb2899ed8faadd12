"""What shall run, what does run, and what to do about the difference. Pure.

Invariant: a process is spawned only when the last one of its name has ended, and nothing is
spawned once the end has begun. The end goes in `STOP_ORDER`: those who write the log first, those
who decide last.
"""

import signal
from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from typing import assert_never

from msgspec import Struct, field

from tidelog.kernel.ids import Incarnation
from tidelog.kernel.instant import Instant, ms, s
from tidelog.node.ipc.layout import Role

STOP_ORDER = (Role.BROKER, Role.TRANSACTION_COORDINATOR, Role.COORDINATOR)
RESTART_DELAY_FIRST = ms(100)
RESTART_DELAY_MAX = s(5)
LIVED_LONG_ENOUGH = s(1)
"""Ready for so long: then the next restart is immediate again. Whoever is killed now and then is
back at once; what dies of itself as soon as it works is started less and less often."""
KILLS_FORGIVEN_MAX = 32
"""A process that worked and was killed did nothing wrong, however short it lived: whoever tries
out what others feel of it kills it again and again. The kernel, where memory is short, goes on
killing for ever: so many in a row are forgiven."""
CRASHES_KEPT_MAX = 32
_RESTART_DOUBLINGS_MAX = 10


class Name(Struct, frozen=True, order=True):
    """One process of the cluster, whichever life it is in."""

    role: Role
    process_id: int

    def __str__(self) -> str:
        word = self.role.name.lower().replace("_", "-")
        return f"{word} {self.process_id}" if self.role is Role.BROKER or self.process_id else word


class Phase(StrEnum):
    """Where a process is in its life, as far as its parent knows."""

    WAITING = "waiting"
    """To be spawned, at once or after a delay."""
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


class Spawned(Struct, frozen=True):
    """The shell has performed a Spawn."""

    name: Name
    pid: int


class BecameReady(Struct, frozen=True):
    """It does its work. Of coordinators that is to lead, or to stand by for the one that does."""

    name: Name
    leads: bool = True


class Refused(Struct, frozen=True):
    """The process said why it cannot come up; it will end by itself."""

    name: Name
    sentence: str


class Ended(Struct, frozen=True):
    """`code` is an exit code, or the negative number of the signal that killed it."""

    name: Name
    code: int


class StartAsked(Struct, frozen=True):
    name: Name


class AddAsked(Struct, frozen=True):
    """A process that there has not been so far, to be started now."""

    name: Name


class RemoveAsked(Struct, frozen=True):
    """A process that has ended, not to be known any more."""

    name: Name


class StopAsked(Struct, frozen=True):
    name: Name


class PowerLost(Struct, frozen=True):
    """It is killed, and not started again before that is asked for."""

    name: Name


class EndAsked(Struct, frozen=True):
    """End the cluster; asked with force (or a second time) by SIGKILL."""

    force: bool = False


class Ticked(Struct, frozen=True):
    pass


Event = (
    Spawned
    | BecameReady
    | Refused
    | Ended
    | AddAsked
    | RemoveAsked
    | StartAsked
    | StopAsked
    | PowerLost
    | EndAsked
    | Ticked
)


class Spawn(Struct, frozen=True):
    name: Name
    incarnation: Incarnation


class Send(Struct, frozen=True):
    name: Name
    signal: signal.Signals


class Tell(Struct, frozen=True):
    """A line for the watchers: started, stopped (as asked, or by itself without a fault), died."""

    word: str
    name: Name


class Opened(Struct, frozen=True):
    """Every process that clients wait for is ready, for the first time."""


class GiveUp(Struct, frozen=True):
    """The cluster cannot start; its processes are being ended."""

    sentence: str


class Finish(Struct, frozen=True):
    """Everything has ended."""


Action = Spawn | Send | Tell | Opened | GiveUp | Finish


class Crash(Struct, frozen=True):
    """A process that ended by a fault, for `status` and the log."""

    name: Name
    pid: int
    incarnation: Incarnation
    code: int
    at: Instant
    sentence: str


class Process(Struct):
    """What is known of one name."""

    name: Name
    restarts: bool
    """Spawned again when it ends by a fault."""
    phase: Phase = Phase.WAITING
    pid: int = 0
    incarnation: Incarnation = Incarnation(0)
    code: int = 0
    since: Instant = Instant(0)
    """When the present phase began."""
    due: Instant = Instant(0)
    """When a waiting process is to be spawned."""
    failures: int = 0
    """Short lives in a row that speak against the next one."""
    kills: int = 0
    """Short lives in a row that others ended."""
    sentence: str = ""
    stop_asked: bool = False
    spawning: bool = False

    @property
    def is_alive(self) -> bool:
        return self.phase in {Phase.STARTING, Phase.RUNNING}


class Plan(Struct):
    """The machine: events in, actions out."""

    processes: dict[Name, Process]
    next_incarnation: Incarnation
    leading: Name = Name(Role.COORDINATOR, 0)
    """The coordinator that said last that it leads; it may have died since."""
    restart: bool = False
    """Brokers that end by a fault are started again, not the coordinators only."""
    opened: bool = False
    ending: bool = False
    forced: bool = False
    finished: bool = False
    crashes: deque[Crash] = field(default_factory=lambda: deque(maxlen=CRASHES_KEPT_MAX))

    @classmethod
    def of(cls, names: Sequence[Name], *, restart: bool, next_incarnation: Incarnation) -> "Plan":
        """Brokers come back by themselves only where `restart` says so; the coordinators always."""
        plan = cls({}, next_incarnation, restart=restart)
        for name in names:
            plan._add(name)
        return plan

    def step(self, now: Instant, event: Event) -> list[Action]:
        actions: list[Action] = []
        match event:
            case Spawned(name, pid):
                actions = self._spawned(now, self.processes[name], pid)
            case BecameReady(name, leads):
                actions = self._ready(now, self.processes[name], leads=leads)
            case Refused(name, sentence):
                self.processes[name].sentence = sentence
            case Ended(name, code):
                actions = self._ended(now, self.processes[name], code)
            case AddAsked() | RemoveAsked():
                self._change_members(now, event)
            case StartAsked(name):
                self._start(now, self.processes[name])
            case StopAsked() | PowerLost():
                actions = self._take_down(event)
            case EndAsked(force):
                actions = self._end(force=force)
            case Ticked():
                pass
            case _:
                assert_never(event)
        return actions + self._due(now)

    def deadline(self) -> Instant | None:
        """When the next waiting process is to be spawned."""
        if self.ending:
            return None
        waiting = [p.due for p in self.processes.values() if self._may_spawn(p)]
        return min(waiting, default=None)

    def stands_by(self, name: Name) -> bool:
        """Whether it is one of the coordinators, but not the one that leads."""
        return name.role is Role.COORDINATOR and name != self.leading

    def others_live(self, name: Name) -> bool:
        """Whether another coordinator leads, or could."""
        return any(other != name for other in self._alive(Role.COORDINATOR))

    def not_ready(self) -> list[Process]:
        return [p for p in self.processes.values() if p.phase is not Phase.RUNNING]

    def _change_members(self, now: Instant, event: AddAsked | RemoveAsked) -> None:
        if isinstance(event, AddAsked):
            self._start(now, self._add(event.name))
            return
        assert self.processes[event.name].phase is Phase.ENDED, self.processes[event.name]
        del self.processes[event.name]

    def _add(self, name: Name) -> Process:
        assert name not in self.processes, name
        process = Process(name, self.restart or name.role is not Role.BROKER)
        self.processes[name] = process
        return process

    def _due(self, now: Instant) -> list[Action]:
        if self.ending:
            return []
        due = [
            p
            for p in self.processes.values()
            if self._may_spawn(p) and p.due <= now and not p.spawning
        ]
        return [self._spawn(process) for process in due]

    def _may_spawn(self, process: Process) -> bool:
        """Whether it waits for its time only: what no start waits for takes no time of one."""
        return process.phase is Phase.WAITING and (self.opened or _opens_with(process.name))

    def _spawn(self, process: Process) -> Action:
        process.spawning = True
        process.incarnation = self.next_incarnation
        self.next_incarnation = Incarnation(self.next_incarnation + 1)
        return Spawn(process.name, process.incarnation)

    def _spawned(self, now: Instant, process: Process, pid: int) -> list[Action]:
        assert process.phase is Phase.WAITING, process
        assert process.spawning, process
        process.spawning = False
        process.phase = Phase.STARTING
        process.since = now
        process.pid = pid
        process.sentence = ""
        process.stop_asked = False
        told: list[Action] = [Tell("started", process.name)]
        return told + (self._stop(process) if self.ending else [])

    def _ready(self, now: Instant, process: Process, *, leads: bool) -> list[Action]:
        if leads and process.name.role is Role.COORDINATOR:
            self.leading = process.name
        if process.phase is not Phase.STARTING:
            return []
        process.phase = Phase.RUNNING
        process.since = now
        missing = any(_opens_with(p.name) for p in self.not_ready())
        if self.opened or self.ending or missing:
            return []
        self.opened = True
        return [Opened()]

    def _start(self, now: Instant, process: Process) -> None:
        assert not process.is_alive, process
        if self.ending or process.spawning:
            return
        process.phase = Phase.WAITING
        process.due = now
        process.failures = process.kills = 0
        process.stop_asked = False

    def _stop(self, process: Process) -> list[Action]:
        if process.phase is Phase.WAITING and not process.spawning:
            process.phase = Phase.ENDED
        if not process.is_alive:
            return []
        process.stop_asked = True
        # A stopped (paused) process must run to take the first signal.
        return [Send(process.name, signal.SIGTERM), Send(process.name, signal.SIGCONT)]

    def _take_down(self, event: StopAsked | PowerLost) -> list[Action]:
        process = self.processes[event.name]
        actions = self._stop(process)
        if isinstance(event, PowerLost) and process.is_alive:
            return [Send(process.name, signal.SIGKILL)]
        return actions

    def _ended(self, now: Instant, process: Process, code: int) -> list[Action]:
        assert process.is_alive, process
        lived = now - process.since if process.phase is Phase.RUNNING else 0
        was_ready = process.phase is Phase.RUNNING
        process.phase = Phase.ENDED
        process.code = code
        process.since = now
        fault = code != 0 and not (process.stop_asked and code == -signal.SIGTERM)
        if fault:
            self._keep_crash(now, process)
        actions: list[Action] = [Tell("died" if fault else "stopped", process.name)]
        if self.ending:
            return actions + self._end_next()
        if not self.opened:
            return actions + self._give_up(process, was_ready=was_ready)
        if process.restarts and not process.stop_asked:
            self._count_death(process, lived, was_killed=was_ready and code == -signal.SIGKILL)
            self._wait_to_restart(now, process)
        return actions

    def _keep_crash(self, now: Instant, process: Process) -> None:
        self.crashes.append(
            Crash(
                process.name,
                process.pid,
                process.incarnation,
                process.code,
                now,
                process.sentence,
            )
        )

    def _count_death(self, process: Process, lived: int, *, was_killed: bool) -> None:
        if lived >= LIVED_LONG_ENOUGH:
            process.failures = process.kills = 0
        if was_killed and process.kills < KILLS_FORGIVEN_MAX:
            process.kills += 1
        else:
            process.failures += 1

    def _wait_to_restart(self, now: Instant, process: Process) -> None:
        delay = 0
        if process.failures > 1:
            doublings = min(process.failures - 2, _RESTART_DOUBLINGS_MAX)
            delay = min(RESTART_DELAY_FIRST << doublings, RESTART_DELAY_MAX)
        process.phase = Phase.WAITING
        process.due = Instant(now + delay)

    def _give_up(self, process: Process, *, was_ready: bool) -> list[Action]:
        moment = "before the cluster was up" if was_ready else "before it was ready"
        why = process.sentence or f"it ended {moment} ({ending(process.code)})"
        return [GiveUp(f"cannot start {process.name}: {why}"), *self._end(force=False)]

    def _end(self, *, force: bool) -> list[Action]:
        if self.ending and not (force and not self.forced):
            return []
        self.ending = True
        self.forced = self.forced or force
        for process in self.processes.values():
            if process.phase is Phase.WAITING and not process.spawning:
                process.phase = Phase.ENDED
        return self._end_next()

    def _end_next(self) -> list[Action]:
        """Ask those to end whose turn it is; when none is left, finish."""
        if self.forced:
            return [Send(name, signal.SIGKILL) for name in self._alive()] or self._finish()
        for role in STOP_ORDER:
            alive = self._alive(role)
            # Those first who would take the place of the one that leads.
            standbys = [name for name in alive if self.stands_by(name)]
            if alive:
                return self._stop_all(standbys or alive)
        return self._finish()

    def _alive(self, role: Role | None = None) -> list[Name]:
        """Of one role, or all."""
        alive = [p.name for p in self.processes.values() if p.is_alive]
        return [name for name in alive if role in {None, name.role}]

    def _stop_all(self, names: Sequence[Name]) -> list[Action]:
        """Those that have not been asked yet."""
        unasked = [self.processes[n] for n in names if not self.processes[n].stop_asked]
        return [action for process in unasked for action in self._stop(process)]

    def _finish(self) -> list[Action]:
        if self.finished or any(p.spawning for p in self.processes.values()):
            return []
        self.finished = True
        return [Finish()]


def _opens_with(name: Name) -> bool:
    """Whether the cluster is not up without it."""
    return name.role is not Role.TRANSACTION_COORDINATOR


def ending(code: int) -> str:
    """How a process ended, for people."""
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
