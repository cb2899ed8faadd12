"""The supervisor: forks the cluster's processes, waits for whatever happens to them, ends them.

No thread, no event loop of a library, no ZeroMQ: it forks for as long as it lives. It learns of
deaths by pidfd, of signals by a pipe, of everything else by looking four times a second, and when
a child was stopped or goes on.
"""

import contextlib
import gc
import os
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, assert_never

from msgspec import Struct

from tidelog.kernel.failures import CannotStartError
from tidelog.kernel.ids import BrokerId, Incarnation
from tidelog.kernel.instant import Instant, ms, s
from tidelog.kernel.launch import (
    BrokerLaunch,
    CoordinatorLaunch,
    Launch,
    log_file,
    supervisor_socket,
)
from tidelog.node.ipc.board import Board
from tidelog.node.ipc.events import Kind
from tidelog.node.ipc.layout import Role, Slot, SlotState, Word, slot_of
from tidelog.node.log.flush_policy import word_of
from tidelog.node.runtime.cut_off import CannotCutError, cut_off
from tidelog.node.runtime.lives import boot_id, started
from tidelog.node.runtime.process import EventLog, report_failed
from tidelog.node.runtime.recorder import Recorder
from tidelog.tools.supervisor import (
    child,
    disks,
    leftovers,
    membership,
    plan,
    power,
    proc,
    registry,
)
from tidelog.tools.supervisor.answers import Answers
from tidelog.tools.supervisor.entries import Entries
from tidelog.tools.supervisor.folder import INCARNATIONS_RESERVED, DataFolder
from tidelog.tools.supervisor.hang import LOOK_EVERY, HangWatch, Hung, Reading
from tidelog.tools.supervisor.plan import Name, Phase, Plan
from tidelog.tools.supervisor.ports import HOST, PortKeeper
from tidelog.tools.supervisor.report import Report
from tidelog.tools.supervisor.runs import Run
from tidelog.tools.supervisor.service import Document, Service
from tidelog.tools.supervisor.sources import Wish
from tidelog.tools.supervisor.status import VERSION, Seen, document, role_word, state_of

_FORCE_AFTER = s(5)
_FOLDER_EVERY = ms(750)
"""And a look at everything comes every 250 ms: within a second the loss is seen."""
_IMPATIENT_EVERY = ms(2)
_READY_BYTES = 8192
_EXIT_FAILED = 1
_STANDBY = b"standby\n"
_SHORT = {Role.COORDINATOR: "coord", Role.TRANSACTION_COORDINATOR: "txn"}
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

log = EventLog("supervisor")


class Setup(Struct, frozen=True):
    """What a start has prepared for the supervisor."""

    run: Run
    folder: DataFolder
    board: Board
    ports: PortKeeper
    wish: Wish
    restart: bool
    began: Instant


class _Living(Struct):
    """A child that has not been reaped."""

    pid: int
    pidfd: int
    ready_fd: int | None
    since: Instant
    heard: bytes = b""


