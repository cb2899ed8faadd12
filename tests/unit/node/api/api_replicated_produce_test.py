"""Produce with acks=all where others hold the partition too: what is answered, and when."""

from pathlib import Path
from typing import Any

import pytest

from harness.clients.produce_raw import batch_of, produce_request
from harness.machines.brokers import FakeClient, HandlerBench
from harness.machines.peers import Peer, change, replicated, shown
from tidelog.kernel.ids import ProducerId, Uuid
from tidelog.kernel.instant import Instant, ms
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k00_produce
from tidelog.wire.records import Origin

HINTS_VERSION = 10


@pytest.fixture
def bench(tmp_path: Path) -> HandlerBench:
    return HandlerBench(tmp_path / "log0")


@pytest.fixture
def peers(bench: HandlerBench) -> tuple[Peer, Peer]:
    return Peer(bench, 1), Peer(bench, 2)


def begin(
    bench: HandlerBench, *values: bytes, version: int = HINTS_VERSION, **batch: Any
) -> FakeClient:
    client = FakeClient()
    request = produce_request("t", batch_of(*values, **batch))
    bench.begin(client, k00_produce.API, version, request)
    return client


def answer_of(client: FakeClient, version: int = HINTS_VERSION) -> Any:
    (frame,) = client.frames()
    return decode_response(k00_produce.API, version, memoryview(frame))[1]


def row_of(client: FakeClient) -> Any:
    return answer_of(client).responses[0].partition_responses[0]


def outcome(client: FakeClient) -> tuple[ErrorCode, int]:
    row = row_of(client)
    return ErrorCode(row.error_code), row.base_offset


def attached(bench: HandlerBench, peers: tuple[Peer, ...], *, min_in_sync: int = 2) -> Uuid:
    topic_id = replicated(bench, "t", shown(0, 1, 2), min_in_sync=min_in_sync)
    for peer in peers:
        peer.follow(topic_id)
    return topic_id


def test_the_answer_comes_with_the_last_in_sync_replica(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    attached(bench, peers)
    client = begin(bench, b"a", b"b")
    peers[0].ack(2)
    assert client.frames() == []
    peers[1].ack(1)
    assert client.frames() == []
    peers[1].ack(2)
    assert outcome(client) == (ErrorCode.NONE, 0)


def test_with_too_few_in_sync_nothing_is_appended(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    assert len(peers) == 2
    replicated(bench, "t", shown(0), min_in_sync=2)
    assert outcome(begin(bench, b"a")) == (ErrorCode.NOT_ENOUGH_REPLICAS, -1)
    replica = bench.broker.replicas.find("t", 0)
    assert replica is not None
    assert replica.log.end == 0


def test_in_sync_replicas_that_go_while_a_batch_waits_are_told_after_the_append(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    topic_id = attached(bench, peers)
    client = begin(bench, b"a")
    change(bench, topic_id, shown(0, 1, change=1))
    assert client.frames() == []
    change(bench, topic_id, shown(0, change=2))
    assert outcome(client) == (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1)


def test_a_replica_that_leaves_the_in_sync_set_is_waited_for_no_more(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    topic_id = attached(bench, peers)
    client = begin(bench, b"a")
    peers[0].ack(1)
    assert client.frames() == []
    change(bench, topic_id, shown(0, 1, change=1))
    assert outcome(client) == (ErrorCode.NONE, 0)


def test_a_batch_nobody_vouches_for_times_out(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    attached(bench, peers)
    client = begin(bench, b"a")
    peers[0].ack(1)
    bench.broker.waiting.expire(Instant(bench.now + ms(4_999)))
    assert client.frames() == []
    bench.broker.waiting.expire(Instant(bench.now + ms(5_000)))
    assert outcome(client) == (ErrorCode.REQUEST_TIMED_OUT, -1)


def test_a_duplicate_waits_for_what_its_original_waits_for(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    attached(bench, peers)
    origin = Origin(producer_id=ProducerId(7), producer_epoch=0, base_sequence=0)
    first = begin(bench, b"a", b"b", origin=origin)
    again = begin(bench, b"a", b"b", origin=origin)
    peers[0].ack(2)
    assert first.frames() == again.frames() == []
    peers[1].ack(2)
    assert outcome(first) == outcome(again) == (ErrorCode.NONE, 0)
    replica = bench.broker.replicas.find("t", 0)
    assert replica is not None
    assert replica.log.end == 2


@pytest.mark.parametrize("version", [9, HINTS_VERSION, 11])
def test_a_batch_whose_leader_goes_is_told_where_it_went(
    bench: HandlerBench, peers: tuple[Peer, Peer], version: int
) -> None:
    topic_id = attached(bench, peers)
    client = begin(bench, b"a", version=version)
    change(bench, topic_id, shown(1, 2, leader=1, epoch=1, change=1))
    answer = answer_of(client, version)
    row = answer.responses[0].partition_responses[0]
    assert (row.error_code, row.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    if version < HINTS_VERSION:
        assert row.current_leader is None
        assert answer.node_endpoints == []
    else:
        assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (1, 1)
        (node,) = answer.node_endpoints
        assert (node.node_id, node.host, node.port, node.rack) == (1, "127.0.0.1", 9093, None)


def test_a_new_batch_for_another_leader_is_told_where_it_is(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    assert len(peers) == 2
    replicated(bench, "t", shown(1, 2, leader=2, epoch=4))
    answer = answer_of(begin(bench, b"a"))
    row = answer.responses[0].partition_responses[0]
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, 4)
    assert [node.port for node in answer.node_endpoints] == [9094]


def test_a_leader_that_is_fenced_or_missing_is_not_hinted_at(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    topic_id = replicated(bench, "t", shown(1, 2, leader=2, epoch=4))
    peers[1].fence()
    for view in (None, shown(1, 2, leader=-1, epoch=5, change=1)):
        if view is not None:
            change(bench, topic_id, view)
        answer = answer_of(begin(bench, b"a"))
        assert answer.responses[0].partition_responses[0].current_leader is None
        assert answer.node_endpoints == []


def test_a_leader_that_leads_on_in_another_epoch_still_answers_when_all_in_sync_have_it(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    """Its log was not cut: so it is when a replica that goes leaves the others a new epoch."""
    topic_id = attached(bench, peers)
    client = begin(bench, b"a")
    change(bench, topic_id, shown(0, 1, epoch=2, change=2, replicas=(0, 1)))
    peers[1].ack(1)
    assert client.frames() == []
    peers[0].follow(topic_id, 2, end=1)
    peers[0].ack(1)
    assert outcome(client) == (ErrorCode.NONE, 0)


def test_one_partition_s_lost_leader_does_not_end_the_wait_for_the_others(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    moving = attached(bench, peers)
    staying = replicated(bench, "u", shown(0, 1), min_in_sync=2)
    request = produce_request("t", batch_of(b"a"))
    request.topic_data += produce_request("u", batch_of(b"b", b"c")).topic_data
    client = FakeClient()
    bench.begin(client, k00_produce.API, HINTS_VERSION, request)
    change(bench, moving, shown(1, 2, leader=1, epoch=1, change=1))
    assert client.frames() == []
    peers[0].follow(staying)
    peers[0].ack(2)
    t, u = (topic.partition_responses[0] for topic in answer_of(client).responses)
    assert (t.error_code, u.error_code) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE)
    assert (t.current_leader.leader_id, u.current_leader) == (1, None)
