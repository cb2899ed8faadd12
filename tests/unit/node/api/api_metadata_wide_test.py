"""Metadata requests that name, and answers that tell, more than one turn of the loop should do."""

from pathlib import Path
from typing import Any

import pytest

from harness.machines.brokers import turns
from harness.machines.group_bench import Asked, GroupBench
from tidelog.kernel import limits
from tidelog.kernel.ids import Uuid
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_request, encode_response, joined
from tidelog.wire.header import decode_request_header
from tidelog.wire.messages import k19_create_topics as k19
from tidelog.wire.messages.k03_metadata import API, MetadataRequest, MetadataRequestTopic

WIDE = 2 * limits.ROWS_PER_STEP + 1


@pytest.fixture
def bench(tmp_path: Path) -> GroupBench:
    bench = GroupBench(tmp_path / "log0", partitions=0)
    bench.topic("t", 3)
    bench.aside = []
    return bench


def start(
    bench: GroupBench, names: list[str] | None, version: int = 11, *, creating: bool = False
) -> Asked:
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, allow_auto_topic_creation=creating)
    return bench.start_asking(API, version, request)


def rows(asked: Asked) -> list[tuple[str | None, int]]:
    answer = asked.answer()
    assert answer is not None, "not answered"
    return [(topic.name, topic.error_code) for topic in answer.topics]


def unknown(count: int = WIDE) -> list[str]:
    return [f"no-{number}" for number in range(count)]


def test_few_topics_are_told_of_at_once(bench: GroupBench) -> None:
    asked = start(bench, ["t", "no"])
    assert not bench.aside
    assert rows(asked) == [("t", 0), ("no", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_others_have_their_turn_between_many_unknown_names(bench: GroupBench) -> None:
    asked = start(bench, unknown())
    assert asked.answer() is None, "all of it was done in one turn"
    assert turns(bench) >= 3 * 2, "they are checked, merged and told in two turns each"
    assert rows(asked) == [(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for name in unknown()]


def test_others_have_their_turn_between_many_known_names(bench: GroupBench) -> None:
    names = [f"t-{number}" for number in range(WIDE)]
    for name in names:
        bench.topic(name)
    asked = start(bench, names)
    assert asked.answer() is None
    assert turns(bench) >= 3 * 2
    assert rows(asked) == [(name, 0) for name in names]


def test_others_have_their_turn_between_many_unknown_ids(bench: GroupBench) -> None:
    ids = [Uuid((1 << 64 | number).to_bytes(16, "big")) for number in range(WIDE)]
    topics = [MetadataRequestTopic(name=None, topic_id=one) for one in ids]
    asked = bench.start_asking(API, 12, MetadataRequest(topics=topics))
    assert asked.answer() is None
    assert turns(bench) >= 3 * 2
    answer = asked.answer()
    told = [(topic.topic_id, topic.error_code) for topic in answer.topics]
    assert told == [(one, ErrorCode.UNKNOWN_TOPIC_ID) for one in ids]


def test_others_have_their_turn_while_a_malformed_request_is_refused(bench: GroupBench) -> None:
    """Before version 12 no topic may be asked for by its id: all of them are refused."""
    some = Uuid((1 << 64).to_bytes(16, "big"))
    topics = [MetadataRequestTopic(name=name) for name in unknown()]
    topics.append(MetadataRequestTopic(name="t", topic_id=some))
    asked = bench.start_asking(API, 11, MetadataRequest(topics=topics))
    assert asked.answer() is None
    assert turns(bench) >= 2 * 2, "they are checked and refused in two turns each"
    assert {code for _, code in rows(asked)} == {ErrorCode.INVALID_REQUEST}


def test_others_have_their_turn_between_the_first_tellings_of_many_partitions(
    bench: GroupBench,
) -> None:
    for number in range(4):
        bench.topic(f"t-{number}", limits.ROWS_PER_STEP)
    asked = start(bench, None)
    assert asked.answer() is None, "a request of a few bytes was done in one turn"
    assert turns(bench) >= 3
    assert len(rows(asked)) == 5


def test_partitions_that_did_not_change_are_told_again_at_once(bench: GroupBench) -> None:
    """Clients ask for all topics often. What was written for one of them is copied for others."""
    for number in range(4):
        bench.topic(f"t-{number}", limits.ROWS_PER_STEP)
    start(bench, None)
    turns(bench)
    again = start(bench, None)
    assert not bench.aside
    assert len(rows(again)) == 5


def test_a_topic_that_is_deleted_between_two_turns_does_no_harm(bench: GroupBench) -> None:
    names = [f"t-{number}" for number in range(WIDE)]
    ids = [bench.topic(name) for name in names]
    asked = start(bench, None)
    assert asked.answer() is None
    bench.delete(ids[-1])
    turns(bench)
    assert rows(asked)[:2] == [("t", 0), ("t-0", 0)]
    (row,) = rows(start(bench, [names[-1]]))
    assert row == (names[-1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def created_names(bench: GroupBench) -> list[str]:
    ((key, frame),) = bench.link.forwarded
    assert key == k19.API.key
    view = memoryview(frame)
    header = decode_request_header(view, {19: k19.API})
    request: Any = decode_request(k19.API, header.version, view, header.body_position)
    return [topic.name for topic in request.topics]


def test_a_few_of_many_missing_topics_are_created_before_the_answer(bench: GroupBench) -> None:
    asked = start(bench, unknown(), creating=True)
    turns(bench)
    assert asked.answer() is None
    made = created_names(bench)
    assert made == unknown(100)
    for name in made:
        bench.topic(name)
    results = [k19.CreatableTopicResult(name=name, error_code=0, configs=[]) for name in made]
    response = k19.CreateTopicsResponse(topics=results)
    bench.link.done[0](joined(encode_response(k19.API, 7, 0, response))[4:])
    assert asked.answer() is None, "the answer was made in one turn"
    turns(bench)
    told = rows(asked)
    assert told[:100] == [(name, 0) for name in made]
    assert told[100:] == [(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for name in unknown()[100:]]


def test_a_wide_request_after_a_broker_s_death_is_answered_in_turns(bench: GroupBench) -> None:
    """It waits until it is decided who leads what that broker led."""
    bench.someone_left = True
    asked = start(bench, unknown())
    assert not bench.aside
    bench.someone_left = False
    bench.broker.brokers_changed(bench.now, [])
    bench.now = type(bench.now)(bench.now + 10**9)
    bench.broker.waiting.expire(bench.now)
    assert asked.answer() is None
    assert turns(bench) >= 3 * 2
    assert len(rows(asked)) == WIDE


def test_a_client_that_leaves_between_two_turns_ends_the_work(bench: GroupBench) -> None:
    asked = start(bench, unknown())
    asked.client.session.abandon()
    assert turns(bench) == 1
