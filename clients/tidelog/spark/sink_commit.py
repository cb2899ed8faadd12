"""The driver's part of an exactly-once sink, and the reading of its markers, as plans.

`exactly_once.py` runs them over real connections, tests over a simulated cluster.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tidelog.clients.admin.group_offsets import CommittedOffset, stable_offset
from tidelog.clients.asking import Pause, Plan
from tidelog.clients.cluster_view import ClusterView
from tidelog.clients.failures import ClientError
from tidelog.clients.producer.identity import init_producer_id
from tidelog.clients.producer.sender import Identity
from tidelog.clients.producer.transaction import (
    Membership,
    add_offsets,
    commit_offsets,
    end_transaction,
)
from tidelog.clients.producer.transactional import OpenTransaction
from tidelog.clients.together import Failure, results, together
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.spark.options import SinkOptions
from tidelog.spark.sink_decisions import (
    Batch,
    Decision,
    Rules,
    check_committed,
    decide,
    must_renew,
)
from tidelog.spark.sink_markers import (
    Ending,
    PartMarker,
    SinkMarker,
    part_marker,
    part_metadata,
    sink_marker,
    sink_metadata,
)
from tidelog.spark.sink_permits import NEVER_REPLACED, read_permit, replace_permit
from tidelog.spark.tasks import Point, Reached, SinkError, TaskInfo, Written
from tidelog.wire.errors import ErrorCode, Rejected

_UNSTABLE_TRIES: Final = 4
"""How often a marker is read that an open transaction may change, before that one is ended."""
_OWN_TRIES: Final = 12
"""The same for a task's own marker: about eight seconds. What the task has taken over has ended, so
only the transaction of an attempt that began later can be open."""
ENDED_TOGETHER: Final = 100
"""How many transactions are ended at once; then the time that the cluster has to answer
(kafka.default.api.timeout.ms) begins again, so that it need not be enough for hundreds of tasks."""
_PROGRESS: Final = Pause(0, "transactions are ended", renews=True)
TAKEN_OVER: Final = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
    }
)


class Sink(NamedTuple):
    """An exactly-once sink, as the cluster knows it."""

    name: str
    marker: TopicPartition
    """Under which partition's name its groups keep their offsets; nothing is read from it."""

    @classmethod
    def of(cls, options: SinkOptions, query: str) -> "Sink":
        """The one that these options and this query mean."""
        assert options.marker_topic is not None, "checked with the options"
        name = options.job_id or options.sink_id or query
        if not name:
            raise SinkError(
                "an exactly-once sink needs a name here, for the query has no id: give it one with "
                "tidelog.sink.id"
            )
        return cls(name, (options.marker_topic, Partition(0)))

    def part(self, number: int) -> str:
        """The group, and the transactional id, of one task; never another sink's name."""
        return f"{self.name}/{number}"

    @property
    def permit(self) -> str:
        """The transactional id whose epoch is the permit of the sink's tasks."""
        return f"{self.name}/permit"


@dataclass(frozen=True, slots=True)
class Finish:
    """What the driver knows besides the messages of its tasks."""

    sink: Sink
    rules: Rules
    batch: Batch
    timeout_ms: int
    """Of transactions."""
    takes_epochs: bool
    """Whether the cluster has version 2 of transactions."""
    now_ms: int
    reached: Reached

    def reach(self, point: Point) -> None:
        self.reached(point, self.batch.number, -1)


class Found(NamedTuple):
    """What a task reads about its part after it has taken the part's transactional id over."""

    part: PartMarker | None
    sink: SinkMarker | None
    permit: Identity


def read_markers(view: ClusterView, sink: Sink, task: TaskInfo) -> Plan[Found]:
    """The markers of the part and of its sink, and the sink's permit, in one go. Rejected with
    UNSTABLE_OFFSET_COMMIT if another attempt has taken the part over since, and is writing."""
    name = sink.part(task.partition)
    plans: list[Plan[Any]] = [
        stable_offset(view, name, sink.marker, tries=_OWN_TRIES),
        _settled(view, sink, sink.name),
        permit_now(view, sink, task),
    ]
    mine, whole, permit = results((yield from together(plans)))
    return Found(part_marker(mine), sink_marker(whole), permit)


def permit_now(view: ClusterView, sink: Sink, task: TaskInfo) -> Plan[Identity]:
    """The sink's permit, which is not read if the task was given none to compare it with."""
    if task.permit is None:
        return NEVER_REPLACED
    return (yield from read_permit(view, sink.permit))


def take_over_parts(
    view: ClusterView, sink: Sink, parts: Sequence[int]
) -> Plan[list[PartMarker | None]]:
    """Take the transactional ids of these parts over, then read their markers. Whatever had these
    ids before can commit nothing from here on, so that the markers stay as they were read."""
    names = [sink.part(number) for number in parts]
    results((yield from let_go(view, names)))
    reads = [stable_offset(view, name, sink.marker) for name in names]
    return [part_marker(one) for one in results((yield from together(reads)))]


