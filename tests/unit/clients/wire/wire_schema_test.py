"""Message classes and what their rows mean on the wire, on a small message of every kind of row."""

from typing import Any

import pytest

from tidelog.kernel.ids import Uuid
from tidelog.kernel.limits import MESSAGE_ELEMENTS_MAX
from tidelog.wire.compile import Piece, reader, writer
from tidelog.wire.errors import WireError
from tidelog.wire.primitives import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    RECORDS,
    STRING,
    UINT16,
    UINT32,
    UUID,
    Records,
)
from tidelog.wire.schema import array, message, row


@message
class Point:
    x: int = row(INT8)
    y: int = row(INT16, "2+", default=-1)


@message
class Marks:
    points: list[Point] = row(array(Point))
    names: list[str] = row(array(STRING))
    lots: list[bytes] = row(array(BYTES), "1+")
    ids: list[Uuid] = row(array(UUID), "1+")


@message
class Everything:
    """One row of each kind."""

    flag: bool = row(BOOL)
    small: int = row(UINT16)
    large: int = row(UINT32, "0-2", default=7)
    ratio: float = row(FLOAT64)
    text: str = row(STRING)
    maybe: str | None = row(STRING, nullable="1+", default=None)
    where: Point = row(Point)
    elsewhere: Point = row(Point)
    perhaps: Point | None = row(Point, "1+", nullable="2+", default=None)
    marks: Marks = row(Marks)
    numbers: list[int] | None = row(array(INT32), nullable="0+")
    payload: Records | None = row(RECORDS, nullable="0+")
    long: int = row(INT64, default=-1)
    extra: int = row(INT32, "2+", default=5, tag=1)
    hint: Point | None = row(Point, "2+", tag=0)
    labels: list[str] | None = row(array(STRING), "2+", nullable="2+", tag=3)
    note: str | None = row(STRING, "2+", nullable="2+", default=None, tag=200)
    moved: int = row(INT8, "1+", tag=4, tagged="3+")


FULL = Everything(
    flag=True,
    small=65_535,
    large=2**32 - 1,
    ratio=0.5,
    text="x" * 200,
    maybe="",
    where=Point(x=-128, y=3),
    elsewhere=Point(x=1, y=4),
    perhaps=Point(x=5, y=6),
    marks=Marks(
        points=[Point(x=1, y=1)] * 130, names=["a", ""], lots=[b"z" * 130], ids=[Uuid(bytes(16))]
    ),
    numbers=list(range(150)),
    payload=b"batch",
    long=2**63 - 1,
    extra=6,
    hint=Point(x=9, y=9),
    labels=None,
    note="n",
    moved=3,
)


def written(value: object, version: int, *, flexible: bool) -> bytes:
    pieces: list[Piece] = []
    pieces.append(writer(type(value), version, flexible=flexible)(value, bytearray(), pieces))
    return b"".join(pieces)  # type: ignore[arg-type]  # bytes all of them


def read(cls: type, data: bytes, version: int, *, flexible: bool) -> object:
    value, end = reader(cls, version, flexible=flexible)(memoryview(data), 0)
    assert end == len(data)
    return value


@pytest.mark.parametrize(("version", "flexible"), [(2, False), (2, True), (3, True)])
def test_every_kind_of_row_comes_back(version: int, flexible: bool) -> None:  # noqa: FBT001 -- a column
    if not flexible:
        value = Everything(where=Point(x=1, y=2), elsewhere=Point(x=3, y=4), numbers=None)
    else:
        value = FULL
    data = written(value, version, flexible=flexible)
    again = read(Everything, data, version, flexible=flexible)
    if version == 3:
        assert isinstance(again, Everything)
        assert again.large == 7
        again.large = FULL.large
    assert again == value


def test_a_field_that_a_version_lacks_is_its_default() -> None:
    again = read(Point, written(Point(x=1, y=2), 1, flexible=False), 1, flexible=False)
    assert again == Point(x=1, y=-1)
    assert written(Point(x=1, y=2), 1, flexible=False) == b"\x01"
    assert written(Point(x=1, y=2), 2, flexible=True) == b"\x01\x00\x02\x00"


