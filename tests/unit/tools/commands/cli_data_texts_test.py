"""Lines to records and records to lines: what `produce` and `consume` read and print."""

import json
import os
import threading
from collections.abc import Iterator

import pytest

from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.tools import lines
from tidelog.tools.line_records import LineError, LineFormat
from tidelog.tools.output import CliError
from tidelog.tools.record_format import as_line, as_safe_line, compile_format, json_lines
from tidelog.wire.records import Record

PLACE: TopicPartition = ("orders", Partition(3))
RECORD = Record(7, 1_700_000_000_000, b"k", b"v", (("h", b"1"), ("g", None)))
EMPTY = Record(8, 0, None, None)


# -- lines --------------------------------------------------------------------------------------


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            assert end == ends[1], "only the writer is closed by tests"


def blocks(pipe: tuple[int, int], data: bytes) -> list[bytes]:
    """All lines of what is written to a pipe and closed."""

    def write() -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(pipe[1], view) :]
        os.close(pipe[1])

    writer = threading.Thread(target=write)
    writer.start()
    try:
        return [line for block in lines.lines_of(pipe[0]) for line in block]
    finally:  # left to itself, it would close a descriptor of the next test
        writer.join()


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", []),
        (b"a\n", [b"a"]),
        (b"a\nb", [b"a", b"b"]),
        (b"\n\na\n", [b"", b"", b"a"]),
        (b"a\r\n\xff\0\n", [b"a\r", b"\xff\0"]),
    ],
)
def test_a_line_is_what_stands_before_a_newline(
    pipe: tuple[int, int], data: bytes, expected: list[bytes]
) -> None:
    assert blocks(pipe, data) == expected


def test_lines_survive_any_cut_of_the_reads(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "READ_BYTES", 3)
    text = b"\n".join(b"x" * n for n in range(12)) + b"\n"
    assert blocks(pipe, text) == text.split(b"\n")[:-1]


def test_a_line_that_no_record_can_hold_is_refused(
    pipe: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "LINE_BYTES_MAX", 10)
    with pytest.raises(CliError, match="no record can hold it"):
        blocks(pipe, b"x" * 11)


def test_a_pause_of_the_input_is_told(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"a\nb")
    found = lines.lines_of(pipe[0])
    assert next(found) == [b"a"]
    assert next(found) == []
    os.close(pipe[1])
    assert [line for block in found for line in block] == [b"b"]


# -- records ------------------------------------------------------------------------------------


def test_a_line_is_a_value() -> None:
    assert LineFormat().reader()(b"a:b", 5) == Record(0, 5, None, b"a:b")


def test_one_key_for_all() -> None:
    assert LineFormat(key=b"k").reader()(b"v", 5).key == b"k"


def test_the_first_separator_ends_the_key() -> None:
    read = LineFormat(key_separator=b"::").reader()
    assert read(b"k::v::w", 5)[2:4] == (b"k", b"v::w")
    assert read(b"::", 5)[2:4] == (b"", b"")
    with pytest.raises(LineError, match="no key separator '::'"):
        read(b"k:v", 5)


def test_headers_come_first() -> None:
    read = LineFormat(key_separator=b"=", headers=True).reader()
    record = read(b"a:1,b:,a:2:3\tk=v", 5)
    assert record.headers == (("a", b"1"), ("b", b""), ("a", b"2:3"))
    assert (record.key, record.value) == (b"k", b"v")
    assert read(b"\tk=v", 5).headers == ()


@pytest.mark.parametrize(
    ("line", "why"),
    [(b"v", "no tab"), (b"a\tv", "not NAME:VALUE"), (b"\xff:1\tv", "not UTF-8")],
)
def test_headers_that_are_none_are_refused(line: bytes, why: str) -> None:
    with pytest.raises(LineError, match=why):
        LineFormat(headers=True).reader()(line, 5)


# -- printing -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%t %p %o %k %s %T %h\\n", b"orders 3 7 k v 1700000000000 h=1,g=\n"),
        ("%K/%S 100%%\\t\\r\\0\\\\\\x41", b"1/1 100%\t\r\0\\A"),
        ("ü", "ü".encode()),
        ("", b""),
    ],
)
def test_the_letters_of_a_format(text: str, expected: bytes) -> None:
    assert compile_format(text)(PLACE, RECORD) == expected


def test_null_is_empty_and_has_length_minus_one() -> None:
    assert compile_format("[%k|%s|%K|%S|%h]")(PLACE, EMPTY) == b"[||-1|-1|]"


@pytest.mark.parametrize("text", ["%q", "%", "\\q", "\\x4", "\\"])
def test_an_unknown_letter_is_refused_with_all_there_are(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not known; there are %t topic"):
        compile_format(text)


def test_a_pipe_gets_the_bytes_as_they_are() -> None:
    assert as_line(PLACE, RECORD._replace(value=b"\x1b[2J\xff")) == b"\x1b[2J\xff\n"
    assert as_line(PLACE, EMPTY) == b"\n"


def test_a_terminal_gets_nothing_that_moves_its_cursor() -> None:
    shown = as_safe_line(PLACE, RECORD._replace(value="a\tü\x1b[2J\r".encode() + b"\xff"))
    assert shown == "a\tü\\x1b[2J\\r\\xff\n".encode()
    assert as_safe_line(PLACE, EMPTY) == b"\n"


def test_json_has_every_field() -> None:
    assert json.loads(json_lines()(PLACE, RECORD)) == {
        "topic": "orders",
        "partition": 3,
        "offset": 7,
        "timestamp": 1_700_000_000_000,
        "key": "k",
        "value": "v",
        "headers": [{"key": "h", "value": "1"}, {"key": "g", "value": None}],
    }


def test_json_of_bytes_that_are_no_text_is_an_object() -> None:
    document = json.loads(json_lines()(PLACE, RECORD._replace(value=b"\xff\0")))
    assert document["value"] == {"base64": "/wA="}
