"""What the supervisor does when asked through its socket, and when the answer is due.

An answer is given when what was asked for is so: a killed process is dead, a paused one stopped,
a started one ready. What does not come true in time is answered with a sentence.
"""

import signal
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from tidelog.kernel.failures import CannotStartError
from tidelog.kernel.instant import Instant, s
from tidelog.node.ipc.layout import Role
from tidelog.node.runtime.process import EventLog, printable
from tidelog.tools.supervisor.plan import (
    Event,
    Name,
    Phase,
    Plan,
    Process,
    StartAsked,
    StopAsked,
    ending,
)
from tidelog.tools.supervisor.service import Connection, Document
from tidelog.tools.supervisor.status import role_word

FAILED, WRONG_USAGE, NOT_FOUND, TIMED_OUT = 1, 2, 3, 4
_SIGNALS_WITHIN = s(5)
_STARTS_WITHIN = s(60)
_STOPS_WITHIN = s(60)
_WAIT_SECONDS_MAX = 86_400
_SHOWN_CHARS_MAX = 100
_ROLES = {
    role_word(Role.BROKER): Role.BROKER,
    role_word(Role.COORDINATOR): Role.COORDINATOR,
    role_word(Role.STANDBY): Role.COORDINATOR,
    role_word(Role.TRANSACTION_COORDINATOR): Role.TRANSACTION_COORDINATOR,
}

log = EventLog("supervisor")


class RefusedError(Exception):
    """What was asked for cannot be done; the text says what to do."""

    def __init__(self, sentence: str, code: int) -> None:
        super().__init__(sentence)
        self.code = code


class Desk(Protocol):
    """The supervisor, as seen from here."""

    @property
    def plan(self) -> Plan: ...

    def now(self) -> Instant: ...

    def take(self, event: Event) -> None:
        """A step of the plan, and everything that follows from it."""
        ...

    def add_broker(self) -> Name:
        """One more, being started; CannotStartError where there is no place for it."""
        ...

    def remove_broker(self, name: Name) -> None:
        """One that has ended; CannotStartError where that cannot be written down."""
        ...

    def send(self, name: Name, number: signal.Signals) -> None: ...

    def lose_power(self, names: Sequence[Name]) -> None:
        """Kill them; CannotStartError where it cannot be written down that they lost it."""
        ...

    def is_stopped(self, name: Name) -> bool: ...

    def is_ending(self, name: Name) -> bool:
        """A process that was killed or is exiting, though its end has not been noted yet."""
        ...

    def status(self) -> dict[str, Any]: ...

    def told_so_far(self) -> list[Document]:
        """For a new watcher: one line for each process."""
        ...

    def end(self, *, force: bool, sync: bool) -> int:
        """Begin to end the cluster; the supervisor's pid."""
        ...


class _Waiting(Struct, frozen=True):
    connection: Connection
    answer: Callable[[], Document | None]
    deadline: Instant
    late: Callable[[], str]


