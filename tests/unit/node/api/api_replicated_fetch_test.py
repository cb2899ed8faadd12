"""Fetch where others hold the partition too: what may be read, where, and who is turned away."""

from pathlib import Path
from typing import Any

import pytest

from harness.clients.produce_raw import batch_of, produce_request
from harness.machines.brokers import FakeClient, HandlerBench
from harness.machines.peers import Peer, change, replicated, shown
from tidelog.kernel.ids import Uuid
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k00_produce, k01_fetch
from tidelog.wire.records import iterate_batches, iterate_records, place_batch

BY_ID = 13
HINTS = 16
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@pytest.fixture
def bench(tmp_path: Path) -> HandlerBench:
    return HandlerBench(tmp_path / "log0")


@pytest.fixture
def peers(bench: HandlerBench) -> tuple[Peer, Peer]:
    return Peer(bench, 1), Peer(bench, 2)


def produce(bench: HandlerBench, *values: bytes) -> None:
    request = produce_request("t", batch_of(*values), acks=1)
    row = bench.ask(k00_produce.API, 9, request).responses[0].partition_responses[0]
    assert row.error_code == ErrorCode.NONE


def fetch_request(
    topic_id: Uuid | None, offset: int, *, rack: str = "", max_wait_ms: int = 0, **fields: Any
) -> k01_fetch.FetchRequest:
    wanted = k01_fetch.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1_000_000, **fields
    )
    topic = k01_fetch.FetchTopic(topic="t", partitions=[wanted])
    if topic_id is not None:
        topic.topic_id = topic_id
    return k01_fetch.FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1_000_000, topics=[topic], rack_id=rack
    )


def fetched(bench: HandlerBench, version: int, *asked: Any, **fields: Any) -> Any:
    answer = bench.ask(k01_fetch.API, version, fetch_request(*asked, **fields))
    return answer.responses[0].partitions[0]


def values_of(row: Any) -> list[bytes | None]:
    return [
        record.value
        for _, batch in iterate_batches(row.records)
        for record in iterate_records(batch)
    ]


# -- the leader


