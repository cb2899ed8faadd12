"""Readers of what is committed: how far they may go, what they are told, when they are woken."""

from pathlib import Path
from typing import Any

import pytest

from harness.clients.produce_raw import produce_request
from harness.logs.batches import batch
from harness.logs.transactions import Writer
from harness.machines.brokers import START_MS, FakeClient, HandlerBench
from harness.machines.peers import Peer, change, replicated, shown
from harness.machines.transactions import Marked, marker_of, write
from tidelog.clients.consumer.reading import Fetched
from tidelog.kernel.ids import Offset, Partition, Uuid
from tidelog.kernel.instant import Instant, ms
from tidelog.node.log.log import Log
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k00_produce, k01_fetch, k02_list_offsets
from tidelog.wire.records import EndMarker, build_marker, place_batch

VERSION = 12
COMMITTED = 1


@pytest.fixture
def bench(tmp_path: Path) -> HandlerBench:
    return HandlerBench(tmp_path / "log0")


@pytest.fixture
def led(bench: HandlerBench) -> HandlerBench:
    """Alone with a topic."""
    bench.topic("t")
    return bench


@pytest.fixture
def peer(bench: HandlerBench) -> Peer:
    """One that is in sync, of two: what it has not acknowledged is not committed."""
    peer = Peer(bench, 1)
    peer.follow(replicated(bench, "t", shown(0, 1, replicas=(0, 1))))
    return peer


def log_of(bench: HandlerBench) -> Log:
    replica = bench.broker.replicas.get(("t", Partition(0)))
    assert replica is not None
    return replica.log


def produce(bench: HandlerBench) -> None:
    request = produce_request("t", bytearray(batch()), acks=1)
    row = bench.ask(k00_produce.API, 9, request).responses[0].partition_responses[0]
    assert row.error_code == ErrorCode.NONE


def end(bench: HandlerBench, writer: Writer, *, committed: bool) -> None:
    Marked(bench, marker_of(writer, committed=committed))


def request_of(offset: int, *, isolation: int = COMMITTED, **fields: Any) -> k01_fetch.FetchRequest:
    size_max = fields.pop("partition_max_bytes", 1_000_000)
    wanted = k01_fetch.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=size_max
    )
    asked = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1_000_000} | fields
    topic = k01_fetch.FetchTopic(topic="t", partitions=[wanted])
    return k01_fetch.FetchRequest(topics=[topic], isolation_level=isolation, **asked)


def fetched(bench: HandlerBench, offset: int, **fields: Any) -> Any:
    answer = bench.ask(k01_fetch.API, VERSION, request_of(offset, **fields))
    return answer.responses[0].partitions[0]


def waits(bench: HandlerBench, offset: int, **fields: Any) -> "Waiting":
    return Waiting(bench, request_of(offset, max_wait_ms=500, **fields))


class Waiting:
    """A fetch that may wait."""

    def __init__(self, bench: HandlerBench, request: k01_fetch.FetchRequest) -> None:
        self._client = FakeClient()
        bench.begin(self._client, k01_fetch.API, VERSION, request)

    def row(self) -> Any:
        """None while it waits."""
        frames = self._client.frames()
        if not frames:
            return None
        (frame,) = frames
        answer = decode_response(k01_fetch.API, VERSION, memoryview(frame))[1]
        return answer.responses[0].partitions[0]


def seen(row: Any, offset: int = 0) -> list[int]:
    """The offsets that a client shows its user."""
    found = Fetched(
        ("t", Partition(0)),
        Offset(offset),
        memoryview(bytes(row.records)),
        row.aborted_transactions or (),
    )
    return [record.offset for record in found.records()]


def told(row: Any) -> list[tuple[int, int]] | None:
    rows = row.aborted_transactions
    return None if rows is None else [(one.producer_id, one.first_offset) for one in rows]


# -- how far


def test_nothing_of_an_open_transaction_is_sent_nor_what_is_behind_it(led: HandlerBench) -> None:
    produce(led)
    writer = Writer()
    write(led, writer)
    produce(led)
    row = fetched(led, 0)
    assert (seen(row), row.high_watermark, row.last_stable_offset) == ([0], 3, 1)
    assert fetched(led, 1).records == b""
    end(led, writer, committed=True)
    row = fetched(led, 0)
    assert (seen(row), row.last_stable_offset) == ([0, 1, 2], 4)


def test_who_reads_all_is_told_where_it_would_end(led: HandlerBench) -> None:
    writer = Writer()
    write(led, writer)
    end(led, writer, committed=False)
    write(led, writer)
    row = fetched(led, 0, isolation=0)
    assert (seen(row), row.last_stable_offset, told(row)) == ([0, 2], 2, None)


