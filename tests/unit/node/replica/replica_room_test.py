"""When a broker counts as without room, and what it asks for then."""

import errno

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import TOPIC_ID, batch, open_logs, produce
from tidelog.kernel.failures import CorruptError, FailedSyncError
from tidelog.kernel.ids import BrokerId, Epoch, Offset, Partition, TopicPartition
from tidelog.kernel.instant import Instant, ms
from tidelog.node.ipc.events import Kind, Value
from tidelog.node.log.settings import LogSettings
from tidelog.node.log.validation import rules_of
from tidelog.node.replica.leader import Leader
from tidelog.node.replica.replicas import Replica, Replicas
from tidelog.node.replica.room import HAS_ROOM, LASTS_MS, LASTS_MS_MAX, Room, is_without_room
from tidelog.wire.control import NoRoom
from tidelog.wire.metadata_records import PartitionView

A, B, C = BrokerId(0), BrokerId(1), BrokerId(2)
KEY: TopicPartition = ("t", Partition(0))
NO_SPACE = OSError(errno.ENOSPC, "disk is full")
START = ms(1_000_000)


def at(milliseconds: int) -> Instant:
    return Instant(START + ms(milliseconds))


class Bench:
    """Broker A, which leads t-0 with both others in sync, and a disk."""

    def __init__(self) -> None:
        self.replicas = Replicas()
        log = open_logs(MemoryDisk().directory()).create("t", 0, TOPIC_ID, LogSettings())
        self.replica = Replica("t", Partition(0), TOPIC_ID, log, rules_of(log.settings))
        self.replicas.add(self.replica)
        self.lead()
        self.has_space = False
        self.full: set[BrokerId] = set()
        self.notes: list[tuple[Kind, tuple[Value, ...]]] = []
        self.room = Room(self.replicas, lambda _: self.has_space, self._note)

    def _note(self, kind: Kind, replica: Replica, values: tuple[Value, ...]) -> None:
        assert replica is self.replica
        self.notes.append((kind, values))

    def lead(self, epoch: int = 0, partition_epoch: int = 0) -> None:
        self.leader = self.replica.leader = Leader(
            me=A,
            view=PartitionView(
                replicas=(A, B, C),
                isr=(A, B, C),
                leader=A,
                leader_epoch=Epoch(epoch),
                partition_epoch=Epoch(partition_epoch),
            ),
            end=Offset(self.replica.log.end),
            high_watermark=Offset(0),
            min_in_sync=2,
            now=at(0),
        )
        for one in (B, C):
            self.hold(one)

    def hold(self, broker: BrokerId) -> None:
        """It has all there is."""
        self.leader.vouched(at(0), broker, self.leader.end, Offset(0))

    def grow(self) -> None:
        produce(self.replica.log, batch(1))
        self.leader.appended(at(0), Offset(self.replica.log.end))

    def fail(self, milliseconds: int = 0) -> bool:
        return self.room.failed(at(milliseconds), KEY, NO_SPACE)

    def asked(self, milliseconds: int = 0) -> list[tuple[BrokerId, ...]]:
        places = self.room.asks(at(milliseconds), lambda one: one not in self.full)
        assert all(place.topic == TOPIC_ID and place.partition == 0 for place in places)
        return [place.others for place in places]

    def turn(self, milliseconds: int) -> bool:
        """Whether the board still says that it is full."""
        self.room.turn(at(milliseconds))
        return self.room.full_at != HAS_ROOM


def test_an_append_without_room_is_told_and_asks_for_others() -> None:
    bench = Bench()
    assert bench.asked() == []
    assert bench.fail()
    assert bench.room.full_at == at(0)
    assert bench.room.asks(at(0), lambda _: True, KEY) == (NoRoom(TOPIC_ID, 0, Epoch(0), (B, C)),)
    assert bench.notes == [(Kind.NO_ROOM, (0, 0, (B, C)))]


def test_what_is_no_lack_of_room_is_nothing_to_it() -> None:
    bench = Bench()
    for failure in (
        OSError(errno.EIO, "broken"),
        FailedSyncError(errno.ENOSPC, "what it took is lost"),
        CorruptError(file="f", position=0, reason="bad"),
    ):
        assert not bench.room.failed(at(0), KEY, failure)
    assert not bench.room.failed(at(0), ("other", Partition(0)), NO_SPACE)
    assert bench.room.full_at == HAS_ROOM
    assert bench.room.failed(at(0), KEY, OSError(errno.EDQUOT, "a quota"))


