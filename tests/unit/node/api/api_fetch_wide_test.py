"""Fetches of more partitions than one turn of the loop should look at."""

from pathlib import Path
from typing import Any

import pytest

from harness.clients.produce_raw import produce_request
from harness.machines.brokers import step, turns
from harness.machines.group_bench import Asked, GroupBench
from tidelog.kernel import limits
from tidelog.kernel.ids import Partition
from tidelog.node.api.call import Call
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k00_produce, k01_fetch
from tidelog.wire.metadata_records import TopicDeleted
from tidelog.wire.records import Record, build_batch

WIDE = 2 * limits.ROWS_PER_STEP + 1


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    bench = GroupBench(tmp_path / "log0", partitions=0)
    bench.topic("t", 3)
    bench.aside = []
    return bench


def request_of(topic: str, indexes: Any, **fields: Any) -> k01_fetch.FetchRequest:
    rows = [
        k01_fetch.FetchPartition(partition=index, fetch_offset=0, partition_max_bytes=1 << 20)
        for index in indexes
    ]
    topics = [k01_fetch.FetchTopic(topic=topic, partitions=rows)] if rows else []
    asked = {"max_wait_ms": 0, "min_bytes": 1, "session_epoch": -1, **fields}
    return k01_fetch.FetchRequest(topics=topics, **asked)


def start(bench: GroupBench, topic: str, indexes: Any, **fields: Any) -> Asked:
    return bench.start_asking(k01_fetch.API, 11, request_of(topic, indexes, **fields))


def codes(answer: Any) -> list[int]:
    return [row.error_code for topic in answer.responses for row in topic.partitions]


def put(bench: GroupBench, topic: str = "t") -> None:
    batch = build_batch([Record(0, 1_000, b"key", b"value")])
    bench.ask(k00_produce.API, 9, produce_request(topic, batch))


def has_record(row: Any) -> bool:
    return b"value" in bytes(row.records)


def test_others_have_their_turn_between_many_unknown_partitions(bench: GroupBench) -> None:
    asked = start(bench, "unknown", range(WIDE))
    assert asked.answer() is None, "all of it was done in one turn"
    assert turns(bench) >= 3 * 3, "it is merged, looked at and answered in three turns each"
    assert codes(asked.answer()) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * WIDE


def test_others_have_their_turn_while_a_session_names_and_forgets_many(bench: GroupBench) -> None:
    first = start(bench, "unknown", range(WIDE), session_epoch=0)
    turns(bench)
    session = first.answer().session_id
    assert session
    forgotten = k01_fetch.ForgottenTopic(topic="unknown", partitions=list(range(WIDE - 1)))
    again = start(
        bench, "t", (), session_id=session, session_epoch=1, forgotten_topics_data=[forgotten]
    )
    assert again.answer() is None
    assert turns(bench) >= 3
    assert codes(again.answer()) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_others_have_their_turn_between_the_partitions_of_a_session(bench: GroupBench) -> None:
    first = start(bench, "unknown", range(WIDE), session_epoch=0)
    turns(bench)
    session = first.answer().session_id
    again = start(bench, "t", (), session_id=session, session_epoch=1)
    assert again.answer() is None, "a request of a few bytes was done in one turn"
    turns(bench)
    assert len(codes(again.answer())) == WIDE


def test_each_partition_of_a_wide_fetch_is_answered_once(bench: GroupBench) -> None:
    put(bench)
    asked = start(bench, "t", [0, 1] * WIDE)
    turns(bench)
    (topic,) = asked.answer().responses
    rows = [(row.partition_index, has_record(row)) for row in topic.partitions]
    assert rows == [(0, True), (1, False)]


def test_a_wide_fetch_waits_for_bytes_and_is_answered_in_turns(bench: GroupBench) -> None:
    bench.topic("many", WIDE)
    asked = start(bench, "many", range(WIDE), max_wait_ms=1_000)
    turns(bench)
    assert asked.answer() is None
    put(bench, "many")
    assert asked.answer() is None, "the second look was done in one turn"
    turns(bench)
    (topic,) = asked.answer().responses
    assert has_record(topic.partitions[0])
    assert len(topic.partitions) == WIDE


