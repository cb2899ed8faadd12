"""Produce from version 13 on, which names topics by their ids: in the general way and the short."""

from pathlib import Path
from typing import Any

import pytest

from harness.clients.produce_raw import batch_of, produce_request
from harness.machines.brokers import FakeClient, HandlerBench
from tidelog.kernel.ids import Uuid
from tidelog.node.net.client import CloseConnectionError
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k00_produce import API

BY_ID = 13
NOBODYS = Uuid(b"\x07" * 16)


@pytest.fixture
def bench(tmp_path: Path) -> HandlerBench:
    return HandlerBench(tmp_path / "log0")


def request_of(topic: Uuid, acks: int = -1) -> Any:
    request = produce_request("", batch_of(b"a", b"b"), acks=acks)
    request.topic_data[0].topic_id = topic
    return request


def produced(bench: HandlerBench, topic: Uuid) -> Any:
    (answer,) = bench.ask(API, BY_ID, request_of(topic)).responses
    assert answer.topic_id == topic
    return answer.partition_responses[0]


def end_of(bench: HandlerBench) -> int:
    replica = bench.broker.replicas.find("t", 0)
    assert replica is not None
    return int(replica.log.end)


def test_it_is_appended_and_answered_with_the_id(bench: HandlerBench) -> None:
    topic = bench.topic("t")
    offsets = [produced(bench, topic).base_offset for _ in range(3)]
    assert offsets == [0, 2, 4]
    assert len(bench.dispatcher._again) == 1, "the second went the short way"


def test_an_id_that_no_topic_has_is_said_so(bench: HandlerBench) -> None:
    bench.topic("t")
    assert produced(bench, NOBODYS).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert end_of(bench) == 0


def test_who_wants_no_answer_learns_of_an_unknown_id_by_the_end_of_its_connection(
    bench: HandlerBench,
) -> None:
    with pytest.raises(CloseConnectionError, match="UNKNOWN_TOPIC_ID"):
        bench.begin(FakeClient(), API, BY_ID, request_of(NOBODYS, acks=0))


def test_records_for_a_topic_that_was_deleted_do_not_go_to_the_next_of_its_name(
    bench: HandlerBench,
) -> None:
    old = bench.topic("t")
    for _ in range(2):
        assert produced(bench, old).error_code == ErrorCode.NONE
    bench.delete(old)
    new = bench.topic("t")
    assert produced(bench, old).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert end_of(bench) == 0
    assert produced(bench, new).base_offset == 0
