"""Real brokers and a real transaction coordinator in which traps can be set: `python -m
harness.faults.mortals up …`, with HARNESS_TRAPS naming the folder where a test puts them.

A trap names a moment of a transaction. Whoever comes to that moment stands still in it, signals the
processes that the trap names, waits until they have died or stopped, and only then goes on: what a
test wants to happen at that moment happens there, on a busy machine too. A trap springs once: its
file goes first.
"""

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from tidelog.coordinator.controller.feed import Peer
from tidelog.coordinator.runtime.router import Router
from tidelog.coordinator.transactions import records
from tidelog.coordinator.transactions.states import TxnState
from tidelog.kernel.ids import Epoch, Offset
from tidelog.kernel.instant import Instant
from tidelog.kernel.launch import BrokerLaunch, Launch
from tidelog.node.groups.hosts import Groups
from tidelog.node.groups.placement import OFFSETS_TOPIC
from tidelog.node.groups.requests import CommitInTransaction
from tidelog.node.runtime.shard_host import Refusal
from tidelog.node.transactions.marking import Done as Outcomes
from tidelog.node.transactions.marking import Marking
from tidelog.node.transactions.state_log import Committed, StateLog
from tidelog.tools import cli
from tidelog.tools.supervisor import entries, proc
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import iterate_batches, iterate_records
from tidelog.wire.transactions import Append, Mark, Marker, decode_from_transactions

TRAPS: Final = "HARNESS_TRAPS"
ME: Final = 0
"""For a process id: who comes to that moment."""
_WITHIN_S: Final = 10.0
_STATES: Final = {
    TxnState.EMPTY: "Begin",
    TxnState.PREPARE_COMMIT: "Prepare",
    TxnState.PREPARE_ABORT: "Prepare",
    TxnState.COMPLETE_COMMIT: "Complete",
    TxnState.COMPLETE_ABORT: "Complete",
}
_OFFSETS: Final = frozenset({"TxnOffsetCommit"})


class When(StrEnum):
    """Where in a step."""

    SAID = "said"
    """The coordinator is about to ask a broker for it."""
    BEFORE = "before"
    """The broker is about to append."""
    APPENDED = "appended"
    COMMITTED = "committed"
    """Whoever asked for it is about to be told."""


class Trap(msgspec.Struct, frozen=True):
    """A moment, and what is to happen in it."""

    step: str
    """`Begin`, `AddPartitions`, `AddOffsets`, `TxnOffsetCommit`, `Prepare`, `Complete`, `marker`,
    or that and a topic."""
    when: When
    pids: tuple[int, ...] = ()
    signal: int = signal.SIGKILL
    loses: bool = False
    """What is about to be said is not: as if its speaker had died."""


def _is_lost(when: When, steps: Collection[str]) -> bool:
    """This moment is there; whether a trap takes away what comes next."""
    for path in Path(os.environ[TRAPS]).glob("*.json"):
        try:
            trap = msgspec.json.decode(path.read_bytes(), type=Trap)
            if trap.when is not when or trap.step not in steps:
                continue
            path.unlink()
        except FileNotFoundError:
            continue  # another one was there first
        for pid in trap.pids:
            _strike(pid, trap.signal)
        return trap.loses
    return False


def _reached(when: When, steps: Collection[str]) -> None:
    lost = _is_lost(when, steps)
    assert not lost, f"only what is {When.SAID} can be lost"


def _strike(pid: int, number: int) -> None:
    """Returns when it has died or stopped."""
    if pid == ME:
        os.kill(os.getpid(), number)
        return
    ends = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(ends, number)
        if number == signal.SIGKILL:
            assert select.select([ends], [], [], _WITHIN_S)[0], f"{pid} outlives SIGKILL"
        else:
            _wait_until_stopped(pid)
    finally:
        os.close(ends)


def _wait_until_stopped(pid: int) -> None:
    deadline = time.monotonic() + _WITHIN_S
    while not proc.is_stopped(pid):
        assert time.monotonic() < deadline, f"{pid} does not stop"


# -- what a step is


