"""One task's records: from a range of offsets to Arrow batches.

The next answer is asked for before the last one is decoded, so that the broker works meanwhile.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from tidelog.clients.admin.leaders import name_of
from tidelog.clients.admin.offsets import END, peek_offsets
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import refresh
from tidelog.clients.consumer.consumer import Consumer, Reset
from tidelog.clients.consumer.reading import Fetched
from tidelog.clients.failures import ClientError, TimedOutError
from tidelog.clients.settings import ConsumerSettings
from tidelog.kernel.ids import Epoch, Offset
from tidelog.kernel.instant import Instant, ms, s
from tidelog.spark.arrow import Column, Decoder
from tidelog.spark.connections import client_of
from tidelog.spark.loss import Loss, cut_off, loss_of, tell, vanished
from tidelog.spark.offsets import OffsetRange
from tidelog.spark.options import Fetching, SourceOptions
from tidelog.spark.planning import LOOKS_FOR_A_TOPIC, ends_now, plan_batch
from tidelog.spark.pushdown import Pushed
from tidelog.spark.segments import DoubtError, SegmentReader, Span
from tidelog.spark.stopped import plan_of_files, read_files
from tidelog.wire.errors import ErrorCode, WireError
from tidelog.wire.records import BatchHeader, iterate_batches

_LOG = logging.getLogger("tidelog.spark")
_LOOK_NS = s(1)
"""How often a task that waits looks whether its records are gone."""


def plan_ranges(options: SourceOptions, pushed: Pushed) -> Sequence[OffsetRange]:
    """The tasks of one batch; DataLossError where records that it should read are gone."""
    if options.connection is None:
        return plan_of_files(options, pushed)
    client = client_of(options.connection)
    plan = client.run(plan_batch(client.view, options, pushed))
    tell(plan.losses, fails=options.fail_on_data_loss)
    return plan.ranges


def read_range(wanted: OffsetRange, options: SourceOptions) -> Iterator[Any]:
    """The rows of a range, as Arrow's RecordBatch."""
    shaped = _null_where_empty if Column.HEADERS in options.columns else _as_it_is
    if options.connection is None:
        return map(shaped, read_files(wanted, options))
    return map(shaped, _batches(client_of(options.connection), wanted, options))


def _batches(client: Client, wanted: OffsetRange, options: SourceOptions) -> Iterator[Any]:
    if options.data_dirs:
        try:
            yield from _in_files(client, wanted, options)
        except DoubtError as doubt:
            _LOG.info("%s", doubt)
            wanted = replace(wanted, start=Offset(doubt.next_offset))
        else:
            return
    yield from RangeReader(client, wanted, options).batches()


def _in_files(client: Client, wanted: OffsetRange, options: SourceOptions) -> Iterator[Any]:
    """From the files of a replica that has all of it: the leader's, which says how far it goes."""
    view, level = client.view, options.fetching.isolation
    client.run(refresh(view, [wanted.topic]))
    ends = client.run(ends_now(view, [wanted.place], level))
    span = Span(
        wanted.place,
        wanted.start,
        wanted.end,
        level,
        leader=view.leader(wanted.place) if wanted.end <= ends[wanted.place] else None,
        topic_id=view.topic_id(wanted.topic) if view.topics[wanted.topic].has_id else None,
    )
    places = [Path(one) for one in options.data_dirs]
    rows = options.fetching.batch_rows
    yield from SegmentReader(places, span, options.columns, rows_per_batch=rows).batches()


