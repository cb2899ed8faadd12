"""How a record is printed: the letters of `-f`, or an object of JSON.

In JSON a key, value or header that is not UTF-8 is `{"base64": "…"}`: a text can never be an
object, so the two cannot be mistaken.
"""

import base64
import re
from collections.abc import Callable

from tidelog.kernel.ids import TopicPartition
from tidelog.wire.records import Record

Formatter = Callable[[TopicPartition, Record], bytes]

FORMAT_HELP = (
    "%t topic, %p partition, %o offset, %k key, %s value, %T timestamp, %h headers, "
    "%K and %S their lengths, %% a percent sign; \\n, \\t, \\r, \\0, \\\\, \\xHH."
)
_TOKEN = re.compile(r"%(.)|\\x([0-9a-fA-F]{2})|\\(.)|([^%\\]+)|(.)", re.DOTALL)
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}

_FIELDS: dict[str, Formatter] = {
    "t": lambda partition, _: partition[0].encode(),
    "p": lambda partition, _: b"%d" % partition[1],
    "o": lambda _, record: b"%d" % record.offset,
    "k": lambda _, record: record.key or b"",
    "s": lambda _, record: record.value or b"",
    "T": lambda _, record: b"%d" % record.timestamp,
    "h": lambda _, record: _headers(record),
    "K": lambda _, record: b"%d" % _length(record.key),
    "S": lambda _, record: b"%d" % _length(record.value),
    "%": lambda _partition, _record: b"%",
}


def compile_format(text: str) -> Formatter:
    """A function that prints a record so; ValueError where the format has an unknown letter."""
    parts = [_part(found) for found in _TOKEN.finditer(text)]

    def form(partition: TopicPartition, record: Record) -> bytes:
        return b"".join(
            part if isinstance(part, bytes) else part(partition, record) for part in parts
        )

    return form


def as_line(_partition: TopicPartition, record: Record) -> bytes:
    """The value and a newline, as its bytes are."""
    return (record.value or b"") + b"\n"


def as_safe_line(_partition: TopicPartition, record: Record) -> bytes:
    """As `as_line`, for a terminal: nothing in it moves the cursor or changes colours."""
    text = (record.value or b"").decode(errors="backslashreplace")
    safe = "".join(
        one if one.isprintable() or one in "\n\t" else one.encode("unicode_escape").decode()
        for one in text
    )
    return safe.encode() + b"\n"


def json_lines() -> Formatter:
    """One object a line."""
    import msgspec  # noqa: PLC0415 -- ten times faster than json, and only --json pays for it

    encode = msgspec.json.Encoder().encode

    def form(partition: TopicPartition, record: Record) -> bytes:
        document = {
            "topic": partition[0],
            "partition": partition[1],
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": json_text(record.key),
            "value": json_text(record.value),
            "headers": [{"key": name, "value": json_text(value)} for name, value in record.headers],
        }
        return encode(document) + b"\n"

    return form


def _part(found: re.Match[str]) -> bytes | Formatter:
    letter, number, escape, plain, _ = found.groups()
    if plain is not None:
        return str(plain).encode()
    if number is not None:
        return bytes([int(number, 16)])
    if escape in _ESCAPES:
        return _ESCAPES[escape]
    if letter in _FIELDS:
        return _FIELDS[letter]
    raise ValueError(f"{found[0]!r} is not known; there are {FORMAT_HELP}")


def _headers(record: Record) -> bytes:
    return b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers)


def _length(content: bytes | None) -> int:
    return -1 if content is None else len(content)


def json_text(content: bytes | None) -> object:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}
