"""A task's rows into topics, at least once: what every way of delivery has in common."""

import time
from collections.abc import Iterable
from typing import Any

from tidelog.clients.client import Client
from tidelog.clients.cluster_view import refresh
from tidelog.clients.producer.producer import Producer
from tidelog.clients.producer.sender import Failed
from tidelog.clients.settings import ProducerSettings
from tidelog.kernel.instant import ms
from tidelog.kernel.topic_names import fault_of_name
from tidelog.spark.arrow import Encoder
from tidelog.spark.fingerprint import Fingerprint
from tidelog.spark.options import SinkOptions, Subscribed
from tidelog.spark.planning import find_partitions
from tidelog.spark.routing import Router
from tidelog.spark.rows import gathered, written_columns
from tidelog.spark.tasks import SinkError, TaskInfo, Written
from tidelog.wire.errors import ErrorCode, Rejected


def producer_settings(
    options: SinkOptions, transactional_id: str | None = None
) -> ProducerSettings:
    """What the options say, as a producer is told."""
    producing = options.producing
    return ProducerSettings(
        acks=producing.acks,
        codec=producing.codec,
        batch_bytes=producing.batch_bytes,
        request_bytes=producing.request_bytes,
        buffer_bytes=producing.buffer_bytes,
        request_timeout_ns=ms(options.connection.request_timeout_ms),
        delivery_timeout_ns=ms(producing.delivery_timeout_ms),
        transactional_id=transactional_id,
        transaction_timeout_ns=ms(producing.transaction_timeout_ms),
    )


def write_rows(
    client: Client,
    producer: Producer,
    options: SinkOptions,
    batches: Iterable[Any],
    *,
    first: int,
    fingerprint: Fingerprint | None = None,
) -> int:
    """Hand all rows to the producer, and wait until they are written; how many there were."""
    known: dict[str, int] = {}

    def partition_count(topic: str) -> int:
        if topic not in known:
            known[topic] = open_topic(client, producer, topic)
        return known[topic]

    producing = options.producing
    encoder = Encoder(producing.codec, batch_bytes=producing.batch_bytes)
    router = Router(options.topic, partition_count, first=first)
    rows = 0
    for batch in gathered(batches):
        columns = written_columns(batch, with_headers=options.with_headers)
        if fingerprint is not None:
            fingerprint.add(columns)
        now = time.time_ns() // 1_000_000
        for part in router.parts(columns):
            for one in encoder.encode(part.rows, now_ms=now):
                producer.send_batch(part.topic, part.partition, one.batch)
        rows += columns.num_rows
        _check(producer)
    producer.flush()
    _check(producer)
    return rows


def write_at_least_once(
    client: Client, options: SinkOptions, task: TaskInfo, batches: Iterable[Any]
) -> Written:
    """Each row once if nothing fails; whatever is tried again may be written again."""
    producer = Producer(client, producer_settings(options))
    rows = write_rows(client, producer, options, batches, first=task.partition)
    return Written(task.partition, rows)


def open_topic(client: Client, producer: Producer, topic: str) -> int:
    """How many partitions a topic has; one that is not there may be created at its first use."""
    fault = fault_of_name(topic)
    if fault is not None:
        raise SinkError(f"a row's topic cannot be written to: {fault}")
    try:
        return producer.open(topic)
    except Rejected as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    client.run(refresh(client.view, [topic], creates=True))
    found = client.run(find_partitions(client.view, Subscribed((topic,))))
    if found.missing:
        raise SinkError(f"topic {topic!r} is not there, and the cluster does not create it")
    return producer.open(topic)


def _check(producer: Producer) -> None:
    for result in producer.take_results():
        if isinstance(result, Failed):
            topic, number = result.partition
            code = result.code.name if result.code is not None else ""
            why = ": ".join(one for one in (code, result.detail) if one)
            raise SinkError(
                f"{result.records} rows could not be written to {topic}-{number}: {why}"
            )
