"""Whole frames: bytes in, messages out, and back. A frame is an int32 size, a header, and a body.

A frame on its way out is a list of pieces: record batches stay what they are (views, slices of
files) between the bytes around them, so that a shell sends them without a copy.
"""

from collections.abc import Mapping, Sequence
from struct import Struct
from typing import Any, TypeVar

from tidelog.kernel.limits import (
    ELEMENTS_AT_ONCE_MAX,
    ELEMENTS_LIGHT,
    REQUEST_BYTES_MAX,
)
from tidelog.kernel.steps import Pace, Steps
from tidelog.wire.compile import Piece, Reader, Writer, reader, writer
from tidelog.wire.errors import TooWideError, WireError
from tidelog.wire.header import (
    AnyApi,
    RequestHeader,
    decode_request_header,
    decode_response_header,
    has_response_tags,
    request_head,
)
from tidelog.wire.schema import ApiSchema

RequestT = TypeVar("RequestT")
ResponseT = TypeVar("ResponseT")

_METADATA_KEY = 3
_METADATA_FLEXIBLE_FROM = 9
_WIDE_NULL_EXCESS = 3

_SIZE = Struct(">i")
_RESPONSE_HEAD = Struct(">ii")
_RESPONSE_HEAD_TAGS = Struct(">iix")


def encode_request(
    api: ApiSchema[RequestT, ResponseT],
    version: int,
    correlation_id: int,
    client_id: str | None,
    message: RequestT,
) -> list[Piece]:
    """A whole request frame; WireError where a string is too long for the wire."""
    write = api.request_writers.get(version) or _request_writer(api, version)
    pieces: list[Piece] = []
    last = write(message, request_head(api, version, correlation_id, client_id), pieces)
    return _sized(pieces, last)


def encode_response(
    api: ApiSchema[RequestT, ResponseT], version: int, correlation_id: int, message: ResponseT
) -> list[Piece]:
    """A whole response frame; WireError where a string is too long for the wire."""
    write = api.response_writers.get(version) or _response_writer(api, version)
    return _response(write, api, version, correlation_id, message)


def encode_response_at_once(
    api: ApiSchema[RequestT, ResponseT], version: int, correlation_id: int, message: ResponseT
) -> list[Piece]:
    """As `encode_response`; TooWideError where the loop should not do it."""
    write = api.response_writers_at_once.get(version) or _response_writer_at_once(api, version)
    head = _RESPONSE_HEAD_TAGS if has_response_tags(api, version) else _RESPONSE_HEAD
    pieces: list[Piece] = []
    last = write(message, bytearray(head.pack(0, correlation_id)), pieces)
    return _sized(pieces, last)


def encode_in_steps(
    api: ApiSchema[RequestT, ResponseT], version: int, correlation_id: int, message: ResponseT
) -> Steps[list[Piece]]:
    """As `encode_response`, in a thread."""
    write = writer(
        api.response, version, flexible=api.is_flexible(version), elements_max=ELEMENTS_LIGHT
    )
    try:
        return _response(write, api, version, correlation_id, message)
    except TooWideError:
        yield Pace.HEAVY
    return encode_response(api, version, correlation_id, message)


def _response(
    write: Writer, api: AnyApi, version: int, correlation_id: int, message: object
) -> list[Piece]:
    head = _RESPONSE_HEAD_TAGS if has_response_tags(api, version) else _RESPONSE_HEAD
    pieces: list[Piece] = []
    last = write(message, bytearray(head.pack(0, correlation_id)), pieces)
    return _sized(pieces, last)


def decode_known(frame: bytes, apis: Mapping[int, AnyApi]) -> tuple[RequestHeader, Any]:
    """The header and the request of one of these APIs; WireError where the frame is none."""
    view = memoryview(frame)
    header = decode_request_header(view, apis)
    api = apis.get(header.api_key)
    if api is None or header.version not in api.versions:
        raise WireError(f"key {header.api_key} version {header.version} is not decided here")
    return header, decode_request(api, header.version, view, header.body_position)


def decode_request(
    api: ApiSchema[RequestT, ResponseT], version: int, frame: memoryview, position: int
) -> RequestT:
    """The request whose body starts at `position`, or WireError. Bytes after it are ignored.

    Records in it are views into the frame: who keeps them keeps the frame.
    """
    message, _ = read_request(api, version, frame, position)
    return message


def read_request(
    api: ApiSchema[RequestT, ResponseT], version: int, frame: memoryview, position: int
) -> tuple[RequestT, int]:
    """As `decode_request`, and how many bytes nobody can explain come after the request.

    Kafka does not look at them either: a client that leaves some works with every Kafka.
    """
    read = api.request_readers.get(version) or _request_reader(api, version)
    return _request(read, api, version, frame, position)


