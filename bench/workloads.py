"""What is written and read by confluent-kafka, the same for every broker."""

import json
import random
import time
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from measuring import GB, MB, Figures, Meter

PARTITIONS: Final = 6
PRODUCE_MEMORY_BYTES: Final = 4 << 30
"""More than the fastest producer here writes in a run."""
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
    "enable.idempotence": "true",
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


def make_topic(bootstrap: str, name: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)


def drop_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name])[name].result(60)


def send(producer: Any, topic: str, content: Sequence[bytes], seconds: float) -> int:  # noqa: ANN401 -- untyped package
    """As fast as the client can for so long; how many, all of them acknowledged."""
    sent, end = 0, time.monotonic() + seconds
    produce, poll, kinds = producer.produce, producer.poll, len(content)
    while time.monotonic() < end:
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


def produce_run(cluster: Any, *, size: int, compression: str, seconds: float) -> Figures:  # noqa: ANN401 -- a Cluster
    """One producer into a new topic, warmed up; throughput and processor time."""
    topic = f"produce-{time.time_ns()}"
    make_topic(cluster.bootstrap, topic)
    content = values(size)
    producer = Producer(
        {**PRODUCER, "bootstrap.servers": cluster.bootstrap, "compression.type": compression}
    )
    send(producer, topic, content, min(2.0, seconds))
    meter = Meter([cluster.pid])
    sent = send(producer, topic, content, seconds)
    figures = meter.stop()
    drop_topic(cluster.bootstrap, topic)
    return {**figures, **rates(figures, records=sent, value_bytes=sent * size)}


def fill(bootstrap: str, topic: str, *, size: int, records: int) -> None:
    """Write what will be read."""
    make_topic(bootstrap, topic)
    content = values(size)
    producer = Producer({**PRODUCER, "bootstrap.servers": bootstrap})
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


def consume_run(cluster: Any, topic: str, *, size: int, records: int) -> Figures:  # noqa: ANN401 -- a Cluster
    """One consumer from the beginning to the last record, which is in the page cache."""
    consumer = Consumer({**TUNED_CONSUMER, "bootstrap.servers": cluster.bootstrap})
    meter = Meter([cluster.pid])
    consumer.assign([TopicPartition(topic, n, OFFSET_BEGINNING) for n in range(PARTITIONS)])
    seen = 0
    while seen < records:
        messages = consumer.consume(1000, 30.0)
        assert messages, f"nothing came for 30 s after {seen} of {records} records"
        seen += len(messages)
    figures = meter.stop()
    consumer.close()
    return {**figures, **rates(figures, records=seen, value_bytes=seen * size)}


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
