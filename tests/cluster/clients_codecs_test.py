"""Each client writes with each codec, and every other client reads the very same records."""

from collections.abc import Sequence

import pytest

from harness.clients import raw
from harness.clients.everyone import MAKERS, WRITERS, present_readers, writer
from harness.clients.facts import Position, Record, Running, Samples, Writing, fresh_topic, stored

pytestmark = pytest.mark.slow

WRITERS_AND_CODECS = [(name, codec) for name in WRITERS for codec in MAKERS[name].codecs]


@pytest.mark.parametrize(("name", "codec"), WRITERS_AND_CODECS)
def test_what_one_client_writes_every_client_reads(cluster: Running, name: str, codec: str) -> None:
    client = writer(name, cluster.bootstrap)
    topic = fresh_topic()
    client.create_topic(topic)
    records = Samples(client).records()

    positions = client.produce(topic, records, writing=Writing(codec=codec))

    assert positions == [Position(0, offset) for offset in range(len(records))]
    kept = raw.batches(cluster.bootstrap, topic)
    assert sum(batch.records for batch in kept) == len(records)
    assert {batch.codec for batch in kept} <= {codec, "none"}
    assert _batch_of(kept, records.index(_longest(records))).codec == codec
    for reader in present_readers(cluster.bootstrap):
        found = reader.read(topic, 0, start=0, count=len(records))
        assert found == stored(records), f"read by {reader.name}"


def _longest(records: Sequence[Record]) -> Record:
    """Its batch is worth a codec's while; librdkafka leaves batches plain that do not shrink."""
    return max(records, key=lambda record: len(record.value or b""))


def _batch_of(kept: Sequence[raw.Batch], offset: int) -> raw.Batch:
    return next(batch for batch in reversed(kept) if batch.base_offset <= offset)
