"""A standby's reader: it has what is on disk, and never goes on from what was taken back."""

import errno
from collections.abc import Callable
from random import Random

import pytest

from harness.disks.memory_disk import MemoryDirectory, MemoryDisk
from harness.disks.platter import Inode
from harness.machines.controllers import ONE, Controlled, topic
from tidelog.coordinator.controller.front import Append, SaveSnapshot
from tidelog.coordinator.controller.settled import Caller, Settled, Settlements
from tidelog.coordinator.runtime.journal import Journal, Life
from tidelog.coordinator.runtime.tail import LostTrackError, Tail
from tidelog.kernel.failures import CannotStartError
from tidelog.kernel.ids import BrokerId, Epoch, Incarnation, Offset
from tidelog.kernel.limits import FORWARDED_CALLS_MAX, SETTLED_ANSWERS_BYTES_MAX
from tidelog.node.log.settings import LONG_MAX, LogSettings
from tidelog.node.metadata.image import snapshot

SMALL = LogSettings(segment_bytes=4096, segment_ms=LONG_MAX)
SEGMENT = "00000000000000000000.log"


class Writing:
    """The journal of one coordinator after the other, and what its controller decided."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.controlled = Controlled(ONE)
        self.written = 0
        self.epoch = 0
        self.begin()

    def begin(self, tail: Tail | None = None) -> None:
        """The next life, in the next epoch."""
        self.epoch += 1
        life = Life("boot-1", 0, Incarnation(self.epoch))
        self.journal = Journal(self.disk.directory("coordinator"), life, SMALL)
        self.loaded = self.journal.load(tail)

    def create(self, name: str, partitions: int = 2) -> None:
        self.controlled.create(topic(name, partitions))

    def write(self, settled: Settled | None = None) -> None:
        records = tuple(self.controlled.log[self.written :])
        if records:
            self.journal.write([Append(1, Offset(self.written), records, settled)], self.epoch)
        self.written = len(self.controlled.log)

    def save(self) -> None:
        image = self.controlled.image
        self.journal.save(SaveSnapshot(image.offset, Epoch(self.epoch), tuple(snapshot(image))))

    @property
    def log(self) -> MemoryDirectory:
        return self.disk.directory("coordinator").directory("__cluster_metadata-0")

    @property
    def segment(self) -> bytearray:
        return self.log.content(SEGMENT)


@pytest.fixture
def writing() -> Writing:
    writing = Writing()
    writing.create("a")
    writing.write()
    return writing


def caught_up(tail: Tail) -> Tail:
    while tail.follow():
        pass
    return tail


def has_all(tail: Tail, writing: Writing) -> bool:
    caught_up(tail)
    return tail.image == tail.feed.image == writing.controlled.image


def test_of_a_log_that_nobody_has_begun_there_is_nothing() -> None:
    tail = Tail(MemoryDisk().directory("coordinator").directory("__cluster_metadata-0"))
    assert not tail.follow()
    assert not tail.read_to_end()
    assert tail.next == 0


def test_it_has_what_was_written_segment_after_segment(writing: Writing) -> None:
    tail = writing.journal.tail()
    assert has_all(tail, writing)
    for number in range(6):
        writing.create(f"t{number}", 60)
        writing.write()
        assert has_all(tail, writing)
    assert sum(name.endswith(".log") for name in writing.log.names()) > 3


def test_it_changes_nothing_on_the_disk(writing: Writing) -> None:
    tail = writing.journal.tail()
    for number in range(6):
        writing.create(f"t{number}", 60)
        writing.write()
        before = list(writing.disk.calls)
        caught_up(tail)
        assert writing.disk.calls == before


def test_a_batch_larger_than_one_read_is_taken_whole(writing: Writing) -> None:
    tail = caught_up(writing.journal.tail())
    writing.create("large", 9_000)
    writing.create("more", 9_000)
    writing.write()
    assert len(writing.segment) > 2**20 or len(writing.log.names()) > 1
    assert has_all(tail, writing)


@pytest.mark.parametrize("there", [0.0, 0.01, 0.5, 0.999])
def test_of_a_batch_that_is_being_written_nothing_is_taken(writing: Writing, there: float) -> None:
    tail = caught_up(writing.journal.tail())
    next_before, before = tail.next, len(writing.segment)
    writing.create("b")
    writing.write()
    written = bytes(writing.segment[before:])
    del writing.segment[before + int(len(written) * there) :]
    caught_up(tail)
    assert tail.next == next_before
    writing.segment[before:] = written
    assert has_all(tail, writing)


def test_it_begins_with_the_newest_snapshot_and_lives_through_the_loss_of_old_segments(
    writing: Writing,
) -> None:
    early = caught_up(writing.journal.tail())
    for number in range(9):
        writing.create(f"t{number}", 60)
        writing.write()
        writing.save()
    assert writing.journal.start > early.next
    late = writing.journal.tail()
    assert has_all(late, writing)
    with pytest.raises(LostTrackError):
        caught_up(early)
    assert has_all(early, writing)


def test_it_keeps_the_last_batches_for_brokers_that_lack_one(writing: Writing) -> None:
    tail = caught_up(writing.journal.tail())
    writing.create("b")
    writing.write()
    caught_up(tail)
    assert len(tail.feed._kept) == 2


def test_who_goes_on_from_it_needs_only_what_it_has_not_read(writing: Writing) -> None:
    tail = caught_up(writing.journal.tail())
    writing.create("b")
    writing.write()
    writing.disk.kill()
    writing.begin(tail)
    assert writing.loaded.image is tail.image
    assert writing.loaded.image == writing.loaded.feed.image == writing.controlled.image
    writing.create("c")
    writing.write()
    writing.begin()
    assert writing.loaded.image == writing.controlled.image


def test_who_goes_on_from_it_forces_out_what_the_last_one_only_wrote(
    writing: Writing, monkeypatch: pytest.MonkeyPatch
) -> None:
    tail = writing.journal.tail()
    with monkeypatch.context() as slow:
        slow.setattr(Inode, "sync", lambda _: None)
        for number in range(4):  # more than one segment
            writing.create(f"t{number}", 60)
            writing.write()
    caught_up(tail)
    writing.disk.kill()
    writing.begin(tail)
    writing.create("c")
    writing.write()
    writing.disk.lose_power()
    writing.begin()
    assert writing.loaded.image == writing.controlled.image


def test_what_calls_were_answered_is_known_to_whoever_comes_next(writing: Writing) -> None:
    tail = writing.journal.tail()
    answers = {Caller(BrokerId(n), Incarnation(7), 2**40 + n): b"answer %d" % n for n in range(3)}
    for caller, answer in answers.items():
        writing.create(f"t{caller.broker}")
        writing.write(Settled(caller, answer))
        writing.save()
    writing.begin()
    restarted = writing.loaded.settlements
    writing.begin(tail)
    for settlements in (restarted, writing.loaded.settlements):
        assert {caller: settlements.answer(caller) for caller in answers} == answers
        assert settlements.would_know(Offset(-1))
        assert settlements.answer(Caller(BrokerId(0), Incarnation(8), 2**40)) is None


def test_only_so_many_answers_are_kept_and_it_is_known_which() -> None:
    settlements = Settlements(Offset(0))
    callers = [Caller(ONE, Incarnation(1), call) for call in range(FORWARDED_CALLS_MAX + 1)]
    for offset, caller in enumerate(callers):
        settlements.note(Offset(10 * offset), Settled(caller, b"x"))
    assert settlements.answer(callers[0]) is None
    assert settlements.answer(callers[1]) == b"x"
    assert not settlements.would_know(Offset(-1))
    assert settlements.would_know(Offset(0))
    settlements.note(Offset(10**6), Settled(callers[0], bytes(SETTLED_ANSWERS_BYTES_MAX)))
    assert settlements.answer(callers[-1]) is None
    assert not settlements.would_know(Offset(10 * FORWARDED_CALLS_MAX - 1))


def test_a_torn_tail_is_cut_by_who_goes_on(writing: Writing) -> None:
    tail = caught_up(writing.journal.tail())
    writing.segment.extend(b"\0" * 30)
    writing.disk.kill()
    writing.begin(tail)
    assert writing.loaded.cut is not None
    writing.create("b")
    writing.write()
    writing.begin()
    assert writing.loaded.image == writing.controlled.image


def a_write_fails(writing: Writing, monkeypatch: pytest.MonkeyPatch, seen: Tail) -> None:
    """It was read, was on no disk, and was cut off again."""
    writing.create("gone")
    log, controlled = list(writing.controlled.log[: writing.written]), writing.controlled

    def fail(_: object) -> None:
        caught_up(seen)
        raise OSError(errno.EIO, "worn out")

    with monkeypatch.context() as broken:
        broken.setattr(Inode, "sync", fail)
        with pytest.raises(OSError, match="worn out"):
            writing.write()
    assert seen.image == controlled.image
    writing.controlled = Controlled(ONE)
    writing.create("a")
    assert len(writing.controlled.log) == len(log)


@pytest.mark.parametrize("after", ["nothing", "as many records", "more"])
def test_what_was_read_and_taken_back_is_not_gone_on_from(
    writing: Writing, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    tail = caught_up(writing.journal.tail())
    a_write_fails(writing, monkeypatch, tail)
    assert "gone" in tail.image.names
    writing.disk.kill()
    if after != "nothing":
        writing.begin()
        writing.create("none")
        writing.write()
    if after == "more":
        writing.create("else", 5)
        writing.write()
    writing.disk.kill()
    writing.begin(tail)
    assert "gone" not in writing.loaded.image.names
    assert writing.loaded.image == writing.loaded.feed.image == writing.controlled.image


def test_a_tail_notices_while_it_follows(writing: Writing, monkeypatch: pytest.MonkeyPatch) -> None:
    tail = caught_up(writing.journal.tail())
    a_write_fails(writing, monkeypatch, tail)
    writing.begin()
    writing.create("none")
    writing.write()
    with pytest.raises(LostTrackError, match="not there any more"):
        caught_up(tail)
    assert has_all(tail, writing)


def test_damage_is_for_who_has_the_lock_to_tell(writing: Writing) -> None:
    tail = caught_up(writing.journal.tail())
    before = len(writing.segment)
    writing.create("b")
    writing.write()
    writing.create("c")
    writing.write()
    writing.segment[before + 80] ^= 1
    caught_up(tail)
    assert "b" not in tail.image.names
    writing.disk.kill()
    with pytest.raises(CannotStartError, match="good batches follow"):
        writing.begin(tail)


def follow_as_can(tail: Tail) -> None:
    try:
        tail.follow()
    except LostTrackError:
        return


class History:
    """One leader after the other, two that stand by, and steps in an order drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.writing = Writing()
        self.tails = [self.writing.journal.tail() for _ in range(2)]
        self.steps: list[Callable[[], None]] = [
            self.decide,
            self.decide,
            self.decide,
            self.save,
            self.follow,
            self.take_over,
        ]

    def step(self) -> None:
        self.rng.choice(self.steps)()

    def decide(self) -> None:
        name = f"t{len(self.writing.controlled.image.topics)}"
        self.writing.create(name, self.rng.choice([1, 3, 50]))
        self.writing.write()

    def save(self) -> None:
        if self.writing.written:
            self.writing.save()

    def follow(self) -> None:
        follow_as_can(self.rng.choice(self.tails))

    def take_over(self) -> None:
        """Whoever leads is killed, maybe in the middle of a write."""
        segments = [name for name in self.writing.log.names() if name.endswith(".log")]
        if segments:
            self.writing.log.content(segments[-1]).extend(bytes(self.rng.randint(0, 200)))
        self.writing.disk.kill()
        self.writing.begin(self.tails.pop(self.rng.randrange(2)))
        self.tails.append(self.writing.journal.tail())
        loaded = self.writing.loaded
        assert loaded.image == loaded.feed.image == self.writing.controlled.image


@pytest.mark.parametrize("seed", range(30))
def test_whoever_takes_over_has_all_that_was_written(seed: int) -> None:
    history = History(seed)
    history.decide()
    for _ in range(40):
        history.step()