def finish(view: ClusterView, work: Finish, messages: Sequence[Written | None]) -> Plan[None]:
    """Commit what the tasks have written, once; SinkError where that is not possible.

    Whoever finishes takes the sink's own transactional id over first. Any other driver's word that
    it is about to end transactions is refused from then on; if it came before, it is read here.
    """
    sink, batch = work.sink, work.batch
    me = yield from init_producer_id(view, sink.name, timeout_ms=work.timeout_ms)
    known = sink_marker((yield from stable_offset(view, sink.name, sink.marker)))
    beyond = yield from _take_over_beyond(view, work, known, len(messages))
    decision = decide(work.rules, batch, messages, known, beyond)
    if decision.is_complete:
        yield from let_go(view, [sink.part(one.partition) for one in decision.open])
        return
    before = known or SinkMarker(batch.number)
    if decision.open:
        yield from _confirm(view, work, decision.disputed)
        ending = SinkMarker(
            batch.number,
            batch.query,
            before.parts,
            before.last,
            Ending(decision.rows, decision.tasks),
            is_whole=before.is_whole,
            renewed_ms=before.renewed_ms,
        )
        me = yield from _commit_markers(view, work, me, {sink.name: _said(ending)})
        work.reach(Point.ENDING)
        yield from _end_all(view, work, decision)
    work.reach(Point.ENDED)
    yield from _complete(view, work, me, before, decision)
    work.reach(Point.COMPLETE)


def _take_over_beyond(
    view: ClusterView, work: Finish, known: SinkMarker | None, tasks: int
) -> Plan[list[PartMarker | None]]:
    """Of the parts that another driver was ending, those which have no task any more: the tasks
    have taken the others over. That driver may still be about to commit them, if it is asleep."""
    ending = None if known is None else known.ending
    if ending is None or ending.rows.batch != work.batch.number:
        return []
    return (yield from take_over_parts(view, work.sink, range(tasks, ending.parts)))


def _complete(
    view: ClusterView, work: Finish, me: Identity, before: SinkMarker, decision: Decision
) -> Plan[None]:
    """Commit the sink's marker N + 1, and from time to time the markers of unused parts."""
    tasks = decision.tasks
    parts = max(tasks, before.parts)
    renewed_ms, unused = before.renewed_ms, {}
    if must_renew(before, tasks, work.now_ms):
        unused = yield from _unused(view, work.sink, range(tasks, parts))
        renewed_ms = work.now_ms
    elif len(decision.open) == parts:
        renewed_ms = work.now_ms  # each part has just committed its own marker
    batch = work.batch
    complete = SinkMarker(
        batch.number + 1, batch.query, parts, decision.rows, renewed_ms=renewed_ms
    )
    yield from _commit_markers(view, work, me, {**unused, work.sink.name: _said(complete)})


def give_up(view: ClusterView, sink: Sink, parts: int) -> Plan[list[Identity | Failure]]:
    """After a job has failed: keep those of its tasks that have not begun from beginning, then
    abort what the others left open. `sink_permits.py` says why in this order."""
    yield from replace_permit(view, sink.permit)
    return (yield from let_go(view, [sink.part(number) for number in range(parts)]))


def let_go(view: ClusterView, names: Sequence[str]) -> Plan[list[Identity | Failure]]:
    """Abort what is open under these transactional ids: it holds readers back until its time-out.
    One that fails does not stop the others."""
    return (yield from together([init_producer_id(view, name) for name in names]))


class _Marker(NamedTuple):
    offset: int
    metadata: str


def _said(marker: SinkMarker) -> _Marker:
    return _Marker(marker.offset, sink_metadata(marker))


def _settled(view: ClusterView, sink: Sink, name: str) -> Plan[CommittedOffset | None]:
    """The marker of the sink, or of a part that has no task. A driver or task that died may have
    left a transaction open that changes the marker: nobody would learn it before its time-out. So
    that transaction is ended, which also fences whoever began it."""
    try:
        return (yield from stable_offset(view, name, sink.marker, tries=_UNSTABLE_TRIES))
    except Rejected as error:
        if error.code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
            raise
    yield from init_producer_id(view, name)
    return (yield from stable_offset(view, name, sink.marker))


def _commit_markers(
    view: ClusterView, work: Finish, me: Identity, markers: Mapping[str, _Marker]
) -> Plan[Identity]:
    """In a transaction of the sink's own id: refused where another driver has taken that over."""
    sink, bumps = work.sink, work.takes_epochs
    mine = OpenTransaction(sink.name, me, bumps)
    plans = [_add_marker(view, sink, mine, group, marker) for group, marker in markers.items()]
    try:
        results((yield from together(plans)))
        return (yield from end_transaction(view, sink.name, me, committed=True, bumps=bumps))
    except Rejected as error:
        if error.code not in TAKEN_OVER:
            raise
        raise SinkError(
            f"{work.rules.name}: another driver has taken it over ({error.code.name}): let one "
            f"query alone have this {work.rules.option}, and start it again"
        ) from error


