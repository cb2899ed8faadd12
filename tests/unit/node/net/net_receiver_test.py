"""A connection's buffer: frames in place, memory bounded by what arrived."""

import random

import pytest

from tidelog.kernel import limits
from tidelog.node.net.received import ReceivedBytes
from tidelog.node.net.receiver import FrameError, Receiver

FRAME_MAX = 1_000_000


def receiver_for(frame_bytes_max: int) -> Receiver:
    """Of a connection that is alone."""
    account = ReceivedBytes().open(lambda: None, lambda: None, lambda: 0)
    return Receiver(frame_bytes_max, account)


def feed(receiver: Receiver, data: bytes, step: int) -> list[bytes]:
    """Give the bytes in pieces of at most `step`; the frames that came out."""
    frames: list[bytes] = []
    position = 0
    while position < len(data):
        room = receiver.room()
        count = min(step, len(room), len(data) - position)
        room[:count] = data[position : position + count]
        receiver.received(count)
        position += count
        while (frame := receiver.next_frame()) is not None:
            frames.append(bytes(frame))
    return frames


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def test_a_frame_comes_out_whole_once_its_last_byte_is_there() -> None:
    receiver = receiver_for(FRAME_MAX)
    data = framed(b"abcdefgh")
    assert feed(receiver, data[:-1], 100) == []
    assert feed(receiver, data[-1:], 100) == [b"abcdefgh"]
    assert receiver.pending == 0


@pytest.mark.parametrize("step", [1, 3, 7, 1000, 10**9])
def test_frames_of_every_size_survive_any_cut(step: int) -> None:
    rng = random.Random(step)
    sizes = [8, 9, 100, 4092, 4096, 5000, 17, 300_000 if step > 100 else 9000, 8, 70_000]
    bodies = [rng.randbytes(size) for size in sizes]
    assert feed(receiver_for(FRAME_MAX), b"".join(map(framed, bodies)), step) == bodies


@pytest.mark.parametrize("size", [-1, -(2**31), 0, 7, FRAME_MAX + 1, 1_195_725_856, 369_295_744])
def test_a_size_that_cannot_be_one_is_refused_before_anything_is_allocated(size: int) -> None:
    receiver = receiver_for(FRAME_MAX)
    before = receiver.capacity
    with pytest.raises(FrameError):
        feed(receiver, size.to_bytes(4, "big", signed=True) + b"rest", 100)
    assert receiver.capacity == before


def test_memory_follows_the_bytes_received_not_the_size_announced() -> None:
    receiver = receiver_for(limits.REQUEST_BYTES_MAX)
    feed(receiver, (90 * limits.MIB).to_bytes(4, "big") + bytes(10_000), 10_000)
    assert receiver.capacity <= limits.RECEIVE_BUFFER_BYTES_STEADY
    feed(receiver, bytes(1_000_000), 65_536)
    assert receiver.capacity <= 3_000_000


def test_a_large_frame_s_memory_is_given_back_after_it() -> None:
    receiver = receiver_for(limits.REQUEST_BYTES_MAX)
    assert len(feed(receiver, framed(bytes(5_000_000)), 65_536)) == 1
    receiver.room()
    assert receiver.capacity == limits.RECEIVE_BUFFER_BYTES_STEADY


def test_an_idle_connection_holds_the_smallest_buffer() -> None:
    receiver = receiver_for(FRAME_MAX)
    feed(receiver, framed(bytes(100_000)), 10_000)
    receiver.relax()
    assert receiver.capacity == limits.RECEIVE_BUFFER_BYTES_FIRST


def test_relaxing_never_drops_a_frame_under_way() -> None:
    receiver = receiver_for(FRAME_MAX)
    data = framed(bytes(range(256)) * 100)
    assert feed(receiver, data[:20_000], 4096) == []
    receiver.relax()
    assert feed(receiver, data[20_000:], 4096) == [data[4:]]


def test_a_frame_handed_out_stays_valid_while_the_next_is_handed_out() -> None:
    receiver = receiver_for(FRAME_MAX)
    data = framed(b"first---") + framed(b"second--")
    receiver.room()[: len(data)] = data
    receiver.received(len(data))
    first = receiver.next_frame()
    second = receiver.next_frame()
    assert first is not None
    assert second is not None
    assert (bytes(first), bytes(second)) == (b"first---", b"second--")


def test_a_large_frame_is_received_to_its_end_and_no_further() -> None:
    receiver = receiver_for(FRAME_MAX)
    data = framed(bytes(100_000))
    assert feed(receiver, data[:50_000], 4096) == []
    left = len(data) - 50_000
    while left:
        room = len(receiver.room())
        assert 0 < room <= left
        receiver.received(room)
        left -= room
        frame = receiver.next_frame()
        assert (frame is not None) == (left == 0)
    assert receiver.pending == 0


def test_what_came_of_a_frame_that_will_not_fit_in_moves_to_the_front_at_once() -> None:
    receiver = receiver_for(FRAME_MAX)
    feed(receiver, framed(bytes(limits.RECEIVE_BUFFER_BYTES_STEADY)), 10**9)
    capacity = receiver.capacity
    body = bytes(range(250)) * (capacity // 300)
    assert len(feed(receiver, framed(body) + framed(body)[:1000], 10**9)) == 1
    room = len(receiver.room())
    assert receiver.capacity == capacity
    assert room == len(body) + 4 - 1000
    assert feed(receiver, framed(body)[1000:], 10**9) == [body]


@pytest.mark.parametrize("seed", range(20))
def test_random_frames_in_random_pieces_come_out_as_they_were(seed: int) -> None:
    rng = random.Random(seed)
    sizes = [rng.choice((8, 200, 5000, 66_000, 300_000, 999_000)) for _ in range(12)]
    bodies = [rng.randbytes(size) for size in sizes]
    data = b"".join(map(framed, bodies))
    receiver = receiver_for(FRAME_MAX)
    frames: list[bytes] = []
    position = 0
    while position < len(data):
        count = rng.choice((1, 3, 1000, 4096, 65_536, 500_000))
        frames += feed(receiver, data[position : position + count], count)
        position += count
    assert frames == bodies
    assert receiver.capacity <= limits.RECEIVE_BUFFER_BYTES_KEPT
