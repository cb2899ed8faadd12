"""Record batches as Hypothesis draws them: all that a log may hold, in orders that it may have."""

from dataclasses import dataclass

from hypothesis import strategies as st

from tidelog.wire.codecs import Codec
from tidelog.wire.records import (
    TRANSACTIONAL_BIT,
    EndMarker,
    Origin,
    Record,
    build_batch,
    build_marker,
    place_batch,
    stamp_append_time,
)

NOW_MS = 1_700_000_000_000
PRODUCERS = (7, 8)
FIELD_BYTES_MAX = 9_000
"""Sizes of one, two and three bytes."""

fields = st.one_of(
    st.none(),
    st.binary(max_size=20),
    st.integers(0, FIELD_BYTES_MAX).map(lambda size: b"\x00\x80"[: size % 3] * (size // 2)),
)
names = st.text(max_size=5)
headers = st.lists(st.tuples(names, fields), max_size=3).map(tuple)


@dataclass(frozen=True, slots=True)
class Drawn:
    """A stretch of a log, and what a broker would say of it beside."""

    parts: tuple[bytes, ...]
    """One batch each."""
    aborted: tuple[tuple[int, int], ...]
    """Producer id and first offset of each transaction that was aborted."""
    end: int

    @property
    def data(self) -> bytes:
        return b"".join(self.parts)


@st.composite
def records(draw: st.DrawFn, base: int) -> list[Record]:
    """Of one batch; with holes, as compaction leaves them."""
    found = []
    offset = base
    for _ in range(draw(st.integers(1, 5))):
        stamp = NOW_MS + draw(st.one_of(st.integers(-70, 70), st.integers(-(2**40), 2**40)))
        key, value = draw(fields), draw(fields)
        found.append(Record(offset, stamp, key, value, draw(st.just(()) | headers)))
        offset += draw(st.sampled_from((1, 1, 1, 2, 70, 9_000)))
    return found


@st.composite
def batches(draw: st.DrawFn, offset: int, producer: int) -> tuple[bytes, int]:
    """One of a producer, in a transaction if it has an id, and the offset behind it."""
    rows = draw(records(offset))
    origin = Origin(producer, 0, 0, 0 if producer < 0 else TRANSACTIONAL_BIT)
    part = build_batch(rows, codec=draw(st.sampled_from(Codec)), origin=origin)
    if draw(st.integers(0, 4)) == 0:
        stamp_append_time(part, NOW_MS + offset)
    return bytes(part), rows[-1].offset + 1


def marker(offset: int, producer: int, *, committed: bool) -> bytes:
    part = build_marker(EndMarker(producer, 0, 0, committed), NOW_MS)
    place_batch(part, 0, base_offset=offset, leader_epoch=0)
    return bytes(part)


@st.composite
def stretches(draw: st.DrawFn) -> Drawn:
    """Batches of two producers' transactions and of others between them."""
    parts: list[bytes] = []
    aborted = []
    offset = draw(st.sampled_from((0, 5, 2**33)))
    begun: dict[int, int] = {}
    for _ in range(draw(st.integers(1, 8))):
        producer = draw(st.sampled_from((-1, *PRODUCERS)))
        if producer in begun and draw(st.booleans()):
            first, committed = begun.pop(producer), draw(st.booleans())
            if not committed:
                aborted.append((producer, first))
            part, behind = marker(offset, producer, committed=committed), offset + 1
        else:
            begun.setdefault(producer, offset)
            part, behind = draw(batches(offset, producer))
        parts.append(part)
        offset = behind + draw(st.sampled_from((0, 0, 3)))
        begun.pop(-1, None)
    return Drawn(tuple(parts), tuple(aborted), offset)
