"""What a reader of committed records finds that is not ours: confluent-kafka's."""

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, TopicPartition

READ_S: Final = 60
_WAIT_S: Final = 0.1
"""For more records: `consume` returns fewer than it is asked for only after this time."""
Place = tuple[str, int]


def committed_rows(bootstrap: str, topics: Iterable[str]) -> dict[str, list[bytes]]:
    """The values of all records, by topic, up to the end of each partition. A transaction that
    stays open holds the reader back: then it finds less."""
    with _reader(bootstrap) as reader:
        ends = _ends(reader, topics)
        reader.assign([TopicPartition(*place, 0) for place in ends])
        rows: dict[str, list[bytes]] = {}
        deadline = time.monotonic() + READ_S
        while ends and time.monotonic() < deadline:
            for record in reader.consume(1_000, _WAIT_S):
                _read(record, ends, rows)
        return rows


def _read(record: Any, ends: dict[Place, int], rows: dict[str, list[bytes]]) -> None:
    """A record, or the word that there are no more for now."""
    error = record.error()
    if error is None:
        rows.setdefault(record.topic(), []).append(record.value())
    elif error.code() == KafkaError._PARTITION_EOF:
        place = (record.topic(), record.partition())
        if record.offset() >= ends.get(place, 0):
            ends.pop(place, None)


def _ends(reader: Consumer, topics: Iterable[str]) -> dict[Place, int]:
    """High watermarks."""
    known: Mapping[str, Any] = reader.list_topics(timeout=30).topics
    places = [(topic, number) for topic in topics for number in known[topic].partitions]
    ends: dict[Place, int] = {}
    for place in places:
        marks: Any = reader.get_watermark_offsets(TopicPartition(*place), 30)
        ends[place] = marks[1]
    return ends


@contextmanager
def _reader(bootstrap: str) -> Iterator[Consumer]:
    reader = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-what-is-committed",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        yield reader
    finally:
        reader.close()
