"""What is written and read by confluent-kafka, the same for every broker."""

import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from clusters import Cluster
from measuring import GB, MB, WRITTEN_BYTES_MAX, Figures, Meter, percentile, warm_memory

PARTITIONS: Final = 6
_BURST: Final = 200
_WORDS: Final = (
    "order",
    "user",
    "view",
    "price",
    "region",
    "device",
    "session",
    "status",
    "shipped",
    "pending",
    "paid",
    "count",
    "total",
    "currency",
    "mobile",
    "created",
)

PRODUCER: Final = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": "5",
    "log_level": 4,
}
TUNED_CONSUMER: Final = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "check.crcs": True,
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 262_144,
    "fetch.queue.backoff.ms": 1,
}
"""With its defaults librdkafka waits more than it reads, and is what would be measured."""


def values(size: int, *, count: int = 2000, seed: int = 7) -> list[bytes]:
    """Distinct texts like JSON of exactly that size; lz4 packs a batch of them about 3 to 1."""
    rng = random.Random(seed)
    return [_text(rng, size) for _ in range(count)]


def _text(rng: random.Random, size: int) -> bytes:
    fields = {"id": rng.getrandbits(48), "at": 1_700_000_000_000 + rng.getrandbits(34)}
    text = json.dumps(fields, separators=(",", ":"))[:-1]
    while len(text) < size:
        value = rng.choice((f'"{rng.choice(_WORDS)}"', str(rng.getrandbits(32))))
        text += f',"{rng.choice(_WORDS)}":{value}'
    return text[: size - 1].encode() + b"}"


def make_topic(
    bootstrap: str, name: str, partitions: int = PARTITIONS, *, replication: int = 1
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
    admin.create_topics([NewTopic(name, partitions, replication)])[name].result(60)


def drop_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 4})
    admin.delete_topics([name])[name].result(60)


def send(
    producer: Any,  # noqa: ANN401 -- untyped package
    topic: str,
    content: Sequence[bytes],
    seconds: float,
    *,
    records_max: int = 1 << 62,
) -> int:
    """As fast as the client can for so long; how many, all of them acknowledged."""
    sent, end = 0, time.monotonic() + seconds
    produce, poll, kinds = producer.produce, producer.poll, len(content)
    while sent < records_max and time.monotonic() < end:
        for _ in range(_BURST):
            try:
                produce(topic, content[sent % kinds])
            except BufferError:
                poll(0.01)
                continue
            sent += 1
        poll(0)
    left = producer.flush(120)
    assert not left, f"{left} records were not delivered"
    return sent


@dataclass(frozen=True, slots=True)
class Load:
    """What one producer writes."""

    size: int = 1024
    compression: str = "none"
    acks: str = "all"
    replication: int = 1
    seconds: float = 5.0
    bytes_max: int = WRITTEN_BYTES_MAX


