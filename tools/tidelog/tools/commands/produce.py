"""`tidelog produce`: lines of standard input or a file become records."""

import contextlib
import os
import stat
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import NoReturn

import click

from tidelog.clients.client import Client
from tidelog.clients.failures import AbortableError, ClientError, FatalError, TransactionError
from tidelog.clients.producer.producer import Producer
from tidelog.clients.producer.sender import Delivered, Failed
from tidelog.clients.producer.transactional import TransactionalProducer
from tidelog.clients.settings import Acks, ProducerSettings
from tidelog.kernel.ids import Partition
from tidelog.kernel.instant import ms, s
from tidelog.tools.completing import topic_names
from tidelog.tools.connecting import check_partition, connected, known_topics
from tidelog.tools.lengths import length
from tidelog.tools.line_records import LineError, LineFormat
from tidelog.tools.lines import lines_of
from tidelog.tools.output import (
    FAILED,
    NOT_FOUND,
    UNREACHABLE,
    Command,
    Target,
    bootstrap_options,
    counted,
    emit_json,
    fail,
    json_option,
    progress_bar,
)
from tidelog.wire.codecs import Codec
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.records import Record

VERSION = 1
DELIVERY_TIMEOUT_NS = s(60)
ACKS = {"0": Acks.NONE, "1": Acks.LEADER, "all": Acks.ALL, "-1": Acks.ALL}
CODECS = [codec.name.lower() for codec in Codec]


@dataclass(frozen=True, slots=True)
class _Job:
    topic: str
    partition: Partition | None
    read: Callable[[bytes, int], Record]
    settings: ProducerSettings


@dataclass(slots=True)
class _Written:
    """What the brokers said so far."""

    records: int = 0
    unwritten: int = 0
    failure: Failed | None = None
    ranges: dict[int, tuple[int, int] | None] = field(default_factory=dict)
    """First and last offset by partition; None where the brokers do not say (acks=0)."""

    def take(self, producer: Producer) -> None:
        for result in producer.take_results():
            if isinstance(result, Delivered):
                self._deliver(result)
            else:
                self.unwritten += result.records
                self.failure = self.failure or result

    def _deliver(self, done: Delivered) -> None:
        self.records += done.records
        number = done.partition[1]
        known = self.ranges.setdefault(number, None)
        if done.base_offset >= 0:
            last = done.base_offset + done.records - 1
            low, high = known or (done.base_offset, last)
            self.ranges[number] = (min(low, done.base_offset), max(high, last))


@click.command(
    cls=Command,
    examples=(
        "seq 100 | tidelog produce orders",
        "echo 'k1=hello' | tidelog produce orders --key-separator =",
        "tidelog produce orders --file bills.txt --transactional-id bills-1",
    ),
)
@click.argument("topic", shell_complete=topic_names)
@click.option("-k", "--key", help="The key of every record.")
@click.option("--key-separator", metavar="C", help="A line is KEY, this text, VALUE.")
@click.option("--headers", is_flag=True, help="A line begins with NAME:VALUE,… and a tab.")
@click.option("--partition", metavar="P", type=click.IntRange(0), help="Default: by key.")
@click.option(
    "--acks",
    type=click.Choice(["0", "1", "all", "-1"]),
    default="all",
    show_default=True,
    help="Whose word makes a record written.",
)
@click.option("--transactional-id", metavar="ID", help="All records in one transaction.")
@click.option(
    "--transaction-timeout",
    "timeout_ms",
    metavar="D",
    default="60s",
    show_default=True,
    callback=length,
    help="The cluster aborts a transaction that takes longer, as 90s or 10m.",
)
@click.option("--file", "path", metavar="F", type=click.Path(dir_okay=False), help="Not stdin.")
@click.option(
    "--compression",
    type=click.Choice(CODECS),
    default="none",
    show_default=True,
    help="How batches are packed.",
)
@bootstrap_options
@json_option
def produce(  # noqa: PLR0913 -- the options of the command
    target: Target,
    *,
    topic: str,
    key: str | None,
    key_separator: str | None,
    headers: bool,
    partition: int | None,
    acks: str,
    transactional_id: str | None,
    timeout_ms: int,
    path: str | None,
    compression: str,
    as_json: bool,
) -> None:
    """Write lines into a topic, a record each; keys keep their partition."""
    if key is not None and key_separator is not None:
        raise click.UsageError("--key gives every record its key: leave out --key-separator")
    if key_separator == "":
        raise click.UsageError("--key-separator must not be empty")
    if transactional_id is not None and ACKS[acks] is not Acks.ALL:
        raise click.UsageError("a transaction needs --acks all")
    settings = ProducerSettings(
        acks=ACKS[acks],
        codec=Codec[compression.upper()],
        delivery_timeout_ns=DELIVERY_TIMEOUT_NS,
        transactional_id=transactional_id,
        transaction_timeout_ns=ms(timeout_ms),
    )
    separator = None if key_separator is None else key_separator.encode()
    form = LineFormat(None if key is None else key.encode(), separator, headers)
    chosen = None if partition is None else Partition(partition)
    with _input(path) as descriptor, connected(target) as client:
        _check(client, topic, chosen)
        written = _write(client, _Job(topic, chosen, form.reader(), settings), descriptor)
    _report(topic, written, as_json=as_json)


