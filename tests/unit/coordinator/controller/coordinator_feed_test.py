"""The feed: who is sent what, how much at a time, and who needs the whole again."""

from harness.machines.controllers import ONE
from tidelog.coordinator.controller.feed import Feed, Session
from tidelog.kernel.ids import NO_OFFSET, Incarnation, Offset, ProducerId
from tidelog.kernel.limits import (
    FEED_RECORDS_IN_FLIGHT,
    FEED_SNAPSHOT_CHUNK_RECORDS,
    METADATA_RECORDS_KEPT,
)
from tidelog.node.metadata.image import MetadataImage
from tidelog.wire.control import Deltas, Snapshot
from tidelog.wire.metadata_records import ConfigChanged, MetadataRecord, ResourceKind

PEER = b"1/1"


def session(applied: int, peer: bytes = PEER) -> Session:
    at = Offset(applied)
    return Session(peer, 1, ONE, Incarnation(1), applied=at, sent=at)


def batch(size: int) -> tuple[MetadataRecord, ...]:
    return tuple(
        ConfigChanged(ResourceKind.BROKER, "1", f"key{number}", "v") for number in range(size)
    )


def sent(feed: Feed, one: Session) -> list[tuple[int, int]]:
    """Base and number of records of each delta."""
    return [
        (send.message.base, len(send.message.records))
        for send in feed.open(one)
        if isinstance(send.message, Deltas)
    ]


def test_a_broker_that_comes_back_gets_what_it_missed() -> None:
    feed = Feed(MetadataImage())
    for _ in range(3):
        feed.committed(batch(2))
    assert sent(feed, session(1)) == [(2, 2), (4, 2)]
    assert sent(feed, session(5)) == []


def test_a_broker_in_the_middle_of_a_batch_gets_the_rest_of_it() -> None:
    feed = Feed(MetadataImage())
    feed.committed(batch(3))
    feed.committed(batch(3))
    assert sent(feed, session(1)) == [(2, 1), (3, 3)]


def test_a_broker_with_nothing_gets_the_whole_in_parts() -> None:
    feed = Feed(MetadataImage())
    feed.committed(batch(2 * FEED_SNAPSHOT_CHUNK_RECORDS))
    parts = [send.message for send in feed.open(session(NO_OFFSET))]
    assert all(isinstance(part, Snapshot) for part in parts)
    assert [part.last for part in parts if isinstance(part, Snapshot)] == [False, False, True]
    assert sum(len(part.records) for part in parts) == 2 * FEED_SNAPSHOT_CHUNK_RECORDS + 1


def test_a_broker_from_a_log_that_was_longer_gets_the_whole() -> None:
    feed = Feed(MetadataImage())
    feed.committed(batch(2))
    assert isinstance(feed.open(session(2))[0].message, Snapshot)


def test_a_broker_older_than_what_is_kept_gets_the_whole() -> None:
    feed = Feed(MetadataImage())
    feed.committed(batch(10))
    feed.committed(batch(METADATA_RECORDS_KEPT))
    assert isinstance(feed.open(session(5))[0].message, Snapshot)
    assert sent(feed, session(9)) == [(10, METADATA_RECORDS_KEPT)]


def test_a_broker_that_acknowledges_nothing_is_sent_no_more_after_a_while() -> None:
    feed = Feed(MetadataImage())
    feed.open(session(NO_OFFSET))
    half = FEED_RECORDS_IN_FLIGHT // 2
    assert [len(feed.committed(batch(half))) for _ in range(4)] == [1, 1, 0, 0]
    (more,) = feed.applied(PEER, Offset(half - 1))
    assert isinstance(more.message, Deltas)
    assert more.message.base == 2 * half


def test_an_acknowledgement_of_what_was_never_sent_is_not_believed() -> None:
    feed = Feed(MetadataImage())
    feed.open(session(NO_OFFSET))
    feed.committed(batch(2))
    feed.applied(PEER, Offset(10**9))
    assert feed.sessions[PEER].applied == 1


def test_a_closed_connection_is_sent_nothing() -> None:
    feed = Feed(MetadataImage())
    feed.open(session(NO_OFFSET))
    feed.close(PEER)
    feed.close(PEER)
    assert feed.committed(batch(1)) == []


def test_brokers_know_as_much_as_the_feed_itself() -> None:
    feed = Feed(MetadataImage(producer_id_next=ProducerId(5)))
    feed.committed(batch(3))
    (whole,) = feed.open(session(NO_OFFSET))
    assert isinstance(whole.message, Snapshot)
    image = MetadataImage()
    image.load(whole.message.offset, whole.message.records)
    assert image == feed.image


def test_what_is_kept_is_bounded_over_many_batches() -> None:
    """The oldest go first, as many as must."""
    feed = Feed(MetadataImage())
    half = METADATA_RECORDS_KEPT // 2
    for _ in range(3):
        feed.committed(batch(half))
    assert sent(feed, session(half - 1))[0] == (half, half)
    assert isinstance(feed.open(session(half - 2))[0].message, Snapshot)


def test_the_latest_batch_is_kept_however_large_it_is() -> None:
    feed = Feed(MetadataImage())
    feed.committed(batch(10))
    feed.committed(batch(METADATA_RECORDS_KEPT + 1))
    assert sent(feed, session(9))[0] == (10, METADATA_RECORDS_KEPT + 1)
