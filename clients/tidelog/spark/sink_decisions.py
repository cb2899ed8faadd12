"""What an exactly-once sink does, given its markers and what its tasks say: without any I/O.

A task asks `part_is_written`. The driver asks `decide` once all tasks have answered. Both refuse
(`SinkError`) rather than guess: a refusal costs a user a look at the message, a wrong guess costs
rows. `docs/exactly-once.md` has the states as a table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tidelog.clients.producer.sender import Identity
from tidelog.spark.sink_markers import PartMarker, Rows, SinkMarker
from tidelog.spark.sink_permits import NEVER_REPLACED
from tidelog.spark.tasks import SinkError, TaskInfo, Total, Written

RENEWED_AFTER_MS: Final = 3_600_000
"""How old the markers of unused parts become before they are committed again: an hour, which is far
below the week (offsets.retention.minutes) after which a cluster forgets them."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What the options say."""

    sink: str
    is_job: bool = False
    """The sink is a batch write with tidelog.job.id."""
    writes_without_marker: bool = False
    """tidelog.sink.onMissingMarker=write."""
    keeps_other_rows: bool = False
    """tidelog.sink.onOtherRows=keep."""

    @property
    def name(self) -> str:
        return f"{'job' if self.is_job else 'sink'} {self.sink}"

    @property
    def option(self) -> str:
        return "tidelog.job.id" if self.is_job else "tidelog.sink.id"


@dataclass(frozen=True, slots=True)
class Batch:
    """A micro-batch, as the driver knows it."""

    query: str
    number: int
    plan: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """What the driver does with the transactions of a micro-batch."""

    rows: Rows
    is_complete: bool
    """The sink's marker says so: nothing is to be committed, what is open is aborted."""
    open: Sequence[Written]
    """Parts whose transactions are open, the oldest first."""
    tasks: int
    """How many tasks the micro-batch has."""
    disputed: Sequence[Written] = ()
    """Open parts of which it must be confirmed, before anything is committed, that no other driver
    can commit them."""


def check_permit(rules: Rules, task: TaskInfo, now: Identity) -> None:
    """Refuse a task that begins after the driver of its job has given the job up.

    A coordinator forgets an id that was not used for long (transactional.id.expiration.ms). Then
    nobody has replaced the permit for as long, and a query that runs on must not fail by it.
    """
    if task.permit in {None, now} or now == NEVER_REPLACED:
        return
    raise SinkError(
        f"{rules.name}: the driver gave micro-batch {task.batch} up before task {task.partition} "
        "began, or another query that has this name gave up one of its own: if the query does not "
        f"end by another error, let one query alone have this {rules.option}, and start it again"
    )


def part_is_written(
    rules: Rules, task: TaskInfo, part: PartMarker | None, sink: SinkMarker | None
) -> bool:
    """Whether an earlier attempt has committed a task's rows; SinkError where they may neither be
    written nor skipped."""
    _check_query(rules, task.query, part, sink)
    end = max(0 if part is None else part.offset, 0 if sink is None else sink.offset)
    _check_age(rules, task.batch, end)
    _check_old_job(rules, task.batch, part, sink)
    if end == task.batch + 1:
        return True
    if part is None:
        _check_remembered(rules, task, sink)
    return False


def decide(
    rules: Rules,
    batch: Batch,
    messages: Sequence[Written | None],
    sink: SinkMarker | None,
    beyond: Sequence[PartMarker | None] = (),
) -> Decision:
    """What becomes of the transactions of all tasks; SinkError where that cannot be known.

    If the sink's marker says that more tasks were ending this micro-batch than there are now,
    `beyond` has the markers of the parts that are not there any more.
    """
    done = _all_of(rules, batch, messages)
    _check_query(rules, batch.query, None, sink)
    _check_age(rules, batch.number, 0 if sink is None else sink.offset)
    rows = Rows(batch.number, _sum(done), batch.plan)
    is_complete = sink is not None and sink.offset == batch.number + 1
    if is_complete:
        assert sink is not None
        _check_complete(rules, rows, done, sink)
    else:
        _check_number(rules, batch, done, sink, beyond)
        _check_parts(rules, batch.number, done)
    still_open = sorted((one for one in done if one.open is not None), key=_began)
    disputed = () if is_complete else _disputed(rows, still_open, len(done), sink)
    return Decision(rows, is_complete, still_open, len(done), disputed)


