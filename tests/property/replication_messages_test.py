"""What brokers say to each other survives the pipe, and nothing else is taken for it."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.kernel.ids import BrokerId, Incarnation
from tidelog.kernel.limits import BROKERS_MAX
from tidelog.wire import replication
from tidelog.wire.errors import WireError
from tidelog.wire.replication import Bytes, Entry, Head, decode, encode

FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "q": st.integers(-(1 << 63), (1 << 63) - 1),
    "Q": st.integers(0, (1 << 64) - 1),
    "i": st.integers(-(1 << 31), (1 << 31) - 1),
    "I": st.integers(0, (1 << 32) - 1),
    "h": st.integers(-(1 << 15), (1 << 15) - 1),
    "?": st.booleans(),
    "16s": st.binary(min_size=16, max_size=16),
}
PAYLOADS = st.binary(max_size=200)


def _entries_of(kind: Any, layout: str) -> st.SearchStrategy[Entry]:
    fields = [FIELDS[code] for code in re.findall(r"\d*\w|\?", layout)]
    message = st.tuples(*fields).map(kind._make)
    return st.tuples(message, PAYLOADS if kind is Bytes else st.none())


ENTRIES = st.lists(
    st.one_of([_entries_of(kind, layout) for _, kind, layout in replication._ROWS]), max_size=8
)
HEADS = st.builds(
    Head,
    st.integers(0, BROKERS_MAX - 1).map(BrokerId),
    FIELDS["q"].map(Incarnation),
    FIELDS["q"].map(Incarnation),
    FIELDS["I"],
)


@given(HEADS, ENTRIES)
def test_every_message_survives_the_pipe(head: Head, entries: list[Entry]) -> None:
    parts = [bytes(part) for part in encode(head, entries)]
    assert decode(parts) == (head, entries)


@given(HEADS, ENTRIES, st.integers(BROKERS_MAX, 65_535))
def test_a_message_of_a_broker_that_no_cluster_can_have_is_refused(
    head: Head, entries: list[Entry], sender: int
) -> None:
    parts = encode(head._replace(sender=BrokerId(sender)), entries)
    with pytest.raises(WireError, match=f"no cluster has a broker {sender}"):
        decode(parts)


def test_every_kind_of_message_has_a_row() -> None:
    kinds = {kind for _, kind, _ in replication._ROWS}
    assert kinds == set(replication.Message.__args__)
    assert len({number for number, _, _ in replication._ROWS}) == len(kinds)


@given(HEADS, ENTRIES, st.data())
def test_a_damaged_message_is_refused_or_is_another_message(
    head: Head, entries: list[Entry], data: st.DataObject
) -> None:
    parts = [bytearray(part) for part in encode(head, entries)]
    frame = parts[0]
    how = data.draw(st.sampled_from(["cut", "flip", "lose", "add", "grow"]))
    if how == "cut":
        del frame[data.draw(st.integers(0, len(frame) - 1)) :]
    elif how == "flip":
        frame[data.draw(st.integers(0, len(frame) - 1))] ^= data.draw(st.integers(1, 255))
    elif how == "lose":
        parts.pop()
    elif how == "add":
        parts.append(bytearray(b"more"))
    else:
        frame += data.draw(st.binary(min_size=1, max_size=40))
    try:
        found = decode(parts)
    except WireError:
        return
    assert how in {"cut", "flip", "grow"}, "parts that do not fit were taken"
    again = [bytes(part) for part in encode(*found)]
    flags = {type(message).__name__ for message, _ in found.entries} & {"State"}
    assert flags or again == [bytes(part) for part in parts]


@given(st.lists(st.binary(max_size=100), max_size=4))
def test_arbitrary_parts_are_refused(parts: list[bytes]) -> None:
    try:
        decode(parts)
    except WireError:
        return
    assert parts[0].startswith(replication.MAGIC)
