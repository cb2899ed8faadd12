"""A start, from the wish to a running supervisor: claim, prepare, run, clean up."""

import contextlib
import gc
import os
import resource
import signal
import time
import traceback
from collections.abc import Mapping
from itertools import islice
from pathlib import Path

from msgspec import Struct, structs

from tidelog.kernel.config import SettingError, Table
from tidelog.kernel.failures import CannotStartError
from tidelog.kernel.instant import Instant
from tidelog.kernel.launch import board_name, log_file
from tidelog.node.ipc.board import Board
from tidelog.node.runtime.lives import Life, Verdict
from tidelog.node.runtime.process import EventLog, set_title, setup_logging
from tidelog.tools.supervisor import disks, entries, leftovers, registry
from tidelog.tools.supervisor.folder import (
    INCARNATIONS_RESERVED,
    DataFolder,
    already_running,
    find,
    ignore_in_git,
    origin_of,
    run_in,
    sentences,
    supervisor_in,
)
from tidelog.tools.supervisor.membership import new_ids
from tidelog.tools.supervisor.ports import PortKeeper, bootstrap
from tidelog.tools.supervisor.report import PipeReport, Report, relay
from tidelog.tools.supervisor.runs import Run
from tidelog.tools.supervisor.sources import (
    BASE_PORT_DEFAULT,
    BROKERS_DEFAULT,
    PORT_MAX,
    Flags,
    Wish,
    gather,
)
from tidelog.tools.supervisor.supervisor import Setup, Supervisor

FAILED = 1
_DESCRIPTORS_MAX = 1 << 20

log = EventLog("supervisor")


_LIMITS = {
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
}
"""What brokers call them."""


class Request(Struct, frozen=True):
    """What `tidelog up` was asked for; `wish` is already checked."""

    cluster: str
    data: Path
    """Absolute: where the named cluster lives, or where its pointer is."""
    wish: Wish
    ephemeral: bool = False
    restart: bool = False
    detached: bool = False
    disk_bytes: int | None = None
    """Of each process's own disk; 0: as they are, or as is usual; None: none are asked for."""


def wish(flags: Flags, environment: Mapping[str, str], folder: Path) -> Wish:
    """SettingError where a source is wrong."""
    from tidelog.node.settings import BROKER  # noqa: PLC0415 -- only a start needs the tables

    table: Table = BROKER
    found = gather(flags, environment, folder, table)
    _check_flushes(found)
    return found


def _check_flushes(found: Wish) -> None:
    """A policy that counts on a limit nobody has set would hardly ever flush."""
    from tidelog.node.log.flush_policy import lacking  # noqa: PLC0415 -- as above
    from tidelog.node.settings import topic_reader  # noqa: PLC0415 -- as above

    for broker in (None, *sorted(found.broker_settings)):
        given = found.settings if broker is None else found.settings_of(broker)
        if "flush.policy" not in given:
            continue
        value = topic_reader({}, given)
        name = lacking(value("flush.policy"), value("flush.messages"), value("flush.ms"))
        if name is not None:
            who = "" if broker is None else f"broker.{broker}: "
            limit = _LIMITS[name]
            raise SettingError(
                f"{who}flush.policy={given['flush.policy']} flushes by {limit}, which sets no "
                f"limit: give it too, as --set {limit}=N"
            )


def start(request: Request, report: Report, began: Instant) -> int:
    """In the process that becomes the supervisor, until the cluster has ended; the exit code."""
    # Whatever this process and its children make is the owner's alone.
    os.umask(0o077)
    # No collection while everything is imported and made: it would only be work, and after the
    # freeze the children share all of it.
    gc.disable()
    signal.signal(signal.SIGTERM, _end_early)
    try:
        with contextlib.ExitStack() as undo:
            setup = _Preparation(request, report, undo).prepare(began)
            return Supervisor(setup, entries.load(), report).run()
    except (CannotStartError, SettingError) as error:
        report.failed(str(error), FAILED)
        return FAILED