def _add_marker(
    view: ClusterView, sink: Sink, transaction: OpenTransaction, group: str, marker: _Marker
) -> Plan[None]:
    """Make a group's marker part of an open transaction."""
    name, identity, bumps = transaction
    if not bumps:
        yield from add_offsets(view, name, identity, group)
    member = Membership(group, metadata=marker.metadata)
    offsets = {sink.marker: marker.offset}
    yield from commit_offsets(view, name, identity, member, offsets, bumps=bumps)


def _confirm(view: ClusterView, work: Finish, parts: Sequence[Written]) -> Plan[None]:
    """Add the markers of open parts to their transactions once more, which the cluster refuses if
    the part's id has been taken over since. If it has not, then the other driver's task had it
    before, and that driver can commit that part no more."""
    outcomes = yield from together([_mark_again(view, work, one) for one in parts])
    for one, outcome in zip(parts, outcomes, strict=True):
        if isinstance(outcome, Rejected) and outcome.code in TAKEN_OVER:
            raise SinkError(
                f"{work.rules.name}: another driver, with other rows or another number of tasks, "
                f"has taken over task {one.partition} of micro-batch {work.batch.number} "
                f"({outcome.code.name}): let one query alone have this {work.rules.option}, and "
                "start it again"
            ) from outcome
    results(outcomes)


def _mark_again(view: ClusterView, work: Finish, part: Written) -> Plan[None]:
    assert part.open is not None
    marker = _Marker(work.batch.number + 1, part_metadata(work.batch.query, part.total))
    group = work.sink.part(part.partition)
    yield from _add_marker(view, work.sink, part.open.transaction, group, marker)


def _end_all(view: ClusterView, work: Finish, decision: Decision) -> Plan[None]:
    """The oldest first and alone: if its time is up, nothing is committed yet."""
    oldest, others = decision.open[:1], decision.open[1:]
    yield _PROGRESS
    yield from _end(view, work, oldest)
    if oldest and others:
        work.reach(Point.BETWEEN)
    for first in range(0, len(others), ENDED_TOGETHER):
        yield _PROGRESS
        yield from _end(view, work, others[first : first + ENDED_TOGETHER])
    yield _PROGRESS


def _end(view: ClusterView, work: Finish, parts: Sequence[Written]) -> Plan[None]:
    ended = yield from together([_commit_part(view, one) for one in parts])
    for one, outcome in zip(parts, ended, strict=True):
        if isinstance(outcome, Rejected):
            yield from _check_refused(view, work, one, outcome)
        elif isinstance(outcome, ClientError):
            raise outcome


def _commit_part(view: ClusterView, part: Written) -> Plan[Identity]:
    assert part.open is not None
    name, identity, bumps = part.open.transaction
    return (yield from end_transaction(view, name, identity, committed=True, bumps=bumps))


def _check_refused(view: ClusterView, work: Finish, part: Written, refused: Rejected) -> Plan[None]:
    """Of an end that was asked for twice the first may have been heard, and its answer lost."""
    name = work.sink.part(part.partition)
    because = _cause(work, part, name, refused)
    try:
        found = yield from stable_offset(view, name, work.sink.marker, tries=_UNSTABLE_TRIES)
    except Rejected as error:
        if error.code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
            raise
        found = None  # another one's transaction is open: this one has come to nothing
    check_committed(work.rules, work.batch.number, part, part_marker(found), because)


def _cause(work: Finish, part: Written, name: str, refused: Rejected) -> str:
    assert part.open is not None
    code, passed = refused.code.name, work.now_ms - part.open.began_ms
    if refused.code not in TAKEN_OVER:
        return code
    late = too_late(work.timeout_ms, passed)
    overtaken = (
        f"another attempt of this task, or another program, has taken transactional id {name} "
        f"over; let one query alone have this {work.rules.option}, without speculative execution, "
        "and start it again"
    )
    likely, other = (late, overtaken) if passed >= work.timeout_ms else (overtaken, late)
    return f"{code}: {likely}; or, if the clocks of the task's host and the driver differ: {other}"


def too_late(limit_ms: int, passed_ms: int) -> str:
    """What to say of a transaction that the cluster has aborted, because its time was up."""
    return (
        f"kafka.transaction.timeout.ms={limit_ms} is too short, for {passed_ms} ms have passed "
        "since the task began, and all tasks of a micro-batch must be done within that time; raise "
        "it (brokers take up to transaction.max.timeout.ms), or have smaller micro-batches, and "
        "start the query again"
    )


def _unused(view: ClusterView, sink: Sink, parts: Sequence[int]) -> Plan[dict[str, _Marker]]:
    """Markers of parts that this micro-batch did not need, to be committed again as they are, so
    that the cluster remembers them as long as the others."""
    names = [sink.part(number) for number in parts]
    found = results((yield from together([_settled(view, sink, one) for one in names])))
    return {
        name: _Marker(one.offset, one.metadata)
        for name, one in zip(names, found, strict=True)
        if one is not None
    }
