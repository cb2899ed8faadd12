"""The headers of requests and responses, and their one exception.

A request has header v1, in flexible versions v2: v1 with a section of tagged fields; its client id
keeps the old form in both. A response has header v0, in flexible versions v1: v0 with tagged
fields. *ApiVersions* answers with v0 always: a client reads it before it knows what we speak.
"""

from collections.abc import Mapping
from struct import Struct
from typing import Any, NamedTuple

from tidelog.wire.errors import WireError
from tidelog.wire.primitives import bad_length, skip_tags
from tidelog.wire.schema import ApiSchema

AnyApi = ApiSchema[Any, Any]

API_VERSIONS_KEY = 18
HEAD_BYTES = 8
"""Key, version and correlation id: all that can be read of a version that nobody knows."""

_HEAD = Struct(">hhi")
_HEAD_AND_LENGTH = Struct(">hhih")
_SIZED_HEAD_AND_LENGTH = Struct(">ihhih")
_CORRELATION = Struct(">i")


class RequestHeader(NamedTuple):
    """What stands before a request's body."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_position: int
    """Where the body starts in the frame; `HEAD_BYTES` where key or version are not known."""


def decode_request_header(frame: memoryview, known: Mapping[int, AnyApi]) -> RequestHeader:
    """Read the header of a frame without its size; WireError where it is none.

    Of a key or version that is not `known` only the first 8 bytes are read, for the rest of the
    header may have any form: the caller refuses it (`is_known`).
    """
    size = len(frame)
    if size < HEAD_BYTES:
        raise WireError(f"request of {size} bytes has no header")
    length = -1
    if size < _HEAD_AND_LENGTH.size:
        key, version, correlation_id = _HEAD.unpack_from(frame)
    else:
        key, version, correlation_id, length = _HEAD_AND_LENGTH.unpack_from(frame)
    api = known.get(key)
    if api is None or version not in api.versions:
        return RequestHeader(key, version, correlation_id, None, HEAD_BYTES)
    position = _HEAD_AND_LENGTH.size
    if size < position:
        raise WireError(f"request of {size} bytes has no client id")
    client_id = None
    if length >= 0:
        position += length
        if position > size:
            bad_length(length, 10)
        client_id = _text(frame[10:position])
    elif length != -1:
        bad_length(length, 10)
    if api.is_flexible(version):
        position = _behind_tags(frame, position)
    return RequestHeader(key, version, correlation_id, client_id, position)


def request_head(
    api: AnyApi, version: int, correlation_id: int, client_id: str | None
) -> bytearray:
    """The head of a request frame: room for the size, then the header."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    if length > 32_767:
        raise WireError(f"client id of {length} bytes")
    head = bytearray(_SIZED_HEAD_AND_LENGTH.pack(0, api.key, version, correlation_id, length))
    head += name
    if api.is_flexible(version):
        head.append(0)
    return head


def has_response_tags(api: AnyApi, version: int) -> bool:
    """Whether a response's header ends with tagged fields."""
    return version >= api.flexible_from and api.key != API_VERSIONS_KEY


def decode_response_header(api: AnyApi, version: int, frame: memoryview) -> tuple[int, int]:
    """The correlation id, and where the body starts in a frame without its size."""
    if len(frame) < _CORRELATION.size:
        raise WireError(f"response of {len(frame)} bytes has no header")
    (correlation_id,) = _CORRELATION.unpack_from(frame)
    position = _CORRELATION.size
    if has_response_tags(api, version):
        position = _behind_tags(frame, position)
    return correlation_id, position


def _behind_tags(frame: memoryview, position: int) -> int:
    try:
        return skip_tags(frame, position + 1, frame[position], len(frame))
    except IndexError:
        raise WireError("header cut within its tagged fields") from None


def _text(name: memoryview) -> str:
    try:
        return str(name, "utf-8")
    except UnicodeDecodeError:
        raise WireError("client id is not UTF-8") from None