def steps_of(batch: bytes) -> set[str]:
    """What these records of `__transaction_state` are steps of."""
    found = set()
    for _, one in iterate_batches(memoryview(batch)):
        for record in iterate_records(one):
            known = records.read(record.key or b"", record.value)
            if known is not None and known.value is not None:
                found.add(_step(known.value))
    return found


def _step(known: records.Transaction) -> str:
    if known.state is not TxnState.ONGOING:
        return _STATES[known.state]
    topics = {topic for topic, _ in known.partitions}
    return "AddOffsets" if OFFSETS_TOPIC in topics else "AddPartitions"


def markers_of(markers: Iterable[Marker]) -> set[str]:
    return {f"marker {one.topic}" for one in markers} | {"marker"}


# -- where the moments are


def _watch_coordinator() -> None:
    send = Router.send

    def watched(self: Router, peer: Peer, frame: bytes) -> None:
        if not _is_lost(When.SAID, steps_said(frame)):
            send(self, peer, frame)

    _have(Router, send=watched)


def steps_said(frame: bytes) -> set[str]:
    """By the coordinator, to a broker."""
    message = decode_from_transactions(frame)
    if isinstance(message, Append):
        return steps_of(message.batch)
    return markers_of(message.markers) if isinstance(message, Mark) else set()


def _watch_state_log() -> None:
    append = StateLog.append

    def watched(self: StateLog, now: Instant, request: Append, done: Committed) -> None:
        steps = steps_of(request.batch)
        answers: list[ErrorCode] = []

        def told(at: Instant, code: ErrorCode, end: Offset) -> None:
            answers.append(code)
            if code is ErrorCode.NONE:
                _reached(When.COMMITTED, steps)
            done(at, code, end)

        _reached(When.BEFORE, steps)
        append(self, now, request, told)
        if not answers:
            _reached(When.APPENDED, steps)

    _have(StateLog, append=watched)


def _watch_marking() -> None:
    mark = Marking.mark

    def watched(
        self: Marking,
        now: Instant,
        epoch: Epoch,
        markers: tuple[Marker, ...],
        done: Outcomes,
        deadline: Instant | None = None,
    ) -> None:
        answers: list[tuple[ErrorCode, ...]] = []

        def told(at: Instant, outcomes: tuple[ErrorCode, ...]) -> None:
            answers.append(outcomes)
            pairs = zip(markers, outcomes, strict=True)
            written = [one for one, code in pairs if code is ErrorCode.NONE]
            _reached(When.COMMITTED, markers_of(written) if written else ())
            done(at, outcomes)

        _reached(When.BEFORE, markers_of(markers))
        mark(self, now, epoch, markers, told, deadline)
        if not answers:
            _reached(When.APPENDED, markers_of(markers))

    _have(Marking, mark=watched)


def _watch_groups() -> None:
    ask = Groups.ask

    def watched(
        self: Groups, now: Instant, group: str, request: object, done: Callable[[object], None]
    ) -> None:
        if not isinstance(request, CommitInTransaction):
            ask(self, now, group, request, done)
            return
        answers: list[object] = []

        def told(answer: object) -> None:
            answers.append(answer)
            if not isinstance(answer, Refusal):
                _reached(When.COMMITTED, _OFFSETS)
            done(answer)

        _reached(When.BEFORE, _OFFSETS)
        ask(self, now, group, request, told)
        if not answers:
            _reached(When.APPENDED, _OFFSETS)

    _have(Groups, ask=watched)


def _have(owner: type, **functions: Callable[..., object]) -> None:
    """In this process, which is a fork of its own, the class has these."""
    for name, function in functions.items():
        setattr(owner, name, function)


def _broker(run: Callable[[BrokerLaunch], int], launch: BrokerLaunch) -> int:
    _watch_state_log()
    _watch_marking()
    _watch_groups()
    return run(launch)


def _transactions(run: Callable[[Launch], int], launch: Launch) -> int:
    _watch_coordinator()
    return run(launch)


def main() -> None:
    load = entries.load

    def loaded() -> entries.Entries:
        real = load()
        return entries.Entries(
            broker=partial(_broker, real.broker),
            coordinator=real.coordinator,
            transactions=partial(_transactions, real.transactions),
        )

    entries.load = loaded
    cli.main(sys.argv[1:])


if __name__ == "__main__":
    main()
