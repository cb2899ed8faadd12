"""A cluster that still has messages of formats 0 and 1 is read as any other."""

from harness.kafka.old_cluster import Log, Stretch, old_cluster
from harness.logs.old_messages import message_set
from harness.spark.plain import Place
from tidelog.wire.codecs import Codec
from tidelog.wire.records import Record, build_batch

THEN_MS = 1_700_000_000_000


def records(first: int, count: int) -> list[Record]:
    return [
        Record(at, THEN_MS + at * 1_000, b"k%d" % at if at % 3 else None, b"v%d" % at)
        for at in range(first, first + count)
    ]


def three_formats() -> Log:
    old, middle, new = records(5, 10), records(20, 10), records(40, 5)
    return Log(
        [
            Stretch(message_set(0, old, codec=Codec.LZ4), [r._replace(timestamp=-1) for r in old]),
            Stretch(message_set(1, middle), middle),
            Stretch(bytes(build_batch(new, codec=Codec.ZSTD)), new),
        ]
    )


def test_records_of_all_formats_are_read_by_range_and_by_time() -> None:
    with old_cluster({"t": [three_formats(), Log()]}) as bootstrap:
        place = Place(bootstrap)
        rows = place.read(subscribe="t", includeHeaders="true", kafka_fetch_max_bytes="1")
        assert [row["offset"] for row in rows] == [*range(5, 15), *range(20, 30), *range(40, 45)]
        assert [row["timestampType"] for row in rows] == [-1] * 10 + [0] * 15
        assert {row["timestamp"].timestamp() for row in rows[:10]} == {-0.001}
        assert [row["value"] for row in rows] == [b"v%d" % row["offset"] for row in rows]
        assert {row["headers"] for row in rows} == {None}
        given = {"startingOffsets": '{"t":{"0":12,"1":0}}', "endingOffsets": '{"t":{"0":22,"1":0}}'}
        assert place.values(subscribe="t", **given) == [b"v12", b"v13", b"v14", b"v20", b"v21"]
        since = {
            "startingTimestamp": str(THEN_MS + 23_000),
            "endingTimestamp": str(THEN_MS + 41_000),
        }
        since["startingOffsetsByTimestampStrategy"] = "latest"
        assert place.values(subscribe="t", **since) == [b"v%d" % n for n in (*range(23, 30), 40)]