def test_structs_come_and_go_with_versions_within_arrays_too() -> None:
    @message
    class Step:
        number: int = row(INT8)
        point: Point = row(Point, "2+")
        perhaps: Point | None = row(Point, "1+", nullable="1+")

    @message
    class Way:
        steps: list[Step] = row(array(Step))

    way = Way(steps=[Step(point=Point(x=1, y=2), perhaps=None), Step(perhaps=Point(x=3, y=4))])
    for version in (0, 1, 2):
        data = written(way, version, flexible=version == 2)
        again = read(Way, data, version, flexible=version == 2)
        assert isinstance(again, Way)
        assert len(again.steps) == 2
        assert again.steps[0].point == (Point(x=1, y=2) if version == 2 else Point())
        assert again.steps[0].perhaps == (None if version else Point())
    assert again == way


def test_tags_of_defaults_are_not_written() -> None:
    assert written(Everything(), 2, flexible=True)[-1:] == b"\x00"
    tagged = written(Everything(extra=6, hint=Point(x=1, y=2)), 2, flexible=True)
    assert tagged.endswith(b"\x02" + b"\x00\x04\x01\x00\x02\x00" + b"\x01\x04\x00\x00\x00\x06")


def test_tags_come_in_any_order_and_unknown_ones_are_skipped() -> None:
    plain = written(Everything(), 2, flexible=True)[:-1]
    tags = b"\x03" + b"\x01\x04\x00\x00\x00\x06" + b"\x63\x02ab" + b"\x00\x04\x01\x00\x02\x00"
    assert read(Everything, plain + tags, 2, flexible=True) == Everything(
        extra=6, hint=Point(x=1, y=2)
    )
    many = b"\x84\x01" + b"\x63\x00" * 132
    assert read(Everything, plain + many, 2, flexible=True) == Everything()
    assert read(Point, b"\x01\x00\x02" + many, 2, flexible=True) == Point(x=1, y=2)


@pytest.mark.parametrize(
    "tags",
    [
        b"\x01\x01\x05\x00\x00\x00\x06\x00",  # a known tag with a byte too many
        b"\x01\x01\x03\x00\x00\x00",  # and one too few
        b"\x01\x63\x7f",  # an unknown one longer than the frame
        b"\x01\x63",
        b"\xe9\x07" + b"\x63\x00" * 1001,  # more tags than are allowed
        b"\xff\xff\xff\xff\x7f",  # a count of more than 32 bits
        b"\xff\xff\xff\xff\xff\xff\x01",
    ],
)
def test_a_wrong_tag_section_is_a_wire_error(tags: bytes) -> None:
    plain = written(Everything(), 2, flexible=True)[:-1]
    for cls, start in ((Everything, plain), (Point, b"\x01\x00\x02")):
        if cls is Point and tags.startswith(b"\x01\x01"):
            continue
        with pytest.raises(WireError):
            read(cls, start + tags, 2, flexible=True)


def test_null_where_it_is_not_allowed_is_a_wire_error() -> None:
    @message
    class Named:
        name: str = row(STRING)

    @message
    class Many:
        numbers: list[int] = row(array(INT32))

    for cls, null in ((Named, b"\xff\xff"), (Many, b"\xff\xff\xff\xff")):
        with pytest.raises(WireError):
            read(cls, null, 0, flexible=False)
        with pytest.raises(WireError):
            read(cls, b"\x00\x00", 0, flexible=True)


@pytest.mark.parametrize("length", [b"\xff\xff\xff\xfe", b"\x80\x00\x00\x00"])
def test_a_length_below_null_is_a_wire_error(length: bytes) -> None:
    @message
    class Maybe:
        numbers: list[int] | None = row(array(INT32), nullable="0+")

    assert read(Maybe, b"\xff\xff\xff\xff", 0, flexible=False) == Maybe(numbers=None)
    with pytest.raises(WireError):
        read(Maybe, length, 0, flexible=False)


def test_a_text_that_is_not_utf8_is_a_wire_error() -> None:
    @message
    class Said:
        text: str = row(STRING)

    assert read(Said, b"\x00\x02\xc3\xa9", 0, flexible=False) == Said(text="é")
    with pytest.raises(WireError):
        read(Said, b"\x00\x01\xc3", 0, flexible=False)