def pinned(bench: GroupBench) -> int:
    replica = bench.broker.replicas.get(("t", Partition(0)))
    assert replica is not None
    found = replica.log.read(0, 1 << 20, 1, min_one=True)
    assert found is not None
    return found.file.readers


def test_a_file_stays_open_from_the_look_at_it_until_the_answer_is_sent(bench: GroupBench) -> None:
    put(bench)
    asked = start(bench, "t", range(WIDE))
    while not pinned(bench):
        assert bench.aside, "its file could have been closed between two turns"
        bench.aside.pop(0)()
    turns(bench)
    assert asked.answer() is not None
    assert pinned(bench) == 0


def test_a_client_that_leaves_in_the_middle_keeps_no_file_open(bench: GroupBench) -> None:
    put(bench)
    asked = start(bench, "t", range(WIDE))
    while not pinned(bench):
        assert bench.aside
        bench.aside.pop(0)()
    asked.client.session.abandon()
    turns(bench)
    assert pinned(bench) == 0


# -- what comes while a wide fetch is being looked at


def started_to_wait(bench: GroupBench, **fields: Any) -> Asked:
    """A fetch that may wait, of which only the first part has been looked at."""
    bench.topic("many", WIDE)
    asked = start(bench, "many", range(WIDE), max_wait_ms=60_000, **fields)
    for _ in range(WIDE // limits.ROWS_PER_STEP + 2):  # it is merged, and nothing was forgotten
        step(bench)
    assert asked.answer() is None
    return asked


def first_row(asked: Asked) -> Any:
    answer = asked.answer()
    assert answer is not None, "it waits on, though there is enough"
    return answer.responses[0].partitions[0]


@pytest.mark.parametrize("isolation", [0, 1], ids=["uncommitted", "committed"])
@pytest.mark.parametrize("steps", range(7))
def test_a_record_that_comes_between_two_parts_ends_the_wait(
    bench: GroupBench, steps: int, isolation: int
) -> None:
    bench.topic("many", WIDE)
    asked = start(bench, "many", range(WIDE), max_wait_ms=60_000, isolation_level=isolation)
    for _ in range(steps):
        step(bench)
    assert asked.answer() is None
    put(bench, "many")
    turns(bench)
    assert has_record(first_row(asked))


def test_records_that_come_before_and_between_the_parts_count_together(bench: GroupBench) -> None:
    bench.topic("many", WIDE)
    put(bench, "many")
    (row,) = bench.ask(k01_fetch.API, 11, request_of("many", [0])).responses[0].partitions
    asked = start(bench, "many", range(WIDE), max_wait_ms=60_000, min_bytes=2 * len(row.records))
    for _ in range(5):
        step(bench)
    put(bench, "many")
    turns(bench)
    assert len(first_row(asked).records) == 2 * len(row.records)


def test_too_few_bytes_between_two_parts_do_not_end_the_wait(bench: GroupBench) -> None:
    asked = started_to_wait(bench, min_bytes=10_000)
    put(bench, "many")
    turns(bench)
    assert asked.answer() is None


@pytest.mark.parametrize("steps", range(4))
def test_a_topic_that_is_deleted_between_two_parts_ends_the_wait(
    bench: GroupBench, steps: int
) -> None:
    asked = started_to_wait(bench)
    for _ in range(steps):
        if bench.aside:
            step(bench)
    bench.replay(TopicDeleted(bench.image.names["many"].id))
    turns(bench)
    answer = asked.answer()
    assert answer is not None, "it waits for a topic that is gone"
    assert codes(answer)[-1] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_client_that_leaves_between_two_parts_leaves_no_waiter(bench: GroupBench) -> None:
    asked = started_to_wait(bench)
    asked.client.session.abandon()
    turns(bench)
    assert bench.broker.waiting.count == 0


def test_a_narrow_fetch_that_waits_keeps_what_it_named(
    bench: GroupBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a request that was copied is given back. Nothing else is done for one that was not."""
    given_back: list[Call] = []
    monkeypatch.setattr(Call, "done", given_back.append)
    asked = start(bench, "t", [0], max_wait_ms=60_000)
    assert bench.broker.waiting.count == 1
    assert given_back == []
    assert asked.answer() is None