def _end_early(number: int, _frame: object) -> None:
    """Before the supervisor has its own handlers: clean up and end."""
    raise SystemExit(128 + number)


def detach(request: Request, report: Report, began: Instant) -> int:
    """Start in a session of its own; return once the cluster is ready, or cannot be and has let go
    of its folder: a second try may follow at once."""
    reader, writer = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        os._exit(_detached(request, writer, began))
    os.close(writer)
    code = 1
    try:
        code = relay(reader, report)
    except KeyboardInterrupt:
        os.kill(pid, signal.SIGTERM)
        raise
    finally:  # the report may have raised what it told
        if code:
            os.waitpid(pid, 0)
    return code


def _detached(request: Request, writer: int, began: Instant) -> int:
    os.setsid()
    os.closerange(3, writer)
    os.closerange(writer + 1, _DESCRIPTORS_MAX)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    os.set_blocking(writer, False)
    report = PipeReport(writer)
    try:
        code = start(request, report, began)
    except Exception as error:  # noqa: BLE001 -- the last frame of the process
        # A bug, or a failing of the machine nobody thought of: who waits hears it here, and our
        # standard error, which is the log by now, has the rest.
        traceback.print_exc()
        report.failed(f"the supervisor failed: {type(error).__name__}: {error}", FAILED)
        code = FAILED
    log.info("supervisor_ended", code=code)
    return code