def produce_run(cluster: Cluster, load: Load) -> Figures:
    """One producer into a new topic, warmed up; throughput and processor time."""
    topic = f"produce-{time.time_ns()}"
    make_topic(cluster.bootstrap, topic, replication=load.replication)
    content = values(load.size)
    producer = Producer(
        producer_settings(load.acks)
        | {"bootstrap.servers": cluster.bootstrap, "compression.type": load.compression}
    )
    send(producer, topic, content, min(2.0, load.seconds / 4))
    plain = warm_memory(load.bytes_max * load.replication)
    meter = Meter(cluster.pids)
    sent = send(
        producer, topic, content, load.seconds, records_max=max(1, load.bytes_max // load.size)
    )
    figures = meter.stop()
    drop_topic(cluster.bootstrap, topic)
    figures["plain_write_cpu_s_per_gb"] = plain
    return {**figures, **rates(figures, records=sent, value_bytes=sent * load.size)}


def producer_settings(acks: str) -> dict[str, Any]:
    """An idempotent producer asks for acks=all; any other cannot be one."""
    return {**PRODUCER, "acks": acks, "enable.idempotence": acks == "all"}


def fill(
    bootstrap: str,
    topic: str,
    *,
    size: int,
    records: int,
    replication: int = 1,
    batch: int = 1_000_000,
) -> None:
    """Write what will be read."""
    make_topic(bootstrap, topic, replication=replication)
    write(bootstrap, topic, size=size, records=records, batch=batch)


def write(bootstrap: str, topic: str, *, size: int, records: int, batch: int = 1_000_000) -> None:
    """So many records into a topic that is there."""
    content = values(size)
    producer = Producer({**PRODUCER, "bootstrap.servers": bootstrap, "batch.size": batch})
    for number in range(records):
        while True:
            try:
                producer.produce(topic, content[number % len(content)])
                break
            except BufferError:
                producer.poll(0.01)
        if number % _BURST == 0:
            producer.poll(0)
    assert not producer.flush(120)


def consume_run(cluster: Cluster, topic: str, *, size: int, records: int) -> Figures:
    """One consumer from the beginning to the last record, which is in the page cache.

    Measured from its first records on: until then librdkafka waits half a second, or a whole one,
    for its own timers.
    """
    consumer = Consumer({**TUNED_CONSUMER, "bootstrap.servers": cluster.bootstrap})
    began = time.monotonic()
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
    first = seen = len(consumer.consume(1, 30.0))
    waited = time.monotonic() - began
    meter = Meter(cluster.pids)
    while seen < records:
        messages = consumer.consume(min(1000, records - seen), 30.0)
        assert messages, f"nothing came for 30 s after {seen} of {records} records"
        seen += len(messages)
    figures = meter.stop()
    consumer.close()
    found = rates(figures, records=seen - first, value_bytes=(seen - first) * size)
    return {**figures, **found, "records": seen, "first_record_s": round(waited, 3)}


@dataclass(frozen=True, slots=True)
class Pace:
    """Records at a steady rate."""

    rate: int = 200
    seconds: float = 15.0
    size: int = 1024
    acks: str = "all"


def latency_run(cluster: Cluster, topic: str, pace: Pace) -> Figures:
    """How long each acknowledgement takes: linger 0, a client that is up to date."""
    producer = Producer(
        producer_settings(pace.acks) | {"bootstrap.servers": cluster.bootstrap, "linger.ms": "0"}
    )
    (value,) = values(pace.size, count=1)
    _waits(producer, topic, value, rate=pace.rate, seconds=min(2.0, pace.seconds / 4))
    meter = Meter(cluster.pids)
    waits = _waits(producer, topic, value, rate=pace.rate, seconds=pace.seconds)
    figures = meter.stop()
    return {
        **figures,
        "records": len(waits),
        "p50_ms": round(1000 * percentile(waits, 0.5), 3),
        "p99_ms": round(1000 * percentile(waits, 0.99), 3),
        "p999_ms": round(1000 * percentile(waits, 0.999), 3),
        "brokers_cpu_percent": round(100 * figures["brokers_cpu_s"] / figures["wall_s"], 2),
    }


def _waits(
    producer: Any,  # noqa: ANN401 -- untyped package
    topic: str,
    value: bytes,
    *,
    rate: int,
    seconds: float,
) -> list[float]:
    """Seconds from produce to acknowledgement; the callback runs as soon as the client has it."""
    waits: list[float] = []
    began = time.perf_counter()
    for number in range(int(rate * seconds)):
        due = began + number / rate
        while (left := due - time.perf_counter()) > 0:
            producer.poll(left)
        producer.produce(topic, value, on_delivery=_noting(waits, time.perf_counter()))
    assert not producer.flush(30)
    return waits


def _noting(waits: list[float], sent: float) -> Callable[[object, object], None]:
    def note(error: object, _message: object) -> None:
        assert error is None, error
        waits.append(time.perf_counter() - sent)

    return note


def rates(figures: Figures, *, records: int, value_bytes: int) -> Figures:
    """Per second and per GB of values."""
    wall, gigabytes = figures["wall_s"], value_bytes / GB
    return {
        "records": records,
        "mb_per_s": round(value_bytes / MB / wall, 1),
        "records_per_s": round(records / wall),
        "brokers_cpu_s_per_gb": round(figures["brokers_cpu_s"] / gigabytes, 3),
        "client_cpu_s_per_gb": round(figures["client_cpu_s"] / gigabytes, 3),
    }