def _disputed(
    rows: Rows, still_open: Sequence[Written], tasks: int, sink: SinkMarker | None
) -> Sequence[Written]:
    """Another driver said that it ends this micro-batch with other rows or another number of tasks.
    If one of its tasks took a part over after ours had found nothing written there, that driver may
    commit that part, or has done it already, and what we commit would be beside it. With the same
    rows in as many tasks it does no harm if each of the two commits some of the parts."""
    ending = sink.ending if sink is not None and sink.is_ending(rows.batch) else None
    if ending is None or (ending.parts == tasks and rows.total.is_same(ending.rows.total)):
        return ()
    return [one for one in still_open if one.partition < ending.parts]


def must_renew(sink: SinkMarker, tasks: int, now_ms: int) -> bool:
    """Whether the markers of the parts that this number of tasks leaves unused must be committed
    again. To do so in each micro-batch would cost a request for each of them."""
    if tasks >= sink.parts:
        return False
    # A clock that was set back says nothing about the age of the markers.
    return sink.renewed_ms is None or not 0 <= now_ms - sink.renewed_ms < RENEWED_AFTER_MS


def whole_is_written(rules: Rules, batch: Batch, sink: SinkMarker | None) -> bool:
    """Whether the micro-batch that the driver is about to write in one transaction is written;
    then its rows must be compared (`check_same`)."""
    _check_query(rules, batch.query, None, sink)
    end = 0 if sink is None else sink.offset
    _check_age(rules, batch.number, end)
    _check_old_job(rules, batch.number, None, sink)
    if end == batch.number + 1:
        return True
    if sink is None and batch.number > 0 and not (rules.is_job or rules.writes_without_marker):
        raise _forgotten(rules, f"micro-batch {batch.number} is written")
    return False


def parts_known(batch: Batch, sink: SinkMarker | None, tasks: int) -> int:
    """How many parts may have something open, or committed, of a micro-batch that has this number
    of tasks now."""
    if sink is None:
        return tasks
    ending = sink.ending if sink.is_ending(batch.number) else None
    return max(tasks, sink.parts, 0 if ending is None else ending.parts)


def written_parts(
    rules: Rules, batch: Batch, parts: Sequence[PartMarker | None], sink: SinkMarker | None
) -> list[int]:
    """The parts whose rows of this micro-batch are committed, given the markers of parts 0, 1, ...;
    SinkError if one of these markers cannot be told, or belongs to something else."""
    return [
        number
        for number, part in enumerate(parts)
        if part_is_written(rules, TaskInfo(batch.query, batch.number, number), part, sink)
    ]


def check_no_part_written(
    rules: Rules, batch: Batch, parts: Sequence[PartMarker | None], sink: SinkMarker | None
) -> None:
    """Refuse to write a micro-batch in one transaction if tasks have committed some of its rows."""
    written = written_parts(rules, batch, parts, sink)
    if written:
        raise _begun(rules, batch.number, f"its tasks {written} are committed")


def check_same(rules: Rules, rows: Rows, sink: SinkMarker) -> None:
    """Refuse a complete micro-batch that comes again with other rows."""
    last = sink.last
    if rules.keeps_other_rows or last is None:
        return
    is_same_plan = rows.plan is not None and rows.plan == last.plan
    if not is_same_plan and not rows.total.is_same(last.total):
        raise _other_rows(rules, rows.batch, f"micro-batch {rows.batch}", last.total, rows.total)


