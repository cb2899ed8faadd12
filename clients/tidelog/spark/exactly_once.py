"""Exactly once: a task writes in a transaction, and the driver commits it once all tasks are done.

The end of a task's input does not mean that the task has all of its rows: Spark ends the input also
when what feeds it has failed. Only the driver learns whether a task has succeeded. So a task leaves
its transaction open, with its rows and its marker in it, and tells the driver what is needed to end
it. The marker is the offset that a consumer group named after the sink and the task's number
commits: N + 1 where micro-batch N is written.

An attempt begins by taking the transactional id of the same name over. That aborts what an earlier
attempt left open, or lets an end come to its end that somebody asked for; and from there on that
attempt can commit nothing. Then the attempt reads the marker, and if it says that the rows are
there, the attempt writes nothing. `docs/exactly-once.md` has the states and failures as a table.
"""

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from tidelog.clients.admin.group_offsets import stable_offset
from tidelog.clients.asking import Plan
from tidelog.clients.client import Client
from tidelog.clients.failures import ClientError, TransactionError, UnsupportedError
from tidelog.clients.producer.life import Phase
from tidelog.clients.producer.sender import Identity
from tidelog.clients.producer.transaction import Membership, ends_take_epochs
from tidelog.clients.producer.transactional import TransactionalProducer
from tidelog.kernel.instant import s
from tidelog.spark.fingerprint import Fingerprint
from tidelog.spark.options import SinkOptions
from tidelog.spark.rows import gathered, written_columns
from tidelog.spark.sink_commit import (
    TAKEN_OVER,
    Finish,
    Found,
    Sink,
    finish,
    give_up,
    let_go,
    permit_now,
    read_markers,
    take_over_parts,
    too_late,
)
from tidelog.spark.sink_decisions import (
    Batch,
    Rules,
    check_no_part_written,
    check_permit,
    check_same,
    part_is_written,
    parts_known,
    whole_is_written,
)
from tidelog.spark.sink_markers import (
    PartMarker,
    Rows,
    SinkMarker,
    part_metadata,
    sink_marker,
    sink_metadata,
)
from tidelog.spark.sink_permits import read_permit
from tidelog.spark.tasks import (
    Kept,
    Open,
    Point,
    Reached,
    SinkError,
    TaskInfo,
    Total,
    Written,
    go_on,
)
from tidelog.spark.writing import open_topic, producer_settings, write_rows
from tidelog.wire.errors import ErrorCode, Rejected

_ABORT_NS: Final = s(10)
"""For an abort after a failure; then the cluster does it when the transaction's time is up."""


def rules_of(options: SinkOptions, sink: Sink) -> Rules:
    return Rules(
        sink.name,
        is_job=options.job_id is not None,
        writes_without_marker=options.writes_without_marker,
        keeps_other_rows=options.keeps_other_rows,
    )


class _Side:
    """What a task and the driver both have."""

    def __init__(
        self, client: Client, options: SinkOptions, sink: Sink, *, reached: Reached = go_on
    ) -> None:
        self._client = client
        self._options = options
        self._sink = sink
        self._rules = rules_of(options, sink)
        self._reached = reached