@contextlib.contextmanager
def _input(path: str | None) -> Iterator[int]:
    if path is None or path == "-":
        yield sys.stdin.fileno()
        return
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else FAILED
        fail(f"cannot read {path!r} ({(error.strerror or str(error)).lower()})", code)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _check(client: Client, topic: str, partition: Partition | None) -> None:
    (view,) = known_topics(client, [topic])
    if partition is not None:
        check_partition(view, partition)


def _write(client: Client, job: _Job, descriptor: int) -> _Written:
    # Runs of this command take turns; a keyless record of a single run has no better place.
    first = os.getpid()
    if job.settings.transactional_id is not None:
        return _write_whole(
            TransactionalProducer(client, job.settings, first_partition=first), job, descriptor
        )
    producer = Producer(client, job.settings, first_partition=first)
    producer.open(job.topic)
    written = _Written()
    _read_through(producer, job, descriptor, written)
    return written


def _write_whole(producer: TransactionalProducer, job: _Job, descriptor: int) -> _Written:
    """All in one transaction, or nothing."""
    written = _Written()
    name = job.settings.transactional_id
    _open(producer, job)
    producer.begin()
    try:
        _read_through(producer, job, descriptor, written)
    except TransactionError as error:
        _nothing_written(producer, error)
    except BaseException:
        _abort(producer)
        raise
    try:
        producer.commit()
    except AbortableError as error:
        _nothing_written(producer, error)
    except ClientError as error:
        code = FAILED if isinstance(error, FatalError) else UNREACHABLE
        unknown = f"whether the transaction is committed is not known ({error})"
        fail(f"{unknown}: see tidelog txn describe {name}", code)
    return written


def _nothing_written(producer: TransactionalProducer, error: TransactionError) -> NoReturn:
    """Who cannot even abort is told the better reason then."""
    dead = _abort(producer)
    if dead is not None:
        fail(f"nothing is written: {dead}")
    said = f"nothing is written, the transaction is aborted: {error.said}"
    fail(said, UNREACHABLE if error.code is None else FAILED)


def _open(producer: TransactionalProducer, job: _Job) -> None:
    try:
        producer.open(job.topic)
    except FatalError as error:
        if error.code is not ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise
        longest = "must be more than 0, and at most the cluster's transaction.max.timeout.ms"
        raise click.UsageError(f"--transaction-timeout: {longest}") from None


def _abort(producer: TransactionalProducer) -> FatalError | None:
    """Best effort: what is left open is aborted by the cluster when its time is over."""
    try:
        producer.abort()
    except FatalError as error:
        return error
    except (ClientError, Rejected):
        return None
    return None


def _read_through(producer: Producer, job: _Job, descriptor: int, written: _Written) -> None:
    with contextlib.closing(_shown(lines_of(descriptor), descriptor)) as blocks:
        _pump(producer, job, blocks, written)
    producer.flush()
    written.take(producer)


def _pump(producer: Producer, job: _Job, blocks: Iterable[list[bytes]], written: _Written) -> None:
    """Read and append until the input ends or a batch fails; memory is bounded by the buffer."""
    line_number = 0
    for block in blocks:
        stamp = time.time_ns() // 1_000_000
        for line in block:
            line_number += 1
            try:
                record = job.read(line, stamp)
            except LineError as error:
                producer.flush()
                written.take(producer)
                fail(f"line {line_number}: {error}; {_until_then(job, written)}")
            producer.send(job.topic, record, job.partition)
        if not block:
            producer.flush()
        written.take(producer)
        if written.failure is not None:
            return


def _shown(blocks: Iterable[list[bytes]], descriptor: int) -> Generator[list[bytes], None, None]:
    """The same blocks; on a terminal a bar shows how much of a file they are."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        yield from blocks
        return
    with progress_bar("writing", status.st_size) as advance:
        for block in blocks:
            yield block
            if advance is not None:
                advance(sum(map(len, block)) + len(block))


def _until_then(job: _Job, written: _Written) -> str:
    """What became of the lines before a wrong one, so that nobody writes them twice."""
    if job.settings.transactional_id is not None:
        return "nothing is written: the transaction is aborted"
    count = written.records
    return f"{counted(count, 'record')} before it {'is' if count == 1 else 'are'} written"


def _report(topic: str, written: _Written, *, as_json: bool) -> None:
    if written.failure is not None:
        _fail(written.failure, written)
    if as_json:
        emit_json(
            {
                "version": VERSION,
                "topic": topic,
                "records": written.records,
                "partitions": {
                    str(number): _range(written.ranges[number]) for number in sorted(written.ranges)
                },
            }
        )
        return
    places = [
        f"partition {number}{_offsets(span)}" for number, span in sorted(written.ranges.items())
    ]
    where = f": {', '.join(places)}" if places else ""
    click.echo(f"wrote {counted(written.records, 'record')} to {topic}{where}")


def _fail(failure: Failed, written: _Written) -> NoReturn:
    name = f"{failure.partition[0]}-{failure.partition[1]}"
    why = "" if failure.code is None else failure.code.name
    said = ": ".join(part for part in (why, failure.detail.rstrip(".")) if part)
    total = counted(written.records + written.unwritten, "record")
    fail(
        f"not written: {written.unwritten} of {total}; {name}: {said}",
        UNREACHABLE if failure.code is None else FAILED,
    )


def _offsets(span: tuple[int, int] | None) -> str:
    if span is None:
        return ""
    first, last = span
    return f" offset {first}" if first == last else f" offsets {first} to {last}"


def _range(span: tuple[int, int] | None) -> dict[str, int | None]:
    first, last = span or (None, None)
    return {"first_offset": first, "last_offset": last}