def test_it_asks_only_for_those_who_have_room() -> None:
    bench = Bench()
    bench.full = {B}
    bench.fail()
    assert bench.asked() == [(C,)]
    bench.full = {B, C}
    assert bench.asked(5_000) == []


def test_that_others_are_full_or_not_asks_for_nothing() -> None:
    """What the board says of others is no reason: only an append that failed here is."""
    bench = Bench()
    for full in ({B}, {B, C}, set[BrokerId]()):
        bench.full = full
        assert bench.asked() == []


def test_it_asks_only_for_those_who_hold_all_there_is() -> None:
    bench = Bench()
    bench.grow()
    bench.fail()
    assert bench.asked() == []
    bench.hold(C)
    assert bench.asked() == [(C,)]


def test_it_asks_every_second_until_another_leads() -> None:
    bench = Bench()
    bench.fail()
    assert [bench.asked(one) for one in (0, 100, 999, 1_000, 1_100)] == [
        [(B, C)],
        [],
        [],
        [(B, C)],
        [],
    ]
    bench.replica.rest()
    assert bench.asked(2_000) == []
    assert len(bench.notes) == 1


def test_of_another_state_or_with_others_it_asks_at_once() -> None:
    bench = Bench()
    bench.fail()
    assert bench.asked(0) == [(B, C)]
    bench.full = {B}
    assert bench.asked(1) == [(C,)]
    bench.lead(partition_epoch=1)
    assert bench.asked(2) == [(C,)]
    assert len(bench.notes) == 1
    bench.lead(epoch=1, partition_epoch=2)
    assert bench.asked(3) == [(C,)]
    assert len(bench.notes) == 2


def test_a_broker_that_stops_asks_for_nothing() -> None:
    bench = Bench()
    bench.fail()
    bench.replicas.retiring = True
    assert bench.asked() == []


def test_it_asks_no_more_once_its_log_has_grown_but_is_full_for_a_while() -> None:
    bench = Bench()
    bench.fail()
    bench.grow()
    for one in (B, C):
        bench.hold(one)
    assert bench.turn(100)
    assert bench.asked(5_000) == []
    assert bench.turn(LASTS_MS - 1)
    assert not bench.turn(LASTS_MS)


def test_it_stays_full_without_an_append_while_its_disk_says_so() -> None:
    bench = Bench()
    bench.fail()
    assert bench.turn(LASTS_MS * 100)
    assert bench.asked(LASTS_MS * 100) == [(B, C)]
    bench.has_space = True
    assert not bench.turn(LASTS_MS * 101)
    assert bench.asked(LASTS_MS * 102) == []


def test_that_a_disk_says_there_is_space_counts_after_a_while() -> None:
    bench = Bench()
    bench.has_space = True
    bench.fail(0)
    bench.fail(5_000)
    assert bench.turn(LASTS_MS + 4_999)
    assert bench.asked(LASTS_MS + 4_999) == [(B, C)]
    assert not bench.turn(LASTS_MS + 5_000)


def test_who_is_full_again_soon_is_full_for_longer() -> None:
    """Each time twice as long, up to some minutes; after a good while it is as at first."""
    bench, now, lasted = Bench(), 0, []
    bench.has_space = True
    for _ in range(8):
        bench.fail(now)
        began = now
        while bench.turn(now):
            now += 5_000
        lasted.append(now - began)
        now += 1_000
    assert lasted[:4] == [LASTS_MS, 2 * LASTS_MS, 4 * LASTS_MS, 8 * LASTS_MS]
    assert lasted[-1] == LASTS_MS_MAX
    now += 300_000
    bench.fail(now)
    assert not bench.turn(now + LASTS_MS)


def test_a_replica_that_is_gone_is_forgotten() -> None:
    bench = Bench()
    bench.fail()
    bench.replicas.remove(KEY)
    assert not bench.turn(LASTS_MS)


def test_a_log_that_was_cut_has_grown_from_there() -> None:
    bench = Bench()
    bench.grow()
    bench.grow()
    bench.fail()
    bench.replica.log.truncate_to(0)
    assert bench.turn(100)
    produce(bench.replica.log, batch(1))
    assert not bench.turn(LASTS_MS)


def test_only_a_failure_of_just_now_is_sure() -> None:
    assert not is_without_room(at(0), HAS_ROOM)
    assert is_without_room(at(1_999), at(0))
    assert not is_without_room(at(2_000), at(0))