class Supervisor:
    """One run of one cluster, from its first fork to its last wait."""

    def __init__(self, setup: Setup, entries: Entries, report: Report) -> None:
        self._setup = setup
        self._run = setup.run
        self._entries = entries
        self._report = report
        self._selector = selectors.DefaultSelector()
        self._living: dict[Name, _Living] = {}
        self._hang = HangWatch()
        self._next_look = Instant(0)
        self._next_folder_look = Instant(0)
        self._force_at: Instant | None = None
        self._finished = False
        self._failure: str | None = None
        self._slot = setup.board.writer(slot_of(Role.SUPERVISOR))
        ring = setup.board.ring(slot_of(Role.SUPERVISOR))
        self._recorder = Recorder(ring, log, Incarnation(0))
        cluster = setup.folder.cluster
        self._seats = 1 + (setup.wish.standby_coordinators or 0)
        names = [Name(Role.COORDINATOR, seat) for seat in range(self._seats)]
        names += [Name(Role.BROKER, broker) for broker in cluster.brokers]
        names.append(Name(Role.TRANSACTION_COORDINATOR, 0))
        first = Incarnation(cluster.incarnations_reserved - INCARNATIONS_RESERVED + 1)
        self.plan = Plan.of(names, restart=setup.restart, next_incarnation=first)
        self._answers = Answers(self)
        self._service = Service(
            supervisor_socket(setup.run.runtime_dir),
            self._selector,
            self._answers.request,
            self._is_child,
            self.now,
        )
        self._boot_id = boot_id()

    # -- life -----------------------------------------------------------------------------------

    def run(self) -> int:
        """Until everything has ended; the exit code of `tidelog up`."""
        self._catch_signals()
        self._slot.begin(
            role=Role.SUPERVISOR,
            process_id=0,
            pid=os.getpid(),
            incarnation=Incarnation(0),
            started=started(os.getpid()),
        )
        gc.freeze()
        self.take(plan.Ticked())
        gc.enable()
        while not self._finished:
            self._turn()
        self._recorder.close()
        self._service.close()
        self._report.look()
        if self._failure is not None:
            self._report.failed(self._failure, 1)
            return 1
        return 0

    def _turn(self) -> None:
        for key, mask in self._selector.select(self._patience_s()):
            key.data(mask)
        now = self.now()
        if now >= self._next_look:
            self._look(now)
        if self._force_at is not None and now >= self._force_at:
            self._force_at = None
            self.take(plan.EndAsked(force=True))
        due = self.plan.deadline()
        if due is not None and now >= due:
            self.take(plan.Ticked())
        self._answers.look()
        self._service.look()

    def _is_child(self, pid: int) -> bool:
        return any(living.pid == pid for living in self._living.values())

    def _patience_s(self) -> float:
        if self._service.is_behind:
            return 0
        moments = [self._next_look, self.plan.deadline(), self._force_at, self._answers.deadline()]
        if self._answers.is_impatient:
            moments.append(Instant(self.now() + _IMPATIENT_EVERY))
        first = min(moment for moment in moments if moment is not None)
        return max(0, first - self.now()) / s(1)

    def _catch_signals(self) -> None:
        reader, writer = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        for number in _ENDING_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup leaves it
                signal.signal(number, _wake_only)
        signal.signal(signal.SIGCHLD, _wake_only)  # a child was stopped or goes on: look at once
        # In the background of a terminal with `stty tostop` this would stop us when we write.
        signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        self._selector.register(reader, selectors.EVENT_READ, self._signalled(reader))

    def _signalled(self, reader: int) -> Callable[[int], None]:
        def receive(_mask: int) -> None:
            for number in os.read(reader, 64):
                if number == signal.SIGCHLD:
                    self._next_look = self.now()
                    continue
                again = self.plan.ending and number == signal.SIGINT
                log.info("signal_received", signal=signal.Signals(number).name)
                if not self.plan.ending:
                    self._report.progress("stopping; Ctrl-C again kills what does not end")
                self.end(force=False, sync=False)
                if again:
                    self.take(plan.EndAsked(force=True))

        return receive

    # -- the plan's shell -----------------------------------------------------------------------

    def now(self) -> Instant:
        return Instant(time.monotonic_ns())

    def take(self, event: plan.Event) -> None:
        for action in self.plan.step(self.now(), event):
            self._perform(action)

    def _perform(self, action: plan.Action) -> None:
        match action:
            case plan.Spawn(name, incarnation):
                self._spawn(name, incarnation)
            case plan.Send(name, number):
                self.send(name, number)
            case plan.Tell(word, name):
                self._tell(word, name)
            case plan.Opened():
                self._open()
            case plan.GiveUp(sentence):
                self._failure = sentence
            case plan.Finish():
                self._finished = True
            case _:
                assert_never(action)

    def _spawn(self, name: Name, incarnation: Incarnation) -> None:
        try:
            self._reserve_incarnations(incarnation)
            forked = child.fork(self._work(name, incarnation))
            self._watch(name, forked)
        except (OSError, CannotStartError) as error:
            self.take(plan.Spawned(name, 0))
            self.take(plan.Refused(name, f"no process could be made ({error})"))
            self.take(plan.Ended(name, 1))
            return
        self.take(plan.Spawned(name, forked.pid))

    def _watch(self, name: Name, forked: child.Forked) -> None:
        """OSError where it cannot be watched; then there is no such process any more."""
        living = _Living(forked.pid, forked.pidfd, forked.ready_fd, self.now())
        watch = {
            forked.pidfd: lambda _: self._reap(name),
            forked.ready_fd: lambda _: self._hear(name, living),
        }
        try:
            for descriptor, call in watch.items():
                self._selector.register(descriptor, selectors.EVENT_READ, call)
        except OSError:
            child.end(forked.pid)
            for descriptor in watch:
                with contextlib.suppress(KeyError):
                    self._selector.unregister(descriptor)
                os.close(descriptor)
            raise
        self._living[name] = living

    def _reserve_incarnations(self, incarnation: Incarnation) -> None:
        cluster = self._setup.folder.cluster
        if incarnation > cluster.incarnations_reserved:
            cluster.incarnations_reserved += INCARNATIONS_RESERVED
            self._setup.folder.save_cluster()

    def _work(self, name: Name, incarnation: Incarnation) -> child.Work:
        role = role_word(name.role)
        short = f"broker-{name.process_id}" if name.role is Role.BROKER else _SHORT[name.role]
        return child.Work(
            role=role,
            process_id=name.process_id,
            short=short,
            data_dir=self._run.data_dir,
            main=self._main(name, incarnation),
            close_inherited=self._close_inherited,
        )

    def _main(self, name: Name, incarnation: Incarnation) -> Callable[[int], int]:
        run, cluster, wish = self._run, self._setup.folder.cluster, self._setup.wish
        is_broker = name.role is Role.BROKER
        supervisor = os.getpid()
        standby = self.plan.others_live(name)
        seat: dict[str, Any] = {"seat": name.process_id, "seats": self._seats, "standby": standby}

        def main(ready_fd: int) -> int:
            leftovers.hold(run)
            refusal = disks.refuse_to_provide(run.data_dir, name, cluster.disk_bytes)
            if refusal is not None:
                log.error("start_failed", reason=refusal)
                report_failed(ready_fd, refusal)
                return _EXIT_FAILED
            common: dict[str, Any] = {
                "run_id": run.run_id,
                "cluster_id": cluster.cluster_id,
                "supervisor_pid": supervisor,
                "incarnation": incarnation,
                "data_dir": run.data_dir,
                "runtime_dir": run.runtime_dir,
                "boot_id": self._boot_id,
                "disk_generation": power.generation_of(cluster, name),
                "settings": wish.settings_of(name.process_id) if is_broker else wish.settings,
                "ready_fd": ready_fd,
                "board_slot": slot_of(name.role, name.process_id),
            }
            if name.role is Role.TRANSACTION_COORDINATOR:
                return self._entries.transactions(Launch(**common))
            if not is_broker:
                return self._entries.coordinator(CoordinatorLaunch(**common, **seat))
            port = self._port(name)
            broker = BrokerId(name.process_id)
            return self._entries.broker(
                BrokerLaunch(**common, broker_id=broker, host=HOST, port=port)
            )

        return main

    def _close_inherited(self) -> None:
        """In a child. What stands in an epoll is only closed: the epoll itself is the parent's."""
        self._service.close_inherited()
        self._setup.ports.close()
        self._setup.board.close()
        self._setup.folder.let_go()

    def send(self, name: Name, number: signal.Signals) -> None:
        living = self._living.get(name)
        if living is None:
            return
        try:
            signal.pidfd_send_signal(living.pidfd, number)
        except ProcessLookupError:
            return  # dead, and its death is about to be noticed
        log.info("signal_sent", of=str(name), to=living.pid, signal=number.name)

    def add_broker(self) -> Name:
        """One more, with the next id and its port; it stays a part of this cluster's data."""
        setup = self._setup
        broker, self._run = membership.add(setup.folder, setup.ports, self._run)
        name = Name(Role.BROKER, broker)
        log.info("broker_added", of=str(name), port=self._port(name))
        self.take(plan.AddAsked(name))
        return name

    def remove_broker(self, name: Name) -> None:
        """One that has ended and will not be started again: nothing of it stays but its folder."""
        setup, port = self._setup, self._port(name)
        self._run = membership.remove(setup.folder, setup.ports, self._run, name.process_id)
        log.info("broker_removed", of=str(name), port=port)
        self.take(plan.RemoveAsked(name))

    def lose_power(self, names: Sequence[Name]) -> None:
        """All at one moment, and each is told of it at its next start."""
        power.note_losses(self._setup.folder, names)
        log.warning("power_lost", of=[str(name) for name in names])
        for name in names:
            self.take(plan.PowerLost(name))

    def _tell(self, word: str, name: Name) -> None:
        process = self.plan.processes[name]
        # First of all: leaders move by this, and a log on a sick disk may keep us waiting.
        self._service.tell(self._event(word, process))
        fields: dict[str, object] = {"incarnation": process.incarnation}
        if word != "started":
            fields |= {"how": plan.ending(process.code), "sentence": process.sentence}
        write = log.warning if word == "died" else log.info
        write(f"process_{word}", of=str(name), its_pid=process.pid, **fields)
        if word == "started":
            self._record(Kind.STARTED, process)
        else:
            self._record(Kind.ENDED, process, process.code)
        if word == "died" and self.plan.opened and not self.plan.ending:
            self._report.progress(_news_of_a_death(process))

    def _record(self, kind: Kind, process: plan.Process, *more: int) -> None:
        """For the timelines of partitions, to which brokers are all that matters."""
        if process.name.role is Role.BROKER:
            broker = process.name.process_id
            self._recorder.record_broker(kind, broker, process.incarnation, *more)

    def _event(self, word: str, process: plan.Process) -> Document:
        return {
            "event": word,
            "role": role_word(process.name.role),
            "id": process.name.process_id,
            "pid": process.pid,
            "incarnation": process.incarnation,
        }

    def told_so_far(self) -> list[Document]:
        lines = []
        for process in self.plan.processes.values():
            if process.pid:
                over = "died" if process.code else "stopped"
                word = "started" if process.is_alive else over
                lines.append(self._event(word, process))
        hung = [p for p in self.plan.processes.values() if self._hang.is_hung(p.name)]
        return lines + [self._event("hung", process) for process in hung]

    def _open(self) -> None:
        seconds = round((self.now() - self._setup.began) / s(1), 3)
        log.info("cluster_ready", after_s=seconds)
        self._slot.words[Word.STATE] = SlotState.RUNNING
        self._slot.publish()
        run = self._run
        self._report.ready(
            {
                "version": VERSION,
                "cluster": run.cluster,
                "cluster_id": self._setup.folder.cluster.cluster_id,
                "bootstrap": run.bootstrap,
                "brokers": len(self._setup.folder.cluster.brokers),
                "data": run.data_dir,
                "pid": run.pid,
                "seconds": seconds,
            }
        )

    # -- what children say and do ---------------------------------------------------------------

    def _hear(self, name: Name, living: _Living) -> None:
        if living.ready_fd is None:
            return  # it had ended before it was watched, and was reaped first in this very turn
        try:
            chunk = os.read(living.ready_fd, _READY_BYTES)
        except BlockingIOError:
            return
        living.heard = (living.heard + chunk)[:_READY_BYTES]
        if living.heard.startswith(_STANDBY):
            living.heard = living.heard.removeprefix(_STANDBY)
            self.take(plan.BecameReady(name, leads=False))
        if chunk and b"\n" not in living.heard:
            return
        self._stop_hearing(living)
        word, _, sentence = living.heard.decode("utf-8", "replace").strip().partition(": ")
        if word == "ready":
            if self.plan.stands_by(name):
                log.info("took_over", of=str(name))
            self.take(plan.BecameReady(name))
        elif word == "failed":
            self.take(plan.Refused(name, sentence))

    def _stop_hearing(self, living: _Living) -> None:
        if living.ready_fd is not None:
            self._selector.unregister(living.ready_fd)
            os.close(living.ready_fd)
            living.ready_fd = None

    def _reap(self, name: Name) -> None:
        living = self._living[name]
        code = child.reap(living.pidfd)
        if code is None:
            return
        if living.ready_fd is not None:
            self._hear(name, living)  # its last words, if they have not been read
            self._stop_hearing(living)
        self._selector.unregister(living.pidfd)
        os.close(living.pidfd)
        del self._living[name]
        if code > 0 and not self.plan.processes[name].sentence:
            self._ask_its_log(name, code)
        self.take(plan.Ended(name, code))

    def _ask_its_log(self, name: Name, code: int) -> None:
        """A process that ended by a bug has said so on standard error, which is its log."""
        words = child.last_words(
            log_file(self._run.data_dir, role_word(name.role), name.process_id)
        )
        if words:
            self.take(plan.Refused(name, f"{plan.ending(code)}, its last words: {words}"))

    # -- looking --------------------------------------------------------------------------------

    def _look_at_folder(self, now: Instant) -> None:
        """Without its folder the cluster ends, all of it at once: by their paths its processes
        would write into another folder, or into none, and nobody would find them to end them."""
        if now < self._next_folder_look or self.plan.forced:
            return
        self._next_folder_look = Instant(now + _FOLDER_EVERY)
        lost = self._setup.folder.lost()
        if lost is not None:
            log.error("data_folder_lost", reason=lost)
            registry.note(self._run, ended=lost)
            self._failure = f"cluster {self._run.cluster!r} has ended: {lost}"
            self.take(plan.EndAsked(force=True))

    def _look(self, now: Instant) -> None:
        self._look_at_folder(now)
        self._slot.heartbeat(now)
        self._recorder.turn()
        self._report.look()
        readings = {
            name: self._reading(name, living)
            for name, living in self._living.items()
            if self._is_watched(self.plan.processes[name])
        }
        for change in self._hang.look(now, readings):
            process = self.plan.processes[change.name]
            if isinstance(change, Hung):
                self._service.tell(self._event("hung", process))
                log.warning("process_hung", of=str(change.name), why=change.why)
                self._record(Kind.HUNG, process)
                self._end_hang(change.name)
            else:
                self._service.tell(self._event("resumed", process))
                log.warning("process_resumed", of=str(change.name))
                self._record(Kind.RESUMED, process)
        due = self._hang.deadline()
        regular = Instant(now + LOOK_EVERY)
        self._next_look = regular if due is None else min(regular, due)

    def _end_hang(self, name: Name) -> None:
        """What others must not wait for. The coordinator has been told of a broker before."""
        if self.plan.ending:
            return
        if name.role is not Role.BROKER:
            self.send(name, signal.SIGKILL)  # a hung one keeps its locks
            return
        living = self._living[name]
        try:
            cut = cut_off(living.pid, living.pidfd, self._port(name))
        except CannotCutError as error:
            log.warning("clients_not_cut_off", of=str(name), reason=str(error))
            return
        log.info("clients_cut_off", of=str(name), connections=cut.connected)
        self._record(Kind.CUT_OFF, self.plan.processes[name], cut.connected)

    def _port(self, name: Name) -> int:
        return self._setup.folder.cluster.ports[name.process_id]

    def _is_watched(self, process: plan.Process) -> bool:
        """Who is stopped before it is ready would never be. A broker stays so: until it is ready
        nobody relies on it."""
        if process.phase is Phase.STARTING:
            return self.plan.opened and process.name.role is not Role.BROKER
        return process.phase is Phase.RUNNING

    def _reading(self, name: Name, living: _Living) -> Reading:
        seen = proc.activity(living.pid)
        is_ready = self.plan.processes[name].phase is Phase.RUNNING
        return Reading(
            pid=living.pid,
            stopped=seen.stopped,
            heartbeat=self._heartbeat(name) if is_ready else Instant(0),
            runnable=seen.runnable,
            cpu_ns=seen.cpu_ns,
            switches=proc.switches(living.pid) if seen.stopped else 0,
            replaceable=name == self.plan.leading and self._has_standby(),
        )

    def _has_standby(self) -> bool:
        """Ready, and not stopped itself."""
        running = [p.name for p in self.plan.processes.values() if p.phase is Phase.RUNNING]
        return any(self.plan.stands_by(name) and not self.is_stopped(name) for name in running)

    def _heartbeat(self, name: Name) -> Instant:
        slot = self._slot_of(name)
        return slot.heartbeat if slot else Instant(0)

    def _slot_of(self, name: Name) -> Slot | None:
        """What the present life has published."""
        slot = self._setup.board.read_slot(slot_of(name.role, name.process_id))
        ours = slot is not None and slot[Word.INCARNATION] == self.plan.processes[name].incarnation
        return slot if ours else None

    def is_stopped(self, name: Name) -> bool:
        return name in self._living and proc.is_stopped(self._living[name].pid)

    def is_ending(self, name: Name) -> bool:
        return name in self._living and proc.is_ending(self._living[name].pid)

    def status(self) -> dict[str, Any]:
        state = "starting"
        if self.plan.ending:
            state = "stopping"
        elif self.plan.opened:
            state = "running"
        seen = [self._seen_self(), *(self._seen(p) for p in self.plan.processes.values())]
        return document(self._run, self._setup.folder.cluster.cluster_id, state, seen)

    def _seen_self(self) -> Seen:
        memory = proc.memory_of(os.getpid())
        return Seen(
            name=Name(Role.SUPERVISOR, 0),
            role=role_word(Role.SUPERVISOR),
            pid=os.getpid(),
            state="running",
            uptime_s=(self.now() - self._setup.began) / s(1),
            rss_bytes=memory.rss_bytes,
            pss_bytes=memory.pss_bytes,
            port=None,
            flush_policy=None,
            slot=None,
        )

    def _seen(self, process: plan.Process) -> Seen:
        living = self._living.get(process.name)
        memory = proc.memory_of(living.pid) if living else proc.Memory(0, 0)
        slot = self._slot_of(process.name) if living else None
        is_broker = process.name.role is Role.BROKER
        broker = process.name.process_id
        return Seen(
            name=process.name,
            role=self._role_word(process.name),
            pid=living.pid if living else None,
            state=state_of(
                process.phase,
                process.code,
                stopped=self.is_stopped(process.name),
                fenced=slot is not None and slot[Word.STATE] == SlotState.FENCED,
            ),
            uptime_s=(self.now() - living.since) / s(1) if living else 0.0,
            rss_bytes=memory.rss_bytes,
            pss_bytes=memory.pss_bytes,
            port=self._setup.folder.cluster.ports[broker] if is_broker else None,
            flush_policy=_flush_policy(slot, self._setup.wish, broker) if is_broker else None,
            slot=slot,
        )

    def _role_word(self, name: Name) -> str:
        return role_word(Role.STANDBY if self.plan.stands_by(name) else name.role)

    # -- the end --------------------------------------------------------------------------------

    def end(self, *, force: bool, sync: bool) -> int:
        if sync:
            self._slot.words[Word.SYNC_AT_STOP] = 1
        self._slot.words[Word.STATE] = SlotState.STOPPING
        self._slot.publish()
        if force and self._force_at is None:
            self._force_at = Instant(self.now() + _FORCE_AFTER)
        self.take(plan.EndAsked())
        return os.getpid()


def _wake_only(_number: int, _frame: object) -> None:
    """The wake-up pipe carries the number; nothing is done inside a handler."""


def _flush_policy(slot: Slot | None, wish: Wish, broker: int) -> str:
    """As it is now; of one that is down, as it was told."""
    said = word_of(slot[Word.FLUSH_POLICY]) if slot is not None else ""
    return said or wish.settings_of(broker).get("flush.policy", "os")


def _news_of_a_death(process: plan.Process) -> str:
    how = f"{process.name} (pid {process.pid}) ended: {plan.ending(process.code)}"
    if process.phase is Phase.WAITING:
        return f"{how}; it is started again"
    if process.name.role is Role.BROKER:
        return f"{how}; start it with tidelog broker start {process.name.process_id}"
    return how