def test_what_was_aborted_is_told_and_not_shown(led: HandlerBench) -> None:
    one, other = Writer(7), Writer(8)
    write(led, one, 2)  # 0, 1
    write(led, other)  # 2
    produce(led)  # 3
    end(led, one, committed=False)  # 4
    write(led, one)  # 5
    end(led, other, committed=True)  # 6
    end(led, one, committed=True)  # 7
    row = fetched(led, 0)
    assert (told(row), seen(row)) == ([(7, 0)], [2, 3, 5])
    row = fetched(led, 5)
    assert (told(row), seen(row, 5)) == ([], [5])


def test_where_nothing_is_sent_nothing_is_told(led: HandlerBench) -> None:
    assert told(fetched(led, 0)) == []
    assert told(fetched(led, 0, isolation=0)) is None


def test_a_small_fetch_is_told_what_it_needs_alone(led: HandlerBench) -> None:
    one, other = Writer(7), Writer(8)
    write(led, one)
    end(led, one, committed=False)
    write(led, other)
    end(led, other, committed=False)
    row = fetched(led, 0, partition_max_bytes=1)
    assert (told(row), seen(row)) == ([(7, 0)], [])


def test_between_last_stable_offset_and_high_watermark_a_fetch_is_empty(led: HandlerBench) -> None:
    write(led, Writer(), 3)
    for offset, code in ((0, 0), (2, 0), (3, 0), (4, ErrorCode.OFFSET_OUT_OF_RANGE)):
        row = fetched(led, offset)
        assert (row.error_code, len(row.records)) == (code, 0)


def test_a_marker_that_is_not_committed_shows_nothing(bench: HandlerBench, peer: Peer) -> None:
    writer = Writer()
    write(bench, writer)
    end(bench, writer, committed=True)
    peer.ack(1)
    row = fetched(bench, 0)
    assert (row.high_watermark, row.last_stable_offset, seen(row)) == (1, 0, [])
    assert seen(fetched(bench, 0, isolation=0)) == [0]
    peer.ack(2)
    assert seen(fetched(bench, 0)) == [0]


def test_a_new_leader_shows_what_the_old_one_decided(bench: HandlerBench) -> None:
    leader = Peer(bench, 1)
    topic_id = replicated(bench, "t", shown(0, 1, leader=1, replicas=(0, 1)))
    followed(bench, leader)
    leader.state(4, 3)
    change(bench, topic_id, shown(0, leader=0, epoch=1, change=1, replicas=(0, 1)))
    row = fetched(bench, 0)
    assert (row.last_stable_offset, told(row), seen(row)) == (4, [(7, 0)], [1, 3])


# -- a follower


def placed(base: int, batch: bytearray | memoryview) -> bytes:
    place_batch(batch, 0, base_offset=base, leader_epoch=0)
    return bytes(batch)


def followed(bench: HandlerBench, leader: Peer) -> Writer:
    """The bench holds a transaction that was aborted, and a record in the midst of it."""
    writer = Writer()
    leader.lead()
    leader.send(0, placed(0, writer.batch()), 0)
    leader.send(1, placed(1, batch()), 1)
    marker = build_marker(EndMarker(7, 0, 1, committed=False), START_MS)
    leader.send(2, placed(2, marker), 2)
    leader.send(3, placed(3, batch()), 2)
    assert bench.failures == []
    return writer


def test_a_follower_goes_as_far_as_it_knows_that_all_is_decided(bench: HandlerBench) -> None:
    leader = Peer(bench, 1)
    replicated(bench, "t", shown(0, 1, leader=1, replicas=(0, 1)))
    followed(bench, leader)
    row = fetched(bench, 0)
    assert (row.high_watermark, row.last_stable_offset, seen(row)) == (2, 0, [])
    leader.state(4, 3)
    row = fetched(bench, 0)
    assert (row.last_stable_offset, told(row), seen(row)) == (3, [(7, 0)], [1])


def test_who_waits_at_a_follower_is_woken_by_the_marker(bench: HandlerBench) -> None:
    leader = Peer(bench, 1)
    replicated(bench, "t", shown(0, 1, leader=1, replicas=(0, 1)))
    followed(bench, leader)
    fetch = waits(bench, 0)
    assert fetch.row() is None
    leader.state(4, 3)
    assert seen(fetch.row()) == [1]


# -- waiting


def test_a_fetch_waits_for_what_is_decided_not_for_what_is_written(led: HandlerBench) -> None:
    writer = Writer()
    fetch = waits(led, 0)
    write(led, writer)
    produce(led)
    assert fetch.row() is None
    end(led, writer, committed=True)
    assert seen(fetch.row()) == [0, 1]


def test_it_is_woken_when_the_marker_is_committed(bench: HandlerBench, peer: Peer) -> None:
    writer = Writer()
    write(bench, writer)
    peer.ack(1)
    fetch = waits(bench, 0)
    end(bench, writer, committed=True)
    assert fetch.row() is None
    peer.ack(2)
    assert seen(fetch.row()) == [0]