def check_committed(
    rules: Rules, batch: int, part: Written, marker: PartMarker | None, because: str
) -> None:
    """After the end of a part's transaction was refused: its marker tells whether that very
    transaction is committed all the same. SinkError where it is not."""
    if marker is not None and marker.total is not None and marker.offset == batch + 1:
        if marker.total.is_same(part.total):
            return
        raise SinkError(
            f"{rules.name}: another attempt or program has written other rows as task "
            f"{part.partition} of micro-batch {batch} ({because}): let one query alone have this "
            f"{rules.option}, and start it again"
        )
    raise SinkError(
        f"{rules.name}: task {part.partition} of micro-batch {batch} could not be committed "
        f"({because})"
    )


def _all_of(rules: Rules, batch: Batch, messages: Sequence[Written | None]) -> list[Written]:
    done = [one for one in messages if one is not None]
    answered = sorted(one.partition for one in done)
    if answered != list(range(len(messages))):
        raise SinkError(
            f"{rules.name}: of micro-batch {batch.number} only tasks {answered} say that they are "
            f"done, of {len(messages)}: start the query again"
        )
    return done


def _sum(done: Sequence[Written]) -> Total:
    sums = [one.total.sum for one in done if one.total.sum is not None]
    return Total(sum(one.total.rows for one in done), sum(sums) % (1 << 64))


def _began(part: Written) -> int:
    return 0 if part.open is None else part.open.began_ms


def _check_query(
    rules: Rules, query: str, part: PartMarker | None, sink: SinkMarker | None
) -> None:
    known = [marker for marker in (part, sink) if marker is not None]
    for marker in known:
        if marker.is_foreign:
            raise _foreign(rules, marker.offset)
        if marker.query not in {None, query}:
            raise _of_another_query(rules, query, marker.query)


def _of_another_query(rules: Rules, query: str, other: str | None) -> SinkError:
    whose = f"query {other}" if other else "a batch write"
    this = f"query {query}" if query else "a batch write"
    return SinkError(
        f"{rules.name} belongs to {whose}, and this is {this}: give each checkpoint "
        f"another {rules.option}, or go on with the checkpoint of the first one"
    )


def _foreign(rules: Rules, offset: int) -> SinkError:
    return SinkError(
        f"{rules.name}: offset {offset} is committed where its marker should be, and not by this "
        f"version of tidelog: another program commits offsets under the name {rules.sink}, or a "
        "newer version of tidelog has written to this sink. Give that program another consumer "
        f"group, and this write another {rules.option} with tidelog.sink.onMissingMarker=write, "
        "which may write one micro-batch twice; or go on with the newer version"
    )


def _check_age(rules: Rules, batch: int, end: int) -> None:
    if end > batch + 1:
        raise SinkError(
            f"{rules.name}: micro-batch {end - 1} is written already, this is {batch}: the "
            "checkpoint is older than the sink; go on with the newest checkpoint, or give the "
            f"older one another {rules.option}, under which it writes all that it reads"
        )


def _check_old_job(
    rules: Rules, batch: int, part: PartMarker | None, sink: SinkMarker | None
) -> None:
    """Earlier versions kept each write of a job as micro-batch 0, also in foreachBatch."""
    is_old = (part is not None and part.is_old) or (sink is not None and sink.is_old)
    if rules.is_job and batch > 0 and is_old:
        raise SinkError(
            f"{rules.name} was written by an earlier version of tidelog, which did not keep the "
            "micro-batches of foreachBatch apart: give it another tidelog.job.id"
        )


def _check_remembered(rules: Rules, task: TaskInfo, sink: SinkMarker | None) -> None:
    """A part without a marker is new, or the cluster has forgotten its marker. The latter matters
    only where its rows of this micro-batch may be committed: where the driver had begun to end
    transactions, or where the marker of the sink cannot tell."""
    if task.batch == 0 or rules.is_job or rules.writes_without_marker:
        return
    if sink is not None:
        may_be_committed = sink.is_old or sink.is_ending(task.batch)
        if not may_be_committed or task.partition >= sink.parts:
            return
    raise _forgotten(rules, f"micro-batch {task.batch} is written by task {task.partition}")