class _Preparation:
    """Takes what a run needs, step by step; `undo` lets go of it in the opposite order."""

    def __init__(self, request: Request, report: Report, undo: contextlib.ExitStack) -> None:
        self._request = request
        self._report = report
        self._undo = undo
        self._run_id = leftovers.new_run_id()

    def prepare(self, began: Instant) -> Setup:
        request = self._request
        refusal = refuse_second(request.data, request.cluster)
        if refusal:
            raise CannotStartError(refusal)
        data = self._make_ephemeral() if request.ephemeral else request.data
        folder = DataFolder.claim(data, request.cluster)
        ignore_in_git(data)
        set_title("supervisor", "tidelog supervisor")
        with sentences(data):
            log_path = log_file(str(data), "supervisor", 0)
            setup_logging(log_path, "supervisor", 0, take_output=request.detached)
        self._forget_dead_runs(folder)
        run = self._begin_run(folder)
        self._settle_disks(folder)
        ports = self._keep_ports(folder)
        board = Board.create(board_name(self._run_id))
        leftovers.hold_board(board.descriptor)
        run = structs.replace(run, bootstrap=bootstrap(folder.cluster.ports))
        self._save(folder, run)
        _raise_descriptor_limit()
        return Setup(run, folder, board, ports, request.wish, request.restart, began)

    def _begin_run(self, folder: DataFolder) -> Run:
        """Whatever carries the run's id comes after the run has said whose it is."""
        request, runtime = self._request, leftovers.runtime_folder(self._run_id)
        run = Run(
            run_id=self._run_id,
            pid=os.getpid(),
            cluster=request.cluster,
            runtime_dir=str(runtime),
            data_dir=str(folder.path),
            bootstrap="",
            folder=folder.identity,
            life=Life.own(),
            origin=origin_of(request.data) if request.ephemeral else None,
        )
        # Children leave sockets and memory there: everything of this run goes, found by its id.
        self._undo.callback(self._remove_run, folder)
        leftovers.make_runtime_folder(runtime)
        with sentences(runtime):
            leftovers.say_first(run)
        leftovers.hold(run)
        return run

    def _remove_run(self, folder: DataFolder) -> None:
        place = folder.place()
        is_whole = place is not None and (place / "cluster.json").exists()
        leftovers.remove_run(self._run_id, str(place) if is_whole else None)

    def _make_ephemeral(self) -> Path:
        data = leftovers.ephemeral_folder(self._run_id)
        with sentences(data):
            data.mkdir(mode=0o700)
        self._undo.callback(leftovers.remove_data, data)
        return data

    def _forget_dead_runs(self, folder: DataFolder) -> None:
        """The folder is ours: nobody has its lock. Whether the run that had it is dead is looked at
        all the same, for somebody may have removed the lock's file."""
        old = run_in(folder.path)
        if old is not None:
            self._forget(folder, old)
        for run_id in leftovers.sweep():
            log.info("dead_run_removed", run_id=run_id)
        disks.free(folder.path)
        disks.sweep(folder.path)

    def _forget(self, folder: DataFolder, old: Run) -> None:
        verdict = old.verdict()
        if verdict is Verdict.LIVES:
            raise CannotStartError(
                f"the supervisor (pid {old.pid}) of an earlier run in {folder.path} still lives: "
                f"end it (kill {old.pid}), or choose another folder with --data"
            )
        if verdict is Verdict.DEAD:
            log.info("dead_run_removed", run_id=old.run_id)
            leftovers.remove_run(old.run_id, str(folder.path))
        else:
            log.info("run_left_alone", run_id=old.run_id, reason="it was in another container")

    def _settle_disks(self, folder: DataFolder) -> None:
        """Each process mounts its own; all are unmounted when none of them lives."""
        cluster, wish, data = folder.cluster, self._request.wish, str(folder.path)
        cluster.disk_bytes = disks.settled(self._request.cluster, cluster, self._request.disk_bytes)
        if not cluster.disk_bytes:
            return
        places = [
            disks.refuse_elsewhere(data, broker, wish.settings_of(broker))
            for broker in (0, *wish.broker_settings)
        ]
        for refusal in (disks.lacking(disks.this_machine()), *places):
            if refusal is not None:
                raise CannotStartError(refusal)
        self._undo.callback(_free_disks, folder)

    def _keep_ports(self, folder: DataFolder) -> PortKeeper:
        cluster, wish = folder.cluster, self._request.wish
        known = len(cluster.brokers)
        brokers = wish.brokers or known or BROKERS_DEFAULT
        if brokers < known:
            raise CannotStartError(
                f"cluster {self._request.cluster!r} has {known} brokers, and their data: "
                f"start it with --brokers {known}, or another with --cluster NAME"
            )
        base = cluster.base_port if known else BASE_PORT_DEFAULT
        if wish.base_port is not None:
            base = wish.base_port
        ids = [*cluster.brokers, *islice(new_ids(cluster), brokers - known)]
        if base + max(ids) > PORT_MAX:
            raise CannotStartError(
                f"--base-port {base}: with {brokers} brokers it must be at most "
                f"{PORT_MAX - max(ids)}"
            )
        preferred = dict(enumerate(cluster.ports)) if base == cluster.base_port else {}
        keeper = PortKeeper()
        ports = {
            broker: keeper.keep(base and base + broker, preferred=preferred.get(broker, 0))
            for broker in ids
        }
        for sentence in keeper.moved:
            log.warning("port_moved", reason=sentence)
            self._report.progress(sentence)
        cluster.ports = [
            ports.get(broker, 0) for broker in range(max(len(cluster.ports), max(ids) + 1))
        ]
        cluster.base_port = base
        return keeper

    def _save(self, folder: DataFolder, run: Run) -> None:
        cluster, wish = folder.cluster, self._request.wish
        cluster.incarnations_reserved += INCARNATIONS_RESERVED
        cluster.settings = wish.settings
        cluster.broker_settings = {str(k): v for k, v in wish.broker_settings.items()}
        folder.save_cluster()
        folder.save_run(run)
        registry.note(run)
        self._undo.callback(folder.forget_run)


def _free_disks(folder: DataFolder) -> None:
    place = folder.place()
    if place is not None:
        disks.free(place)


def refuse_second(data: Path, cluster: str) -> str | None:
    """Why an ephemeral cluster cannot start under this name; None where it can."""
    for folder in (find(data), data):
        holder = supervisor_in(folder)
        if holder is not None and run_in(folder) is not None:
            return already_running(cluster, holder)
    return None


def _raise_descriptor_limit() -> None:
    """To what the system allows: 10,000 connections do not fit into the usual 1,024."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def now() -> Instant:
    return Instant(time.monotonic_ns())