class Writer(_Side):
    """A task's part: writes the rows of one micro-batch, unless they are committed already."""

    def write(self, task: TaskInfo, batches: Iterable[Any]) -> Written:
        """Read `batches` to their end, in any case; what the driver needs to know."""
        name = self._sink.part(task.partition)
        self._reached(Point.BEGIN, task.batch, task.partition)
        self._check_permit(task)
        began_ms = _now_ms()
        producer = TransactionalProducer(self._client, producer_settings(self._options, name))
        open_topic(self._client, producer, self._sink.marker[0])
        part, sink, permit = self._markers(task)
        check_permit(self._rules, task, permit)
        if part_is_written(self._rules, task, part, sink):
            total = _drained(batches, self._options)
            return Written(
                task.partition, 0, skipped=True, total=total, kept=_kept(part, task.batch)
            )
        producer.begin()
        try:
            return self._written(producer, task, batches, began_ms)
        except BaseException as error:
            _abort(producer)
            self._check_time(error, began_ms)
            raise

    def _check_permit(self, task: TaskInfo) -> None:
        """A task that comes too late would be refused after it has taken its part's id over, too.
        But by then it would have taken the id from the run of the query that has followed."""
        client = self._client
        check_permit(self._rules, task, client.run(permit_now(client.view, self._sink, task)))

    def _markers(self, task: TaskInfo) -> Found:
        client, sink = self._client, self._sink
        try:
            return client.run(read_markers(client.view, sink, task))
        except Rejected as error:
            if error.code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
                raise
            raise SinkError(
                f"{self._rules.name}: another attempt of task {task.partition} of micro-batch "
                f"{task.batch} has begun since, and is writing ({error.code.name}): let one query "
                f"alone have this {self._rules.option}, without speculative execution"
            ) from error

    def _check_time(self, error: BaseException, began_ms: int) -> None:
        """A coordinator that aborts a transaction when its time is up takes an epoch for that. The
        task then hears of an old epoch, which does not say what to do."""
        code = error.code if isinstance(error, TransactionError | Rejected) else None
        text = str(error) if isinstance(error, SinkError) else ""
        is_fenced = code in TAKEN_OVER or any(one.name in text for one in TAKEN_OVER)
        limit_ms = self._options.producing.transaction_timeout_ms
        passed_ms = _now_ms() - began_ms
        if is_fenced and passed_ms >= limit_ms:
            raise SinkError(f"{self._rules.name}: {too_late(limit_ms, passed_ms)}") from error

    def _written(
        self,
        producer: TransactionalProducer,
        task: TaskInfo,
        batches: Iterable[Any],
        began_ms: int,
    ) -> Written:
        prints = Fingerprint(self._options.topic)
        rows = write_rows(
            self._client,
            producer,
            self._options,
            batches,
            first=task.partition,
            fingerprint=prints,
        )
        self._reached(Point.BEFORE, task.batch, task.partition)
        said = part_metadata(task.query, prints.total)
        member = Membership(self._sink.part(task.partition), metadata=said)
        producer.send_offsets({self._sink.marker: task.batch + 1}, member)
        self._reached(Point.MID, task.batch, task.partition)
        left = Open(producer.leave_open(), began_ms)
        self._reached(Point.AFTER, task.batch, task.partition)
        return Written(task.partition, rows, total=prints.total, open=left)


