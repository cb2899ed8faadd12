"""The ring against a model: nothing that somebody may still read is ever written over."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import BrokerId, Incarnation
from tidelog.node.ipc.ring import DATA_AT, RingReader, RingWriter, check_head, ring_bytes

SIZE = 64
READERS = [BrokerId(1), BrokerId(2), BrokerId(3)]

PUT = st.tuples(
    st.just("put"), st.integers(1, SIZE // 4), st.sets(st.sampled_from(READERS), max_size=3)
)
PASS = st.tuples(st.just("pass"), st.sampled_from(READERS), st.integers(1, 3))
RELEASE = st.tuples(st.just("release"), st.sampled_from(READERS), st.just(0))


@dataclass
class Model:
    """What each reader was sent and has not passed."""

    memory: bytearray = field(default_factory=lambda: bytearray(ring_bytes(SIZE)))
    lent: dict[BrokerId, list[tuple[int, bytes]]] = field(
        default_factory=lambda: {one: [] for one in READERS}
    )
    puts: int = 0

    def __post_init__(self) -> None:
        self.writer = RingWriter(memoryview(self.memory), BrokerId(0), Incarnation(1), 7)
        self.readers = {one: RingReader(memoryview(self.memory), one) for one in READERS}

    def put(self, size: int, to: set[BrokerId]) -> None:
        self.puts += 1
        batch = bytes([self.puts % 251 + 1]) * size
        position = self.writer.put(batch)
        if position is None:
            held_up = self.writer.holds_up()
            assert held_up is not None, "refused, and nobody holds it up"
            assert self.lent[held_up], "who has passed everything holds nothing up"
            return
        assert position % SIZE + size <= SIZE, "across the end"
        for one in sorted(to):
            self.writer.lend(one, position, size)
            self.lent[one].append((position, batch))

    def passes(self, one: BrokerId, count: int) -> None:
        for position, batch in self.lent[one][:count]:
            self.readers[one].passed(position + len(batch))
        del self.lent[one][:count]

    def check(self) -> None:
        for one, lent in self.lent.items():
            for position, batch in lent:
                with self.readers[one].batch(position, len(batch)) as view:
                    assert bytes(view) == batch, "written over"


@given(st.lists(st.one_of(PUT, PUT, PASS, RELEASE), max_size=80))
def test_nothing_that_is_lent_is_written_over(steps: list[tuple[str, object, object]]) -> None:
    model = Model()
    for what, first, second in steps:
        if what == "put":
            assert isinstance(first, int)
            assert isinstance(second, set)
            model.put(first, second)
        else:
            one = BrokerId(int(str(first)))
            if what == "pass":
                model.passes(one, int(str(second)))
            else:
                model.writer.release(one)
                model.lent[one].clear()
        model.check()


@given(st.lists(st.integers(1, SIZE // 4), min_size=1, max_size=200))
def test_a_ring_that_nobody_reads_takes_everything(sizes: list[int]) -> None:
    writer = RingWriter(memoryview(bytearray(ring_bytes(SIZE))), BrokerId(0), Incarnation(1), 1)
    positions = [writer.put(bytes(size)) for size in sizes]
    assert None not in positions
    assert positions == sorted(set(positions), key=lambda one: one or 0)


@given(st.integers(0, 1 << 40), st.integers(-3, SIZE * 2))
def test_a_reader_trusts_no_descriptor(position: int, size: int) -> None:
    memory = bytearray(ring_bytes(SIZE))
    RingWriter(memoryview(memory), BrokerId(0), Incarnation(1), 1)
    reader = RingReader(memoryview(memory), READERS[0])
    if 0 < size <= SIZE - position % SIZE:
        assert len(reader.batch(position, size)) == size
    else:
        with pytest.raises(CorruptError):
            reader.batch(position, size)


@given(st.integers(0, DATA_AT + 10), st.integers(0, 39), st.integers(1, 255))
def test_a_damaged_head_is_refused(length: int, at: int, flip: int) -> None:
    memory = bytearray(ring_bytes(SIZE))
    RingWriter(memoryview(memory), BrokerId(0), Incarnation(1), 1)
    with pytest.raises(CorruptError):
        check_head(memoryview(memory)[:length])
    memory[at] ^= flip
    checked = {*range(12), *range(32, 40)}  # magic, version, size
    if at in checked:
        with pytest.raises(CorruptError):
            check_head(memoryview(memory))
    else:
        check_head(memoryview(memory))


def test_a_cursor_never_goes_back() -> None:
    memory = bytearray(ring_bytes(SIZE))
    writer = RingWriter(memoryview(memory), BrokerId(0), Incarnation(1), 1)
    reader = RingReader(memoryview(memory), READERS[0])
    for _ in range(3):
        position = writer.put(bytes(16))
        assert position is not None
        writer.lend(READERS[0], position, 16)
    reader.passed(48)
    reader.passed(16)
    assert writer.holds_up() is None