class RangeReader:
    """Reads one range to its end."""

    def __init__(self, client: Client, wanted: OffsetRange, options: SourceOptions) -> None:
        fetching = options.fetching
        self._client = client
        self._network = client.network
        self._looks_in_vain = 0
        self._wanted = wanted
        self._options = options
        self._patience_ns = ms(fetching.patience_ms)
        self._consumer = Consumer(client, _settings(fetching, options))
        self._consumer.assign({wanted.place: wanted.start})
        self._coming: Fetched | None = None
        self._decoder = Decoder(
            wanted.place,
            options.columns,
            first=wanted.start,
            end=wanted.end,
            isolation=fetching.isolation,
            rows_per_batch=fetching.batch_rows,
        )

    def batches(self) -> Iterator[Any]:
        """One after the other; DataLossError where records are gone and that is no option."""
        while not self._decoder.finished:
            fetched = self._next()
            if fetched is None:
                return
            data, aborted = fetched.view, fetched.aborted
            self._ask_on(fetched)
            rows = self._decoder.feed(
                data, [(one.producer_id, one.first_offset) for one in aborted]
            )
            yield from rows

    def _next(self) -> Fetched | None:
        """The next answer; None if the log ends before the range does, and that is no failure."""
        until = Instant(self._network.now() + self._patience_ns)
        while self._coming is None:
            now = self._network.now()
            if now >= until:
                raise TimedOutError(self._patience_is_over())
            self._coming = self._consumer.poll(min(until, Instant(now + _LOOK_NS)))
            resets, self._consumer.resets = self._consumer.resets, []
            if not all(self._goes_on_after(one) for one in resets):
                return None
            if self._coming is None and not resets and self._has_ended():
                return None
        fetched, self._coming = self._coming, None
        return fetched

    def _goes_on_after(self, reset: Reset) -> bool:
        """Whether there is anything to read after records were found missing."""
        loss = self._loss(reset)
        if loss is not None:
            tell([loss], fails=self._options.fail_on_data_loss)
        # The batch at that offset may begin before it.
        self._decoder.next_offset = max(self._decoder.next_offset, reset.found)
        return reset.asked <= reset.found < self._wanted.end

    def _has_ended(self) -> bool:
        """Whether the log ends before the range does, so that waiting is of no use.

        The range was planned by an end that the log had. A leader that answers for its end knows
        all that was committed before its election, so a lower end means that records are gone.
        """
        try:
            loss = self._missing_end()
        except ClientError as error:
            _LOG.info("%s: the end of its log is not known: %s", name_of(self._wanted.place), error)
            return False
        if loss is not None:
            tell([loss], fails=self._options.fail_on_data_loss)
        return loss is not None

    def _missing_end(self) -> Loss | None:
        """What is gone behind the last record that was read, as the cluster has it now."""
        place, client = self._wanted.place, self._client
        topic, number = place
        client.run(refresh(client.view, [topic]), _LOOK_NS)
        is_unknown = client.view.errors.get(topic) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if is_unknown or 0 < client.view.partition_count(topic) <= number:
            # A broker that has just started may not have heard of the topic yet.
            self._looks_in_vain += 1
            is_certain = self._looks_in_vain >= LOOKS_FOR_A_TOPIC
            return vanished(place, self._decoder.next_offset) if is_certain else None
        self._looks_in_vain = 0
        found = client.run(peek_offsets(client.view, {place: END}), _LOOK_NS).get(place)
        if found is None or found.offset >= self._wanted.end:
            return None
        if self._decoder.next_offset < found.offset:
            return None  # what is left of the log must be read first, however long that takes
        return cut_off(place, self._wanted.end, found.offset)

    def _loss(self, reset: Reset) -> Loss | None:
        if reset.found < reset.asked:
            return loss_of(reset.partition, reset.asked, 0, reset.found)
        if self._wanted.from_earliest and reset.asked == self._wanted.start:
            return None
        return loss_of(reset.partition, reset.asked, reset.found, reset.found)

    def _ask_on(self, fetched: Fetched) -> None:
        """Ask for what follows, unless it is enough; decoding comes after."""
        last = _last_of(fetched)
        stop = Offset(last.next_offset)
        if stop >= self._wanted.end:
            self._consumer.drop(fetched.partition)
            return
        fetched.position, fetched.epoch = stop, Epoch(last.partition_leader_epoch)
        self._consumer.consumed(fetched)
        self._coming = self._consumer.poll(self._network.now())

    def _patience_is_over(self) -> str:
        topic, number = self._wanted.place
        patience_ms = self._options.fetching.patience_ms
        return (
            f"{topic}-{number}: nothing to be read from offset {self._decoder.next_offset} to "
            f"{self._wanted.end} within kafkaConsumer.pollTimeoutMs={patience_ms}"
        )


def _null_where_empty(batch: Any) -> Any:  # noqa: ANN401 -- a RecordBatch
    """A record without headers has null, as in Spark's own Kafka source."""
    at = batch.schema.get_field_index(Column.HEADERS)
    headers = batch.column(at)
    some = pc.greater(pc.list_value_length(headers), 0)
    return batch.set_column(at, batch.schema.field(at), pc.if_else(some, headers, None))


def _as_it_is(batch: Any) -> Any:  # noqa: ANN401 -- a RecordBatch
    return batch


def _settings(fetching: Fetching, options: SourceOptions) -> ConsumerSettings:
    timeout_ms = 30_000 if options.connection is None else options.connection.request_timeout_ms
    return ConsumerSettings(
        isolation=fetching.isolation,
        fetch_wait_ms=fetching.wait_ms,
        fetch_bytes_min=fetching.bytes_min,
        fetch_bytes_max=fetching.answer_bytes_max,
        partition_bytes_max=fetching.partition_bytes_max,
        request_timeout_ns=ms(timeout_ms),
    )


def _last_of(fetched: Fetched) -> BatchHeader:
    """The last whole batch; only headers are looked at."""
    last = None
    for header, _ in iterate_batches(fetched.view):
        last = header
    if last is None:
        topic, number = fetched.partition
        raise WireError(f"{topic}-{number}: an answer without a whole batch at {fetched.position}")
    return last
