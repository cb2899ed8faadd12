"""How a line becomes a record: headers, key and value stand in it one after the other."""

from collections.abc import Callable
from dataclasses import dataclass

from tidelog.wire.records import Record

HEADERS_END = b"\t"
HEADERS_BETWEEN = b","
HEADER_MIDDLE = b":"

Headers = tuple[tuple[str, bytes | None], ...]


class LineError(ValueError):
    """A line that lacks what the options say it has."""


@dataclass(frozen=True, slots=True)
class LineFormat:
    """`h1:v1,h2:v2<TAB>key<SEPARATOR>value`, or as much of it as is asked for."""

    key: bytes | None = None
    key_separator: bytes | None = None
    headers: bool = False

    def reader(self) -> Callable[[bytes, int], Record]:
        """A function of a line and its timestamp; the offset is for others to set."""
        key, separator, has_headers = self.key, self.key_separator, self.headers

        def read(line: bytes, timestamp: int) -> Record:
            named: Headers = ()
            this_key = key
            if has_headers:
                named, line = _headers(line)
            if separator is not None:
                this_key, found, line = line.partition(separator)
                if not found:
                    raise LineError(f"no key separator {separator.decode()!r}")
            return Record(0, timestamp, this_key, line, named)

        return read


def _headers(line: bytes) -> tuple[Headers, bytes]:
    text, tab, rest = line.partition(HEADERS_END)
    if not tab:
        raise LineError("no tab after the headers")
    return tuple(_header(part) for part in text.split(HEADERS_BETWEEN) if part), rest


def _header(part: bytes) -> tuple[str, bytes]:
    name, colon, value = part.partition(HEADER_MIDDLE)
    if not colon:
        raise LineError(f"header {part.decode(errors='replace')!r} is not NAME:VALUE")
    try:
        return name.decode(), value
    except UnicodeDecodeError:
        raise LineError("a header's name is not UTF-8") from None