class Answers:
    """Takes requests; `look` again after everything that happened."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._waiting: list[_Waiting] = []

    def deadline(self) -> Instant | None:
        return min((waiting.deadline for waiting in self._waiting), default=None)

    @property
    def is_impatient(self) -> bool:
        """Someone waits for what no descriptor announces."""
        return bool(self._waiting)

    def request(self, connection: Connection, document: Document) -> None:
        try:
            self._do(connection, document)
        except RefusedError as error:
            connection.answer({"ok": False, "error": str(error), "code": error.code})
        except Exception as error:  # noqa: BLE001 -- no request may end the cluster
            answer = _bug(error, document)
            if connection.answer_due:
                connection.answer(answer)
        self.look()

    def look(self) -> None:
        """Answer whatever has come true or is overdue."""
        now = self._desk.now()
        still: list[_Waiting] = []
        due: list[tuple[Connection, Document]] = []
        for one in self._waiting:
            answer = _answered(one) if one.connection.is_open else {}
            if answer is None and now >= one.deadline:
                answer = {"ok": False, "error": one.late(), "code": TIMED_OUT}
            if answer is None:
                still.append(one)
            else:
                due.append((one.connection, answer))
        self._waiting = still
        # Only now: an answer lets the connection's next request in, and that may wait too.
        for connection, answer in due:
            connection.answer(answer)

    def _do(self, connection: Connection, document: Document) -> None:
        match document.get("do"):
            case "status":
                connection.answer({"ok": True, "status": self._desk.status()})
            case "watch":
                self._watch(connection)
            case "wait":
                self._wait_until_ready(connection, document)
            case "down":
                force, sync = _flag(document, "force"), _flag(document, "sync")
                connection.answer({"ok": True, "pid": self._desk.end(force=force, sync=sync)})
            case "start" | "stop" | "kill" | "pause" | "resume" as what:
                self._one(connection, what, self._named(document))
            case "add":
                self._add(connection)
            case "remove":
                self._remove(connection, self._named(document))
            case "restart":
                self._restart(connection, self._named(document))
            case "power-loss" | "power-back" as what:
                self._power(connection, what, document)
            case what:
                raise RefusedError(
                    f"the supervisor does not know how to {_shown(what)}", WRONG_USAGE
                )

    def _watch(self, connection: Connection) -> None:
        for line in self._desk.told_so_far():
            connection.send(line)
        connection.watches = True

    def _named(self, document: Document) -> Process:
        processes = self._desk.plan.processes
        word = printable(document.get("role"), _SHOWN_CHARS_MAX)
        process_id = document.get("id", 0)
        if type(process_id) is not int:  # nor is True one
            raise RefusedError(f"id must be a whole number: {_shown(process_id)}", WRONG_USAGE)
        name = Name(_ROLES.get(word, Role.NONE), process_id)
        if word == role_word(Role.COORDINATOR):
            name = self._desk.plan.leading  # whichever that is
        elif word == role_word(Role.STANDBY):
            self._check_stands_by(name)
        if name not in processes:
            ids = ", ".join(str(n.process_id) for n in processes if n.role is Role.BROKER)
            asked = f"broker {process_id}" if name.role is Role.BROKER else word
            raise RefusedError(f"there is no {asked}: the brokers are {ids}", NOT_FOUND)
        self._check_running()
        return processes[name]

    def _check_stands_by(self, name: Name) -> None:
        plan = self._desk.plan
        ids = [str(other.process_id) for other in plan.processes if plan.stands_by(other)]
        if str(name.process_id) in ids:
            return
        there = f"they are {', '.join(ids)}" if ids else "start with --standby-coordinators N"
        raise RefusedError(f"there is no standby {name.process_id}: {there}", NOT_FOUND)

    def _check_running(self) -> None:
        if self._desk.plan.ending:
            raise RefusedError("the cluster is ending: start it again with tidelog up", FAILED)
        if not self._desk.plan.opened:
            raise RefusedError("the cluster is still starting: see tidelog wait ready", FAILED)

    def _add(self, connection: Connection) -> None:
        self._check_running()
        try:
            name = self._desk.add_broker()
        except CannotStartError as error:
            raise RefusedError(f"no broker can be added: {error}", FAILED) from error
        process = self._desk.plan.processes[name]

        def answer() -> Document | None:
            so_far = _started(process)
            return so_far if so_far is None else {**so_far, "id": name.process_id}

        self._wait(connection, answer, _STARTS_WITHIN, lambda: _not_in_time("start", process))

    def _remove(self, connection: Connection, process: Process) -> None:
        """Whoever asks has moved away what it held."""
        name = process.name
        brokers = [one for one in self._desk.plan.processes if one.role is Role.BROKER]
        if name not in brokers:
            raise RefusedError("only brokers can be removed", WRONG_USAGE)
        if process.is_alive and self._is_ending(process):
            raise RefusedError(f"{name} is ending: try again in a moment", FAILED)
        if process.phase is not Phase.ENDED:
            raise RefusedError(
                f"{name} runs: stop it with tidelog broker stop {name.process_id}", FAILED
            )
        if len(brokers) == 1:
            raise RefusedError(f"{name} is the last one: end the cluster with tidelog down", FAILED)
        try:
            self._desk.remove_broker(name)
        except CannotStartError as error:
            raise RefusedError(f"{name} cannot be removed: {error}", FAILED) from error
        connection.answer(_is_so(process.pid))

    def _power(self, connection: Connection, what: str, document: Document) -> None:
        if what == "power-loss":
            self._lose_power(connection, document)
        else:
            self._power_back()
            connection.answer({"ok": True})

    def _lose_power(self, connection: Connection, document: Document) -> None:
        """The answer tells whom it was, once they are dead."""
        self._check_running()
        names = self._who_loses_power(document)
        try:
            self._desk.lose_power(names)
        except CannotStartError as error:
            raise RefusedError(f"nobody has lost power: {error}", FAILED) from error
        processes = [self._desk.plan.processes[name] for name in names]

        def answer() -> Document | None:
            return None if any(process.is_alive for process in processes) else {"ok": True}

        self._wait(connection, answer, _SIGNALS_WITHIN, lambda: "not all of them ended in time")

    def _who_loses_power(self, document: Document) -> list[Name]:
        """The whole machine, but for the supervisor, or some brokers."""
        if _flag(document, "all"):
            return list(self._desk.plan.processes)
        ids = document.get("ids")
        if not isinstance(ids, list) or not ids:
            raise RefusedError(f"ids must be a list of brokers: {_shown(ids)}", WRONG_USAGE)
        named = [self._named({"role": "broker", "id": one}) for one in ids]
        return list(dict.fromkeys(process.name for process in named))

    def _power_back(self) -> None:
        """Nobody else starts a coordinator that lost power."""
        for name, process in self._desk.plan.processes.items():
            if name.role is not Role.BROKER and process.phase is Phase.ENDED:
                self._desk.take(StartAsked(name))

    def _is_ending(self, process: Process) -> bool:
        return process.stop_asked or self._desk.is_ending(process.name)

    def _one(self, connection: Connection, what: str, process: Process) -> None:
        if what == "start" and process.is_alive and self._is_ending(process):
            self._power_back()
            self._start_after_its_end(connection, process, process.pid)
            return
        if (what == "start") == process.is_alive:
            raise RefusedError(_wrong_state(what, process), FAILED)
        match what:
            case "start":
                self._power_back()
                self._desk.take(StartAsked(process.name))
                self._wait_started(connection, process)
            case "stop":
                self._desk.take(StopAsked(process.name))
                self._wait_ended(connection, process, _STOPS_WITHIN)
            case "kill":
                self._desk.send(process.name, signal.SIGKILL)
                self._wait_ended(connection, process, _SIGNALS_WITHIN)
            case "pause":
                self._desk.send(process.name, signal.SIGSTOP)
                self._wait_stopped(connection, process, wanted=True)
            case _:
                self._desk.send(process.name, signal.SIGCONT)
                self._wait_stopped(connection, process, wanted=False)

    def _restart(self, connection: Connection, process: Process) -> None:
        """Stop, where it runs, and start."""
        pid = process.pid if process.is_alive else 0
        self._desk.take(StopAsked(process.name) if process.is_alive else StartAsked(process.name))
        self._start_after_its_end(connection, process, pid)

    def _start_after_its_end(self, connection: Connection, process: Process, pid: int) -> None:
        """Start it as soon as this life of it has ended; pid 0 where none is waited for."""

        def answer() -> Document | None:
            if process.phase is Phase.ENDED and process.pid == pid:
                self._desk.take(StartAsked(process.name))
            return None if process.pid == pid else _started(process)

        self._wait(connection, answer, _STARTS_WITHIN, lambda: _not_in_time("start", process))

    def _wait_started(self, connection: Connection, process: Process) -> None:
        self._wait(
            connection,
            lambda: _started(process),
            _STARTS_WITHIN,
            lambda: _not_in_time("start", process),
        )

    def _wait_ended(self, connection: Connection, process: Process, within: int) -> None:
        pid = process.pid

        def answer() -> Document | None:
            ended = not process.is_alive or process.pid != pid
            return _is_so(pid) if ended else None

        self._wait(connection, answer, within, lambda: _not_in_time("end", process))

    def _wait_stopped(self, connection: Connection, process: Process, *, wanted: bool) -> None:
        pid = process.pid

        def answer() -> Document | None:
            if not process.is_alive or process.pid != pid:
                return {"ok": False, "error": f"{process.name} ended meanwhile", "code": FAILED}
            return _is_so(pid) if self._desk.is_stopped(process.name) == wanted else None

        word = "pause" if wanted else "resume"
        self._wait(connection, answer, _SIGNALS_WITHIN, lambda: _not_in_time(word, process))

    def _wait_until_ready(self, connection: Connection, document: Document) -> None:
        seconds = document.get("timeout_s", 0)
        if not isinstance(seconds, int | float) or not 0 <= seconds <= _WAIT_SECONDS_MAX:
            raise RefusedError("timeout_s must be a number of seconds, at most a day", WRONG_USAGE)
        plan = self._desk.plan

        def answer() -> Document | None:
            if plan.ending:
                return {"ok": False, "error": "the cluster is ending", "code": FAILED}
            paused = any(self._desk.is_stopped(name) for name in plan.processes)
            ready = not plan.not_ready() and not paused
            return {"ok": True, "status": self._desk.status()} if ready else None

        self._wait(connection, answer, s(seconds), self._who_is_not_ready)

    def _who_is_not_ready(self) -> str:
        late = [f"{p.name} is {_state(p)}" for p in self._desk.plan.not_ready()]
        late += [f"{n} is paused" for n in self._desk.plan.processes if self._desk.is_stopped(n)]
        return f"the cluster is not ready: {', '.join(late)}"

    def _wait(
        self,
        connection: Connection,
        answer: Callable[[], Document | None],
        within: int,
        late: Callable[[], str],
    ) -> None:
        deadline = Instant(self._desk.now() + within)
        self._waiting.append(_Waiting(connection, answer, deadline, late))


def _answered(waiting: _Waiting) -> Document | None:
    try:
        return waiting.answer()
    except Exception as error:  # noqa: BLE001 -- as for a request
        return _bug(error, {})


def _bug(error: Exception, document: Document) -> Document:
    """Logged with its place; the answer says that it is no fault of whoever asked."""
    kind = type(error).__name__
    trace = traceback.format_exception(error)
    log.error("request_failed", request=_shown(document), traceback="".join(trace)[-4096:])
    sentence = f"this is a bug: {kind}: {printable(error)}; see tidelog logs supervisor"
    return {"ok": False, "error": sentence, "code": FAILED}


def _flag(document: Document, name: str) -> bool:
    value = document.get(name, False)
    if not isinstance(value, bool):
        raise RefusedError(f"{name} must be true or false: {_shown(value)}", WRONG_USAGE)
    return value


def _shown(value: object) -> str:
    return printable(repr(value), _SHOWN_CHARS_MAX)


def _started(process: Process) -> Document | None:
    if process.phase is Phase.RUNNING:
        return _is_so(process.pid)
    if process.phase is Phase.ENDED:
        why = process.sentence or f"it ended ({ending(process.code)}): see tidelog logs"
        return {"ok": False, "error": f"cannot start {process.name}: {why}", "code": FAILED}
    return None


def _is_so(pid: int) -> Mapping[str, Any]:
    return {"ok": True, "pid": pid}


def _state(process: Process) -> str:
    if process.phase is Phase.ENDED:
        return "stopped" if process.code == 0 else f"down ({ending(process.code)})"
    return "starting"


def _wrong_state(what: str, process: Process) -> str:
    if what == "start":
        return f"{process.name} is already running (pid {process.pid})"
    if process.phase is Phase.WAITING:
        return f"{process.name} is being started: try again in a moment"
    return f"{process.name} is not running: start it with tidelog {_start_command(process.name)}"


def _start_command(name: Name) -> str:
    return f"broker start {name.process_id}" if name.role is Role.BROKER else "up"


def _not_in_time(what: str, process: Process) -> str:
    hint = ""
    if what == "end" and process.name.role is Role.BROKER:
        hint = f", or kill it with tidelog broker kill {process.name.process_id}"
    return f"{process.name} (pid {process.pid}) did not {what} in time: see tidelog logs{hint}"