def test_it_waits_for_as_many_bytes_as_it_wants(led: HandlerBench) -> None:
    one, other = Writer(7), Writer(8)
    size = len(one.batch())
    write(led, one)
    fetch = waits(led, 0, min_bytes=2 * size + 78)
    end(led, one, committed=True)
    write(led, other)
    assert fetch.row() is None, "what is open does not count"
    write(led, other)
    end(led, other, committed=True)
    assert seen(fetch.row()) == [0, 2, 3]


def test_bytes_that_it_found_at_first_count(led: HandlerBench) -> None:
    size = len(batch())
    produce(led)
    fetch = waits(led, 0, min_bytes=3 * size)
    produce(led)
    assert fetch.row() is None
    produce(led)
    assert seen(fetch.row()) == [0, 1, 2]


def test_at_its_deadline_it_answers_with_what_there_is(led: HandlerBench) -> None:
    fetch = waits(led, 0)
    write(led, Writer())
    led.now = Instant(led.now + ms(500))
    led.broker.waiting.expire(led.now)
    row = fetch.row()
    assert (row.high_watermark, row.last_stable_offset, row.records) == (1, 0, b"")


def test_it_is_woken_where_its_partition_is_gone(led: HandlerBench) -> None:
    fetch = waits(led, 0)
    led.delete(led.image.names["t"].id)
    assert fetch.row().error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_it_looks_again_where_the_records_it_waits_behind_are_deleted(led: HandlerBench) -> None:
    write(led, Writer(), 3)
    fetch = waits(led, 0)
    log_of(led).advance_start(2)
    led.broker.waiting.begins_later(led.now, ("t", Partition(0)))
    assert fetch.row().error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert fetched(led, 2).last_stable_offset == 2


def test_it_finds_out_what_is_wrong_when_it_is_woken(
    led: HandlerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError(5, "input/output error")

    fetch = waits(led, 0)
    monkeypatch.setattr(Log, "read", broken)
    produce(led)
    assert fetch.row().error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert [key for key, _ in led.failures] == [("t", 0)]


# -- sessions


def test_a_session_tells_when_the_last_stable_offset_has_moved(led: HandlerBench) -> None:
    writer = Writer()
    write(led, writer)
    produce(led)
    first = led.ask(k01_fetch.API, VERSION, request_of(0, session_id=0, session_epoch=0))
    assert seen(first.responses[0].partitions[0]) == []

    def again(epoch: int) -> k01_fetch.FetchRequest:
        request = request_of(0, session_id=first.session_id, session_epoch=epoch)
        request.topics = []
        return request

    assert led.ask(k01_fetch.API, VERSION, again(1)).responses == []
    end(led, writer, committed=False)
    (topic,) = led.ask(k01_fetch.API, VERSION, again(2)).responses
    assert (told(topic.partitions[0]), seen(topic.partitions[0])) == ([(7, 0)], [1])


# -- ListOffsets


def listed(bench: HandlerBench, timestamp: int, isolation: int = COMMITTED) -> tuple[int, int]:
    """Error code and offset."""
    wanted = k02_list_offsets.ListOffsetsPartition(
        partition_index=0, current_leader_epoch=-1, timestamp=timestamp
    )
    topic = k02_list_offsets.ListOffsetsTopic(name="t", partitions=[wanted])
    request = k02_list_offsets.ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation, topics=[topic]
    )
    row = bench.ask(k02_list_offsets.API, 7, request).topics[0].partitions[0]
    return row.error_code, row.offset


def test_the_end_of_what_is_committed_is_the_last_stable_offset(led: HandlerBench) -> None:
    produce(led)
    writer = Writer()
    write(led, writer)
    assert (listed(led, -1), listed(led, -1, 0)) == ((0, 1), (0, 2))
    end(led, writer, committed=False)
    assert (listed(led, -1), listed(led, -1, 0)) == ((0, 3), (0, 3))
    assert listed(led, -2) == (0, 0)


def test_by_time_nothing_undecided_is_found(led: HandlerBench) -> None:
    produce(led)
    writer = Writer()
    write(led, writer, 2)  # 1, and 2 a millisecond later
    later = START_MS + 1
    assert (listed(led, later), listed(led, later, 0)) == ((0, -1), (0, 2))
    assert (listed(led, -3), listed(led, -3, 0)) == ((0, 0), (0, 2))
    end(led, writer, committed=True)
    assert listed(led, later) == (0, 2)


def test_after_an_election_the_end_is_not_known_by_the_high_watermark(
    bench: HandlerBench, peer: Peer
) -> None:
    """An open transaction does not make it so."""
    write(bench, Writer())
    assert listed(bench, -1) == (0, 0)
    change(bench, topic_id(bench), shown(0, 1, epoch=1, change=1, replicas=(0, 1)))
    assert listed(bench, -1)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
    peer.follow(topic_id(bench), 1, end=1)
    peer.ack(1)
    assert listed(bench, -1) == (0, 0)


def topic_id(bench: HandlerBench) -> Uuid:
    return bench.image.names["t"].id
