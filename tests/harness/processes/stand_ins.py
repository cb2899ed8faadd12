"""Tiny brokers and coordinators for tests of the supervisor.

Run as `python -m harness.processes.stand_ins up …`.

Such a broker speaks no Kafka: it ends each connection at once.

STAND_IN_BROKER, STAND_IN_COORDINATOR and STAND_IN_TRANSACTIONS name a way to misbehave:
refuses (says why it cannot start), dies (ends before it is ready), ignores (SIGTERM), silent (its
heartbeat stops once it is ready), crashes (ends by itself 50 ms after it was ready).
STAND_IN_FORK=late: the supervisor learns of a broker it forked only when that has ended.
"""

import contextlib
import os
import signal
import socket
import sys
import time
import types
from collections.abc import Callable

from tidelog.kernel.instant import Instant
from tidelog.kernel.launch import BrokerLaunch, CoordinatorLaunch, Launch, board_name
from tidelog.node.ipc.board import Board
from tidelog.node.ipc.layout import Role, SlotState, SlotWriter, Word
from tidelog.node.runtime.lives import started
from tidelog.node.runtime.process import (
    EventLog,
    end_orphaned_run,
    report_failed,
    report_ready,
)
from tidelog.tools import cli
from tidelog.tools.supervisor import child, entries

log = EventLog("stand-in")
BEAT_S = 0.02
CRASHES_AFTER_S = 0.05


class Ended(Exception):  # noqa: N818 -- it is no error
    """SIGTERM came."""


def _end(_number: int, _frame: types.FrameType | None) -> None:
    raise Ended


def run_broker(launch: BrokerLaunch) -> int:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((launch.host, launch.port))
    listener.listen()
    listener.settimeout(0)
    how = os.environ.get("STAND_IN_BROKER", "")
    with Board.open(board_name(launch.run_id)) as board:
        slot = board.writer(launch.board_slot)
        slot.begin(
            role=Role.BROKER,
            process_id=launch.broker_id,
            pid=os.getpid(),
            incarnation=launch.incarnation,
            started=started(os.getpid()),
        )
        slot.words[Word.LEADERS] = launch.broker_id + 1
        slot.words[Word.REPLICAS] = launch.broker_id + 2
        return _live(launch, slot, how, lambda: _hang_up(listener))


def _hang_up(listener: socket.socket) -> None:
    """On who came meanwhile, if anybody; a listener that was paused has been shut down for good."""
    time.sleep(BEAT_S)
    with contextlib.suppress(OSError):
        listener.accept()[0].close()


def run_coordinator(launch: CoordinatorLaunch) -> int:
    how = os.environ.get("STAND_IN_COORDINATOR", "")
    with Board.open(board_name(launch.run_id)) as board:
        slot = board.writer(launch.board_slot)
        slot.begin(
            role=Role.COORDINATOR,
            process_id=0,
            pid=os.getpid(),
            incarnation=launch.incarnation,
            started=started(os.getpid()),
        )
        slot.words[Word.CONTROLLER_EPOCH] = launch.incarnation
        slot.words[Word.TOPICS] = 2
        slot.words[Word.PARTITIONS] = 6
        code = _live(launch, slot, how, lambda: time.sleep(BEAT_S))
        end_orphaned_run(launch, board)
        return code


def run_transactions(launch: Launch) -> int:
    with Board.open(board_name(launch.run_id)) as board:
        slot = board.writer(launch.board_slot)
        slot.begin(
            role=Role.TRANSACTION_COORDINATOR,
            process_id=0,
            pid=os.getpid(),
            incarnation=launch.incarnation,
            started=started(os.getpid()),
        )
        how = os.environ.get("STAND_IN_TRANSACTIONS", "")
        return _live(launch, slot, how, lambda: time.sleep(BEAT_S))


def _live(launch: Launch, slot: SlotWriter, how: str, beat: Callable[[], None]) -> int:
    """Until SIGTERM."""
    if how == "refuses":
        report_failed(launch.ready_fd, "the data is on strike: give it a day off")
        return 3
    if how == "stops":
        os.kill(os.getpid(), signal.SIGSTOP)
    if how == "dies":
        raise RuntimeError("a bug of the stand-in")
    signal.signal(signal.SIGTERM, signal.SIG_IGN if how == "ignores" else _end)
    try:
        slot.words[Word.STATE] = SlotState.RUNNING
        slot.publish()
        slot.heartbeat(Instant(time.monotonic_ns()))
        # Said before: who is told that it is ready finds the line in its log.
        log.info("stand_in_ready", settings=sorted(launch.settings), bytes=b"\x1b[31m")
        report_ready(launch.ready_fd)
        born = time.monotonic()
        while True:
            beat()
            if how != "silent":
                slot.heartbeat(Instant(time.monotonic_ns()))
            if how == "crashes" and time.monotonic() - born > CRASHES_AFTER_S:
                return 5
    except Ended:
        log.info("stand_in_ended")
        return 0


def late_fork(fork: Callable[[child.Work], child.Forked]) -> Callable[[child.Work], child.Forked]:
    """As on a busy machine, where the child runs first; for brokers that end by themselves."""

    def fork_and_wait(work: child.Work) -> child.Forked:
        forked = fork(work)
        if work.role == "broker":
            os.waitid(os.P_PIDFD, forked.pidfd, os.WEXITED | os.WNOWAIT)
        return forked

    return fork_and_wait


if __name__ == "__main__":
    if os.environ.get("STAND_IN_FORK") == "late":
        vars(child)["fork"] = late_fork(child.fork)
    entries.load = lambda: entries.Entries(run_broker, run_coordinator, run_transactions)
    cli.main(sys.argv[1:])