def read_request_at_once(
    api: ApiSchema[RequestT, ResponseT], version: int, frame: memoryview, position: int
) -> tuple[RequestT, int]:
    """As `read_request`; TooWideError where the loop should not do it."""
    read = api.request_readers_at_once.get(version) or _request_reader_at_once(api, version)
    message: RequestT
    message, position = read(frame, position)
    left = len(frame) - position
    return message, 0 if left and _is_wide_null(api.key, version, left) else left


def read_in_steps(
    api: ApiSchema[RequestT, ResponseT], version: int, frame: memoryview, position: int
) -> Steps[tuple[RequestT, int]]:
    """As `read_request`, in a thread."""
    read = _bounded_reader(api, version, min(ELEMENTS_LIGHT, api.elements_max))
    try:
        return _request(read, api, version, frame, position)
    except TooWideError:
        yield Pace.HEAVY
    return read_request(api, version, frame, position)


def _request(
    read: Reader, api: AnyApi, version: int, frame: memoryview, position: int
) -> tuple[Any, int]:
    message, position = read(frame, position)
    left = len(frame) - position
    return message, 0 if left and _is_wide_null(api.key, version, left) else left


def _is_wide_null(key: int, version: int, left: int) -> bool:
    """Whether the bytes behind a request are the ones librdkafka leaves behind Metadata.

    To ask for all topics it writes null in four bytes where flexible versions have one; Kafka
    reads null from the first and looks at nothing behind the request.
    """
    return key == _METADATA_KEY and version >= _METADATA_FLEXIBLE_FROM and left == _WIDE_NULL_EXCESS


def decode_response(
    api: ApiSchema[RequestT, ResponseT], version: int, frame: memoryview
) -> tuple[int, ResponseT]:
    """The correlation id and the response of a frame without its size, or WireError."""
    correlation_id, position = decode_response_header(api, version, frame)
    read = api.response_readers.get(version) or _response_reader(api, version)
    message: ResponseT
    message, position = read(frame, position)
    if position != len(frame):
        raise WireError(f"{api} v{version}: {len(frame) - position} bytes behind the response")
    return correlation_id, message


def decode_size(prefix: bytes | bytearray | memoryview) -> int:
    """The size a frame announces, from its first 4 bytes; WireError where no frame has it.

    Read it before anything is allocated: `GET ` and a TLS hello are sizes too.
    """
    (size,) = _SIZE.unpack_from(prefix)
    if not 0 <= size <= REQUEST_BYTES_MAX:
        raise WireError(f"frame of {size} bytes, 0 to {REQUEST_BYTES_MAX} are allowed")
    assert isinstance(size, int)
    return size


def joined(pieces: Sequence[Piece]) -> bytes:
    """The bytes of a frame, where its records are bytes: for tests and small messages."""
    return b"".join(pieces)  # type: ignore[arg-type]  # the caller knows


def _sized(pieces: list[Piece], last: bytearray) -> list[Piece]:
    """The whole frame, its size filled in; most have no records and are one piece."""
    if not pieces:
        _SIZE.pack_into(last, 0, len(last) - _SIZE.size)
        return [last]
    head = pieces[0]
    assert isinstance(head, bytearray), "a frame starts with its header"
    pieces.append(last)
    _SIZE.pack_into(head, 0, sum(map(len, pieces)) - _SIZE.size)
    return pieces


def _request_reader(api: AnyApi, version: int) -> Reader:
    made = _bounded_reader(api, version, api.elements_max)
    api.request_readers[version] = made
    return made


def _request_reader_at_once(api: AnyApi, version: int) -> Reader:
    made = _bounded_reader(api, version, ELEMENTS_AT_ONCE_MAX)
    api.request_readers_at_once[version] = made
    return made


def _bounded_reader(api: AnyApi, version: int, elements_max: int) -> Reader:
    return reader(
        api.request,
        _checked(api, version),
        flexible=api.is_flexible(version),
        elements_max=elements_max,
        counts_numbers=True,
    )


def _response_reader(api: AnyApi, version: int) -> Reader:
    made = reader(api.response, _checked(api, version), flexible=api.is_flexible(version))
    api.response_readers[version] = made
    return made


def _request_writer(api: AnyApi, version: int) -> Writer:
    made = writer(api.request, _checked(api, version), flexible=api.is_flexible(version))
    api.request_writers[version] = made
    return made


def _response_writer(api: AnyApi, version: int) -> Writer:
    made = writer(api.response, _checked(api, version), flexible=api.is_flexible(version))
    api.response_writers[version] = made
    return made


def _response_writer_at_once(api: AnyApi, version: int) -> Writer:
    made = writer(
        api.response,
        _checked(api, version),
        flexible=api.is_flexible(version),
        elements_max=ELEMENTS_AT_ONCE_MAX,
    )
    api.response_writers_at_once[version] = made
    return made


def _checked(api: AnyApi, version: int) -> int:
    assert version in api.versions, (api, version)
    return version