def _begun(rules: Rules, batch: int, how_far: str) -> SinkError:
    return SinkError(
        f"{rules.name}: micro-batch {batch} was begun with exactly-once, and {how_far}: finish it "
        "with tidelog.delivery=exactly-once, then switch to exactly-once-atomic"
    )


def _forgotten(rules: Rules, what: str) -> SinkError:
    return SinkError(
        f"{rules.name}: the cluster does not know any more whether {what}: it forgets offsets of "
        "groups after offsets.retention.minutes, and with their topic; "
        "tidelog.sink.onMissingMarker=write goes on, and may write one micro-batch twice"
    )


def _check_complete(rules: Rules, rows: Rows, done: Sequence[Written], sink: SinkMarker) -> None:
    if sink.last is not None:
        check_same(rules, rows, sink)
    else:
        _check_skipped(rules, rows.batch, done)


def _check_number(
    rules: Rules,
    batch: Batch,
    done: Sequence[Written],
    sink: SinkMarker | None,
    beyond: Sequence[PartMarker | None],
) -> None:
    """Another number of tasks cuts the rows in another way: that does no harm as long as none of
    the parts that were being ended is committed."""
    ending = sink.ending if sink is not None and sink.is_ending(batch.number) else None
    tasks = len(done)
    if ending is None or ending.parts == tasks:
        return
    is_written = any(one.skipped for one in done)
    for number, part in zip(range(tasks, ending.parts), beyond, strict=True):
        is_written |= part_is_written(
            rules, TaskInfo(batch.query, batch.number, number), part, sink
        )
    if is_written:
        raise SinkError(
            f"{rules.name}: micro-batch {batch.number} was partly committed by {ending.parts} "
            f"tasks, and now has {tasks}: have it cut into {ending.parts} tasks as before (the "
            "program, minPartitions, maxRecordsPerPartition, tidelog.minOffsetsPerTask), and "
            "change that once the query has ended a run in order"
        )


def _check_parts(rules: Rules, batch: int, done: Sequence[Written]) -> None:
    """Of a micro-batch of which some parts may be committed."""
    lost = [one.partition for one in done if one.skipped and one.kept is None]
    if lost:
        raise SinkError(
            f"{rules.name}: tasks {lost} found micro-batch {batch} written, and the marker that "
            "said so is gone: another program changes the offsets of this sink; end it, and start "
            "the query again"
        )
    _check_skipped(rules, batch, done)


def _check_skipped(rules: Rules, batch: int, done: Sequence[Written]) -> None:
    """Each skipped part had the rows that its marker speaks of."""
    for one in done:
        known = None if one.kept is None else one.kept.total
        if known is None or rules.keeps_other_rows or one.total.is_same(known):
            continue
        what = f"task {one.partition} of micro-batch {batch}"
        raise _other_rows(rules, batch, what, known, one.total)


def _other_rows(rules: Rules, batch: int, what: str, known: Total, now: Total) -> SinkError:
    rows = f"{known.rows} are written, this time there are {now.rows}"
    if known.rows == now.rows:
        rows = f"as many ({now.rows}), but others"
    if rules.is_job and batch == 0:
        return SinkError(
            f"{rules.name} is written already, with other rows ({what}: {rows}): give other rows "
            "another tidelog.job.id; tidelog.sink.onOtherRows=keep leaves what is written as it is"
        )
    return SinkError(
        f"{rules.name}: {what} is written already, with other rows ({rows}): either the checkpoint "
        f"is older than the sink (give it another {rules.option}), or the query does not compute "
        "the same rows each time, as with rand() or limit without an order (have "
        "tidelog.delivery=exactly-once-atomic for those); tidelog.sink.onOtherRows=keep goes on "
        "with what is written"
    )
