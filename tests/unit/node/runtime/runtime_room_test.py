"""What a broker tells the others of its disks, by the board, and whom it takes for able to lead."""

import errno
import os
import secrets
from collections.abc import Callable, Iterator

import pytest

from harness.disks.memory_disk import MemoryDisk
from harness.logs.batches import TOPIC_ID, open_logs
from tidelog.kernel.ids import BrokerId, Epoch, Incarnation, Offset, Partition
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.launch import board_name
from tidelog.node.ipc.board import Board, remove_memory_of_run
from tidelog.node.ipc.layout import Role, SlotState, Word, slot_of
from tidelog.node.log.settings import LogSettings
from tidelog.node.log.validation import rules_of
from tidelog.node.metadata.image import BrokerView, MetadataImage
from tidelog.node.replica.leader import Leader
from tidelog.node.replica.replicas import Replica, Replicas
from tidelog.node.replica.room import HAS_ROOM, LASTS_MS, Room
from tidelog.node.runtime.room_keeper import RoomKeeper
from tidelog.wire.control import NoRoom
from tidelog.wire.metadata_records import PartitionView, StopKind

A, B = BrokerId(0), BrokerId(1)
KEY = ("t", Partition(0))
NO_SPACE = OSError(errno.ENOSPC, "disk is full")
NOW = Instant(ms(1_000_000))


class Bench:
    """Broker A's keeper; A leads t-0, B is in sync and has all there is."""

    def __init__(self, run_id: str) -> None:
        self.board = Board.create(board_name(run_id), slots=slot_of(Role.BROKER, B) + 1)
        self.mine, self.others = (self.board.writer(slot_of(Role.BROKER, one)) for one in (A, B))
        self.image = MetadataImage()
        for writer, broker in ((self.mine, A), (self.others, B)):
            life = Incarnation(7)
            writer.begin(role=Role.BROKER, process_id=broker, pid=os.getpid(), incarnation=life)
            writer.words[Word.STATE] = SlotState.RUNNING
            writer.publish()
            self.image.brokers[broker] = BrokerView(
                broker, life, Offset(1), "h", 1, None, (), StopKind.CLEAN, fenced=False
            )
        self.has_space = False
        self.told: list[tuple[NoRoom, ...]] = []
        replicas = Replicas()
        log = open_logs(MemoryDisk().directory()).create("t", 0, TOPIC_ID, LogSettings())
        replica = Replica("t", Partition(0), TOPIC_ID, log, rules_of(log.settings))
        replicas.add(replica)
        view = PartitionView(replicas=(A, B), isr=(A, B), leader=A)
        replica.leader = Leader(
            me=A, view=view, end=Offset(0), high_watermark=Offset(0), min_in_sync=1, now=NOW
        )
        replica.leader.vouched(NOW, B, Offset(0), Offset(0))
        room = Room(replicas, lambda _: self.has_space, lambda *_: None)
        self.keeper = RoomKeeper(room, self.board, self.mine, lambda: self.image, self.told.append)

    def fail(self) -> list[tuple[NoRoom, ...]]:
        """What the coordinator is told then."""
        self.told.clear()
        self.keeper.failed(NOW, KEY, NO_SPACE)
        return self.told

    def publish(self, word: Word, value: int) -> None:
        """B says so."""
        self.others.words[word] = value
        self.others.publish()


@pytest.fixture
def bench() -> Iterator[Bench]:
    run_id = f"test{secrets.token_hex(4)}"
    made = Bench(run_id)
    yield made
    made.board.close()
    remove_memory_of_run(run_id)


def test_the_others_read_when_there_was_no_room_and_that_there_is_again(bench: Bench) -> None:
    assert bench.keeper.full_at(A) == HAS_ROOM
    asked = NoRoom(TOPIC_ID, 0, Epoch(0), (B,))
    assert bench.fail() == [(asked,)]
    assert bench.keeper.full_at(A) == NOW
    later = Instant(NOW + ms(LASTS_MS))
    bench.keeper.turn(later)
    assert bench.keeper.full_at(A) == NOW
    assert bench.told == [(asked,), (asked,)]
    bench.has_space = True
    bench.keeper.turn(later)
    assert bench.keeper.full_at(A) == HAS_ROOM
    assert len(bench.told) == 2


def test_nobody_is_asked_for_who_lacks_room_or_is_not_there(bench: Bench) -> None:
    cases: list[Callable[[], None]] = [
        lambda: bench.publish(Word.NO_ROOM_AT, 1),
        lambda: bench.publish(Word.INCARNATION, 8),
        lambda: bench.publish(Word.STATE, SlotState.STOPPING),
        lambda: setattr(bench.image.brokers[B], "fenced", True),
        lambda: setattr(bench.image.brokers[B], "stopping", True),
    ]
    undone: list[Callable[[], None]] = [
        lambda: bench.publish(Word.NO_ROOM_AT, 0),
        lambda: bench.publish(Word.INCARNATION, 7),
        lambda: bench.publish(Word.STATE, SlotState.RUNNING),
        lambda: setattr(bench.image.brokers[B], "fenced", False),
        lambda: setattr(bench.image.brokers[B], "stopping", False),
    ]
    for done, undo in zip(cases, undone, strict=True):
        done()
        assert bench.fail() == []
        undo()
    assert len(bench.fail()) == 1


def test_a_broker_that_has_room_publishes_nothing(bench: Bench) -> None:
    before = bench.board.read_slot(slot_of(Role.BROKER, A))
    bench.keeper.turn(NOW)
    bench.keeper.failed(NOW, KEY, OSError(errno.EIO, "broken"))
    assert bench.board.read_slot(slot_of(Role.BROKER, A)) == before
    assert bench.told == []
