"""Which partition a row goes to, and what a schema may look like."""

import pyarrow as pa
import pytest

from tidelog.clients.producer.partitioner import partition_of_key
from tidelog.spark.routing import Part, Router
from tidelog.spark.rows import RowError, check_columns, gathered, written_columns


def rows(**columns: object) -> pa.RecordBatch:
    types = {"partition": pa.int32(), "topic": pa.string()}
    names = list(columns)
    arrays = [pa.array(columns[name], types.get(name, pa.binary())) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def routed(router: Router, batch: pa.RecordBatch) -> dict[tuple[str, int], list[bytes]]:
    found: dict[tuple[str, int], list[bytes]] = {}
    for topic, partition, part in router.parts(batch):
        found.setdefault((topic, partition), []).extend(part.column("value").to_pylist())
    return found


def of_three(topic: str | None = "t", first: int = 0) -> Router:
    return Router(topic, lambda _: 3, first=first)


def test_small_batches_are_gathered_in_order_until_it_is_enough() -> None:
    small = [rows(value=[b"%d" % n] * 10) for n in range(7)]
    found = list(gathered(small, bytes_min=3 * small[0].nbytes))
    assert [one.num_rows for one in found] == [30, 30, 10], "the last ones are not forgotten"
    values = [value for one in found for value in one.column("value").to_pylist()]
    assert values == [value for one in small for value in one.column("value").to_pylist()]
    assert list(gathered([])) == []


def test_a_batch_that_is_enough_goes_on_as_it_is() -> None:
    large = [rows(value=[b"x" * 100]), rows(value=[b"y" * 100])]
    assert [id(one) for one in gathered(large, bytes_min=1)] == [id(one) for one in large]


def test_keys_decide_as_they_do_in_java_and_rows_keep_their_order() -> None:
    keys = [b"k%d" % (n % 7) for n in range(50)]
    values = [b"%d" % n for n in range(50)]
    found = routed(of_three(), rows(key=keys, value=values))
    expected: dict[tuple[str, int], list[bytes]] = {}
    for key, value in zip(keys, values, strict=True):
        expected.setdefault(("t", partition_of_key(key, 3)), []).append(value)
    assert found == expected
    assert len(found) == 3


def test_the_column_partition_wins_over_the_key_and_where_it_is_null_the_key_counts() -> None:
    batch = rows(key=[b"21", b"21", None], value=[b"a", b"b", b"c"], partition=[2, None, 1])
    by_key = partition_of_key(b"21", 3)
    assert by_key not in {1, 2}
    assert routed(of_three(), batch) == {("t", 2): [b"a"], ("t", 0): [b"b"], ("t", 1): [b"c"]}


def test_rows_without_a_key_stay_together_and_the_next_ones_go_on() -> None:
    router = of_three(first=5)
    batch = rows(value=[b"a", b"b"])
    assert [routed(router, batch) for _ in range(3)] == [
        {("t", 2): [b"a", b"b"]},
        {("t", 0): [b"a", b"b"]},
        {("t", 1): [b"a", b"b"]},
    ]


def test_the_column_topic_decides_where_the_option_says_nothing() -> None:
    batch = rows(topic=["b", "a", "b"], value=[b"1", b"2", b"3"], partition=[0, 0, 0])
    assert routed(of_three(None), batch) == {("b", 0): [b"1", b"3"], ("a", 0): [b"2"]}
    assert routed(of_three("t"), batch) == {("t", 0): [b"1", b"2", b"3"]}


def test_no_rows_go_nowhere() -> None:
    assert routed(of_three(), rows(value=[])) == {}


@pytest.mark.parametrize("number", [3, -2])
def test_a_partition_that_is_not_there_is_an_error(number: int) -> None:
    with pytest.raises(RowError, match=f"partition {number}, but topic 't' has partitions 0 to 2"):
        routed(of_three(), rows(value=[b"a"], partition=[number]))


def test_a_row_without_a_topic_is_an_error() -> None:
    with pytest.raises(RowError, match="a row has no topic"):
        routed(of_three(None), rows(value=[b"a"], topic=[None]))


@pytest.mark.parametrize(
    ("types", "topic", "says"),
    [
        ({"key": "binary"}, "t", "the column value is missing"),
        ({"value": "binary"}, None, "say where rows go"),
        ({"value": "int"}, "t", "the column value is int: it must be string or binary"),
        ({"value": "string", "partition": "bigint"}, "t", "partition is bigint"),
        ({"value": "string", "headers": "map<string,binary>"}, "t", "array<struct<key:string"),
    ],
)
def test_a_schema_that_cannot_be_written_is_refused(
    types: dict[str, str], topic: str | None, says: str
) -> None:
    with pytest.raises(RowError) as caught:
        check_columns(types, topic=topic)
    assert says in str(caught.value)


def test_only_what_is_written_is_kept_and_texts_become_bytes() -> None:
    batch = pa.RecordBatch.from_pydict({"offset": [1], "value": ["ä"], "headers": [None]})
    assert written_columns(batch, with_headers=False).to_pydict() == {"value": ["ä".encode()]}
    check_columns({"value": "string", "offset": "bigint"}, topic="t")


def test_a_part_is_named_by_topic_and_partition() -> None:
    (part,) = of_three().parts(rows(value=[b"a"], partition=[1]))
    assert isinstance(part, Part)
    assert part[:2] == ("t", 1)
