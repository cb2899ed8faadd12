"""`tidelog txn hanging`: open transactions that nobody will end, and the command that ends each."""

from collections.abc import Sequence

import click

from tidelog.clients.admin.configs import Kind, Resource, describe_configs
from tidelog.clients.admin.leaders import name_of
from tidelog.clients.admin.open_transactions import OpenTransaction, open_transactions
from tidelog.clients.client import Client
from tidelog.clients.failures import ClientError
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.tools.completing import topic_names
from tidelog.tools.connecting import connected, known_topics
from tidelog.tools.lengths import length
from tidelog.tools.output import (
    NOT_FOUND,
    UNREACHABLE,
    VIOLATION,
    Command,
    Target,
    bootstrap_options,
    counted,
    emit_json,
    fail,
    json_option,
    span,
    table,
)
from tidelog.tools.transaction_look import all_partitions, now_ms
from tidelog.tools.transaction_reasons import (
    Verdict,
    age_ms,
    end_it,
    idle_ms,
    look_at_it,
    verdict,
)
from tidelog.wire.errors import Rejected

VERSION = 1
TRANSACTION_MAX = "transaction.max.timeout.ms"
MAX_TIMEOUT_MS = 900_000
"""Kafka's default of that."""


@click.command(
    "hanging",
    cls=Command,
    examples=(
        "tidelog txn hanging",
        "tidelog txn hanging --topic orders --max-timeout 1m",
        "tidelog txn hanging --broker 2 --json",
    ),
)
@click.option("--broker", metavar="ID", type=click.IntRange(0), help="Only what this broker leads.")
@click.option(
    "--topic",
    "topics",
    metavar="T",
    multiple=True,
    shell_complete=topic_names,
    help="Only in this topic; may be given several times.",
)
@click.option(
    "--max-timeout",
    "max_ms",
    metavar="D",
    callback=length,
    help="How long a transaction may take, as 90s or 15m: younger ones are left out.  "
    f"[default: the cluster's {TRANSACTION_MAX}]",
)
@bootstrap_options
@json_option
def hanging(
    target: Target,
    *,
    broker: int | None,
    topics: Sequence[str],
    max_ms: int | None,
    as_json: bool,
) -> None:
    """Find transactions that are open in partitions and that nobody will end.

    Those that no coordinator knows, or has nothing to end for, once their last record is older than
    any transaction may be; and those that their coordinator has not ended in their time.
    """
    with connected(target) as client:
        partitions = _partitions(client, topics, broker)
        max_ms = _max_timeout(client) if max_ms is None else max_ms
        seen = client.run(open_transactions(client.view, now_ms(), partitions))
    now = now_ms()
    found = [one for one in seen.found if _is_late(one, now, max_ms)]
    if as_json:
        rows = [_document(one, now, target.words) for one in found]
        emit_json(
            {
                "version": VERSION,
                "partitions": len(partitions),
                "unseen": [{"topic": topic, "partition": at} for topic, at in seen.unseen],
                "hanging": rows,
            }
        )
    else:
        _print(found, now, target.words)
    unseen = ", ".join(map(name_of, seen.unseen))
    missed = f"no leader answers for {unseen}" if unseen else ""
    if found:
        fail("; ".join(filter(None, (_verdict(len(found), len(partitions)), missed))), VIOLATION)
    if missed:
        fail(f"not all is seen: {missed}", UNREACHABLE)


def _verdict(found: int, partitions: int) -> str:
    hang = f"{counted(found, 'transaction')} {'hangs' if found == 1 else 'hang'}"
    return f"{hang} in {counted(partitions, 'partition')}"


def _partitions(client: Client, topics: Sequence[str], broker: int | None) -> list[TopicPartition]:
    """The command ends where there is no such topic or broker."""
    if topics:
        places = [
            (topic.name, Partition(number))
            for topic in known_topics(client, topics)
            for number in topic.partitions
        ]
    else:
        places = all_partitions(client)
    if broker is None:
        return places
    if broker not in client.view.brokers:
        there = ", ".join(map(str, sorted(client.view.brokers)))
        fail(f"there is no broker {broker}: the brokers are {there}", NOT_FOUND)
    return [one for one in places if client.view.leader(one) == broker]


def _max_timeout(client: Client) -> int:
    """Of the cluster; Kafka's default where that does not tell."""
    broker = Resource(Kind.BROKER, str(min(client.view.brokers, default=0)))
    try:
        found = client.run(describe_configs([broker]))[broker]
    except (ClientError, Rejected):
        return MAX_TIMEOUT_MS
    told = next((one.value for one in found if one.name == TRANSACTION_MAX), None)
    return int(told) if told else MAX_TIMEOUT_MS


def _is_late(one: OpenTransaction, now: int, max_ms: int) -> bool:
    match verdict(one, now):
        case Verdict.HANGING:
            idle = idle_ms(one, now)
            return idle is None or idle > max_ms
        case Verdict.OVERDUE:
            return True
        case Verdict.MARKER_OWED:
            assert one.transaction is not None
            age = age_ms(one.transaction, now)
            return age is not None and age > max_ms
        case Verdict.OPEN:
            return False


def _remedy(one: OpenTransaction, now: int, there: str) -> str:
    end = end_it(one, now, there)
    if end is not None:
        return end
    assert one.transaction is not None
    return look_at_it(one.transaction, there)


def _document(one: OpenTransaction, now: int, there: str) -> dict[str, object]:
    known = one.transaction
    return {
        "topic": one.partition[0],
        "partition": one.partition[1],
        "producer_id": one.producer.producer_id,
        "producer_epoch": one.producer.producer_epoch,
        "coordinator_epoch": one.producer.coordinator_epoch,
        "start_offset": one.start,
        "last_timestamp": one.producer.last_timestamp,
        "idle_ms": idle_ms(one, now),
        "transactional_id": None if known is None else known.transactional_id,
        "state": None if known is None else known.state,
        "verdict": verdict(one, now),
        "remedy": _remedy(one, now, there),
    }


def _print(found: Sequence[OpenTransaction], now: int, there: str) -> None:
    table([_row(one, now) for one in found], _COLUMNS)
    if found:
        click.echo("")
    for one in found:
        click.echo(f"  try: {_remedy(one, now, there)}")


_COLUMNS = (
    "TOPIC",
    "PARTITION",
    "START OFFSET",
    "PRODUCER",
    "EPOCH",
    "IDLE",
    "TRANSACTIONAL ID",
    "STATE",
    "VERDICT",
)


def _row(one: OpenTransaction, now: int) -> tuple[object, ...]:
    idle = idle_ms(one, now)
    known = one.transaction
    return (
        *one.partition,
        one.start,
        one.producer.producer_id,
        one.producer.producer_epoch,
        None if idle is None else span(idle),
        None if known is None else known.transactional_id,
        None if known is None else known.state,
        verdict(one, now),
    )