class Committer(_Side):
    """The driver's part: commits what the tasks of a micro-batch have written."""

    def finish(self, batch: Batch, messages: Sequence[Written | None]) -> None:
        """Before Spark notes that the micro-batch is done. SinkError, ClientError or Rejected where
        it is not: then what can be aborted is, and the query does the micro-batch again."""
        work = Finish(
            self._sink,
            self._rules,
            batch,
            timeout_ms=self._options.producing.transaction_timeout_ms,
            takes_epochs=ends_take_epochs(self._client.network.features),
            now_ms=_now_ms(),
            reached=self._reached,
        )
        try:
            self._client.run(finish(self._client.view, work, messages))
        except (SinkError, ClientError, Rejected):
            self.let_go(len(messages))
            raise

    def permit(self) -> Identity | None:
        """What tasks need in order to begin, for a job that is about to be planned; None if the
        brokers are too old to tell."""
        try:
            return self._client.run(read_permit(self._client.view, self._sink.permit))
        except UnsupportedError:
            return None

    def give_up(self, parts: int) -> None:
        """After the job has failed: end what its tasks left open, also those that begin later. What
        cannot be ended now is when its time is up."""
        try:
            self._client.run(give_up(self._client.view, self._sink, parts), _ABORT_NS)
        except (ClientError, Rejected):
            self.let_go(parts)
        self._reached(Point.GIVEN_UP, -1, -1)

    def let_go(self, parts: int) -> None:
        """Abort what tasks left open; what cannot be aborted now is when its time is up."""
        names = [self._sink.part(number) for number in range(parts)]
        with suppress(ClientError, Rejected):
            self._client.run(let_go(self._client.view, names), _ABORT_NS)

    def write_whole(self, batch: Batch, batches: Iterable[Any], parts: int = 0) -> Written:
        """All rows of a micro-batch in one transaction, of the sink's own id; `parts` is the number
        of tasks that the rows come from."""
        settings = producer_settings(self._options, self._sink.name)
        producer = TransactionalProducer(self._client, settings)
        open_topic(self._client, producer, self._sink.marker[0])
        known = sink_marker(self._client.run(self._own_marker()))
        if whole_is_written(self._rules, batch, known):
            assert known is not None
            total = _drained(batches, self._options)
            check_same(self._rules, Rows(batch.number, total, batch.plan), known)
            return Written(0, 0, skipped=True, total=total)
        self._settle_parts(batch, known, parts)
        producer.begin()
        try:
            return self._whole(producer, batch, batches, known)
        except BaseException:
            _abort(producer)
            raise

    def _settle_parts(self, batch: Batch, known: SinkMarker | None, tasks: int) -> None:
        """What tasks left open is aborted, and what they have committed must not be written twice.

        If a driver was ending this micro-batch, some parts may be committed. Tasks of earlier
        versions committed their own parts, and the sink's marker did not say so before all of them
        had. So in these cases, and without that marker, the parts' own markers decide.
        """
        parts = parts_known(batch, known, tasks)
        if known is None or known.is_old or known.is_ending(batch.number):
            view = self._client.view
            markers = self._client.run(take_over_parts(view, self._sink, range(parts)))
            check_no_part_written(self._rules, batch, markers, known)
        elif not known.is_whole:
            self.let_go(parts)

    def _whole(
        self,
        producer: TransactionalProducer,
        batch: Batch,
        batches: Iterable[Any],
        known: SinkMarker | None,
    ) -> Written:
        prints = Fingerprint(self._options.topic)
        rows = write_rows(
            self._client, producer, self._options, batches, first=0, fingerprint=prints
        )
        self._reached(Point.BEFORE, batch.number, 0)
        marker = SinkMarker(
            batch.number + 1,
            batch.query,
            0 if known is None else known.parts,
            Rows(batch.number, prints.total, batch.plan),
            is_whole=True,
            renewed_ms=None if known is None else known.renewed_ms,
        )
        member = Membership(self._sink.name, metadata=sink_metadata(marker))
        producer.send_offsets({self._sink.marker: marker.offset}, member)
        self._reached(Point.MID, batch.number, 0)
        producer.commit()
        self._reached(Point.AFTER, batch.number, 0)
        return Written(0, rows, total=prints.total)

    def _own_marker(self) -> Plan[Any]:
        return stable_offset(self._client.view, self._sink.name, self._sink.marker)


def _kept(part: PartMarker | None, batch: int) -> Kept | None:
    is_its = part is not None and part.offset == batch + 1
    return Kept(part.total) if part is not None and is_its else None


def _drained(batches: Iterable[Any], options: SinkOptions) -> Total:
    """Of rows that are not written: whoever gives them wants to be read to the end."""
    prints = Fingerprint(options.topic)
    for batch in gathered(batches):
        prints.add(written_columns(batch, with_headers=options.with_headers))
    return prints.total


def _abort(producer: TransactionalProducer) -> None:
    """What an attempt that fails has begun would hold readers back. The error that is on its way
    matters more than one of the abort; an attempt that was overtaken has nothing to abort."""
    if producer.phase is not Phase.DEAD:
        with suppress(Exception):
            producer.abort(_ABORT_NS)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