def test_what_not_all_in_sync_replicas_hold_is_not_shown(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    topic_id = replicated(bench, "t", shown(0, 1, 2))
    for peer in peers:
        peer.follow(topic_id)
    produce(bench, b"a")
    produce(bench, b"b")
    peers[0].ack(2)
    peers[1].ack(1)
    row = fetched(bench, BY_ID, topic_id, 0)
    assert (row.error_code, row.high_watermark, values_of(row)) == (0, 1, [b"a"])


@pytest.mark.parametrize(
    ("offset", "code"),
    [(0, 0), (1, 0), (2, 0), (3, ErrorCode.OFFSET_OUT_OF_RANGE)],
)
def test_between_high_watermark_and_end_a_fetch_is_empty_and_behind_the_end_out_of_range(
    bench: HandlerBench, peers: tuple[Peer, Peer], offset: int, code: int
) -> None:
    """A consumer may have read there already, from the leader of before the election."""
    assert len(peers) == 2
    topic_id = replicated(bench, "t", shown(0, 1, 2))
    produce(bench, b"a", b"b")
    row = fetched(bench, BY_ID, topic_id, offset)
    assert (row.error_code, len(row.records)) == (code, 0)
    assert row.high_watermark == (-1 if code else 0)


def test_a_fetch_above_the_high_watermark_waits_until_that_rises(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    topic_id = replicated(bench, "t", shown(0, 1))
    peers[0].follow(topic_id)
    produce(bench, b"a")
    client = FakeClient()
    bench.begin(client, k01_fetch.API, BY_ID, fetch_request(topic_id, 0, max_wait_ms=500))
    assert client.frames() == []
    peers[0].ack(1)
    (frame,) = client.frames()
    answer = decode_response(k01_fetch.API, BY_ID, memoryview(frame))[1]
    assert values_of(answer.responses[0].partitions[0]) == [b"a"]


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, ErrorCode.NONE),
        (2, ErrorCode.FENCED_LEADER_EPOCH),
        (3, ErrorCode.NONE),
        (4, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
@pytest.mark.parametrize("leader", [0, 1])
def test_leader_and_follower_fence_by_the_epoch_the_client_believes_in(
    bench: HandlerBench, peers: tuple[Peer, Peer], leader: int, epoch: int, code: ErrorCode
) -> None:
    assert len(peers) == 2
    topic_id = replicated(bench, "t", shown(0, 1, leader=leader, epoch=3))
    row = fetched(bench, HINTS, topic_id, 0, current_leader_epoch=epoch)
    assert row.error_code == code
    hinted = row.current_leader
    assert (hinted is not None) == (code is ErrorCode.FENCED_LEADER_EPOCH)
    if hinted is not None:
        assert (hinted.leader_id, hinted.leader_epoch) == (leader, 3)


@pytest.mark.parametrize("version", [15, HINTS, 17])
def test_who_asks_a_broker_without_the_replica_is_told_where_it_is_led(
    bench: HandlerBench, peers: tuple[Peer, Peer], version: int
) -> None:
    assert len(peers) == 2
    topic_id = replicated(bench, "t", shown(1, 2, leader=2, epoch=3, replicas=(1, 2)))
    answer = bench.ask(k01_fetch.API, version, fetch_request(topic_id, 0))
    row = answer.responses[0].partitions[0]
    assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    if version < HINTS:
        assert (row.current_leader, answer.node_endpoints) == (None, [])
    else:
        assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, 3)
        (node,) = answer.node_endpoints
        assert (node.node_id, node.host, node.port) == (2, "127.0.0.1", 9094)


def test_a_waiting_fetch_learns_where_its_leader_went(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    assert len(peers) == 2
    topic_id = replicated(bench, "t", shown(0, 1, 2))
    client = FakeClient()
    request = fetch_request(topic_id, 0, max_wait_ms=500, current_leader_epoch=0)
    bench.begin(client, k01_fetch.API, HINTS, request)
    change(bench, topic_id, shown(1, 2, leader=1, epoch=1, change=1))
    (frame,) = client.frames()
    answer = decode_response(k01_fetch.API, HINTS, memoryview(frame))[1]
    row = answer.responses[0].partitions[0]
    assert row.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert row.current_leader is not None
    assert (row.current_leader.leader_id, answer.node_endpoints[0].port) == (1, 9093)


# -- the closest replica (KIP-392)


def racks(tmp_path: Path, **settings: str) -> tuple[HandlerBench, Peer, Peer]:
    """The bench's broker is in no rack, 1 in `east`, 2 in `west`; t is led here, two records."""
    bench = HandlerBench(tmp_path / "log0", **settings)
    return bench, Peer(bench, 1, "east"), Peer(bench, 2, "west")


def test_a_client_is_sent_to_the_in_sync_follower_in_its_rack(tmp_path: Path) -> None:
    bench, east, west = racks(tmp_path, replica_selector_class=RACK_AWARE)
    topic_id = replicated(bench, "t", shown(0, 1, 2))
    for peer in (east, west):
        peer.follow(topic_id)
    produce(bench, b"a")
    east.ack(1)
    west.ack(1)
    for rack, told in (("east", 1), ("west", 2), ("north", -1), ("", -1)):
        row = fetched(bench, BY_ID, topic_id, 0, rack=rack, max_wait_ms=500)
        assert (row.error_code, row.preferred_read_replica) == (ErrorCode.NONE, told)
        assert values_of(row) == ([b"a"] if told == -1 else [])
    change(bench, topic_id, shown(0, 2, change=1))
    assert fetched(bench, BY_ID, topic_id, 0, rack="east").preferred_read_replica == -1
    west.fence()
    assert fetched(bench, BY_ID, topic_id, 0, rack="west").preferred_read_replica == -1


def test_a_client_is_not_sent_to_a_follower_that_lacks_its_offset(tmp_path: Path) -> None:
    bench, east, west = racks(tmp_path, replica_selector_class=RACK_AWARE)
    topic_id = replicated(bench, "t", shown(0, 1, 2))
    assert west.id == 2
    produce(bench, b"a", b"b")
    assert fetched(bench, BY_ID, topic_id, 0, rack="east").preferred_read_replica == -1
    east.follow(topic_id)
    east.ack(1, log_start=1)
    for offset, told in ((0, -1), (1, 1), (2, -1)):
        row = fetched(bench, BY_ID, topic_id, offset, rack="east")
        assert row.preferred_read_replica == told


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("selector", ["", "org.apache.kafka.common.replica.LeaderSelector"])
def test_without_the_rack_aware_selector_the_leader_serves_everybody(
    tmp_path: Path, selector: str, version: int
) -> None:
    bench, east, _ = racks(tmp_path, replica_selector_class=selector)
    topic_id = replicated(bench, "t", shown(0, 1))
    east.follow(topic_id)
    produce(bench, b"a")
    east.ack(1)
    row = fetched(bench, version, None, 0, rack="east" if version > 10 else "")
    assert (row.preferred_read_replica, values_of(row)) == (-1, [b"a"])


def sent(base: int, *values: bytes) -> bytes:
    """A batch as the leader of epoch 0 has it."""
    batch = batch_of(*values)
    place_batch(batch, 0, base_offset=base, leader_epoch=0)
    return bytes(batch)


def followed(bench: HandlerBench, leader: Peer) -> Uuid:
    """The bench holds three records, and knows that two of them are committed."""
    topic_id = replicated(bench, "t", shown(0, 1, leader=1))
    leader.lead()
    leader.send(0, sent(0, b"a"), 0)
    leader.send(1, sent(1, b"b", b"c"), 1)
    leader.state(3, 2)
    return topic_id


@pytest.mark.parametrize(
    ("offset", "code", "values"),
    [
        (0, ErrorCode.NONE, [b"a"]),
        (2, ErrorCode.NONE, []),
        (3, ErrorCode.OFFSET_NOT_AVAILABLE, []),
        (9, ErrorCode.OFFSET_NOT_AVAILABLE, []),
    ],
)
def test_a_follower_serves_whole_batches_below_its_high_watermark_alone(
    bench: HandlerBench,
    peers: tuple[Peer, Peer],
    offset: int,
    code: ErrorCode,
    values: list[bytes],
) -> None:
    topic_id = followed(bench, peers[0])
    row = fetched(bench, BY_ID, topic_id, offset)
    assert (row.error_code, values_of(row)) == (code, values)
    assert row.high_watermark == (-1 if code else 2)


def test_a_follower_s_log_start_is_its_leader_s(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    topic_id = followed(bench, peers[0])
    peers[0].state(3, 3, log_start=1)
    row = fetched(bench, BY_ID, topic_id, 0)
    assert row.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    row = fetched(bench, BY_ID, topic_id, 1)
    assert (row.error_code, row.log_start_offset, values_of(row)) == (0, 1, [b"b", b"c"])


def test_a_fetch_that_waits_at_a_follower_is_woken_by_its_high_watermark(
    bench: HandlerBench, peers: tuple[Peer, Peer]
) -> None:
    topic_id = followed(bench, peers[0])
    client = FakeClient()
    bench.begin(client, k01_fetch.API, BY_ID, fetch_request(topic_id, 2, max_wait_ms=500))
    assert client.frames() == []
    peers[0].state(3, 3)
    (frame,) = client.frames()
    row = decode_response(k01_fetch.API, BY_ID, memoryview(frame))[1].responses[0].partitions[0]
    assert (row.high_watermark, values_of(row)) == (3, [b"b", b"c"])


def test_before_racks_only_the_leader_serves(bench: HandlerBench, peers: tuple[Peer, Peer]) -> None:
    followed(bench, peers[0])
    assert fetched(bench, 10, None, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert fetched(bench, 11, None, 0).error_code == ErrorCode.NONE