def test_a_text_that_is_cut_is_a_wire_error() -> None:
    @message
    class Cut:
        text: str = row(STRING)

    for data, flexible in ((b"\x00\x05abc", False), (b"\x06abc", True)):
        with pytest.raises(WireError):
            read(Cut, data, 0, flexible=flexible)


def test_a_text_longer_than_old_versions_allow_is_a_wire_error() -> None:
    @message
    class Told:
        text: str = row(STRING)

    for size, allowed in ((32_767, True), (32_768, False)):
        compact = size + 1
        head = bytes([compact & 127 | 128, compact >> 7 & 127 | 128, compact >> 14])
        data = head + b"a" * size + b"\x00"
        if allowed:
            assert read(Told, data, 0, flexible=True) == Told(text="a" * size)
        else:
            with pytest.raises(WireError):
                read(Told, data, 0, flexible=True)


def test_a_count_that_the_rest_cannot_hold_is_refused_before_anything_is_made() -> None:
    @message
    class Crowd:
        points: list[Point] = row(array(Point))
        numbers: list[int] = row(array(INT64))

    for count in (2, 2**31 - 1):
        data = count.to_bytes(4, "big") + b"\x01\x00\x02" + b"\x00"
        with pytest.raises(WireError, match=f"length {count} "):
            read(Crowd, data, 2, flexible=False)
        numbers = b"\x00\x00\x00\x00" + count.to_bytes(4, "big") + bytes(15)
        with pytest.raises(WireError, match=f"length {count} "):
            read(Crowd, numbers, 2, flexible=False)


def test_all_arrays_of_a_message_share_one_bound() -> None:
    @message
    class Names:
        names: list[str] = row(array(STRING))

    @message
    class Lists:
        lists: list[Names] = row(array(Names))

    half = MESSAGE_ELEMENTS_MAX // 2
    names = half.to_bytes(4, "big") + bytes(2 * half)
    with pytest.raises(WireError):
        read(Lists, (2).to_bytes(4, "big") + names * 2, 0, flexible=False)


def test_instances_share_no_lists_and_no_structs() -> None:
    one, two = Everything(), Everything()
    assert one == two
    one.marks.names.append("mine")
    one.where.x = 3
    assert two.marks.names == []
    assert two.where == Point()
    assert one != two
    different: object = Point()
    assert one != different


def test_a_message_shows_its_fields_and_takes_no_others() -> None:
    assert repr(Point(x=3)) == "Point(x=3, y=-1)"
    with pytest.raises(TypeError):
        Point(z=1)  # type: ignore[call-arg]  # on purpose
    with pytest.raises(AttributeError):
        Point().z = 1  # type: ignore[attr-defined]  # on purpose
    with pytest.raises(TypeError):
        hash(Point())


@pytest.mark.parametrize("flexible", [False, True])
def test_an_element_may_be_given_as_its_bytes_where_its_array_allows_it(
    flexible: bool,  # noqa: FBT001 -- a column
) -> None:
    @message
    class Line:
        points: list[Point] = row(array(Point, encoded=True))
        end: int = row(INT16)

    @message
    class Plain:
        points: list[Point] = row(array(Point))

    write = writer(Line, 2, flexible=flexible)
    points = [Point(x=n, y=n) for n in range(5)]
    whole = write(Line(points=points, end=7), bytearray(), [])
    mixed: list[Any] = [
        bytes(writer(Point, 2, flexible=flexible)(point, bytearray(), [])) if n % 2 else point
        for n, point in enumerate(points)
    ]
    assert write(Line(points=mixed, end=7), bytearray(), []) == whole
    assert reader(Line, 2, flexible=flexible)(memoryview(whole), 0)[0].points == points
    with pytest.raises(AttributeError):
        writer(Plain, 2, flexible=flexible)(Plain(points=mixed), bytearray(), [])


def test_versions_that_look_alike_share_one_function() -> None:
    assert reader(Point, 2, flexible=True) is reader(Point, 9, flexible=True)
    assert reader(Point, 1, flexible=True) is not reader(Point, 2, flexible=True)
    assert writer(Point, 2, flexible=True) is writer(Point, 9, flexible=True)
    assert writer(Point, 2, flexible=False) is not writer(Point, 2, flexible=True)
