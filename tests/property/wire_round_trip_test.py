"""What is written is what is read: every message of every version, with random values."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.clients.messages import (
    APIS,
    DIRECTIONS,
    VERSIONS,
    api_id,
    message_class,
    random_message,
)
from tidelog.wire import frame
from tidelog.wire.header import AnyApi, decode_request_header
from tidelog.wire.varints import varint, varint_bytes

MESSAGES_PER_VERSION = 25


@pytest.mark.parametrize("api", APIS, ids=api_id)
def test_a_request_is_read_as_it_was_written(api: AnyApi) -> None:
    random = Random(api.key)
    for version in api.versions:
        for number in range(MESSAGES_PER_VERSION):
            message = random_message(api.request, version, random)
            client_id = random.choice((None, "", "client"))
            written = frame.joined(frame.encode_request(api, version, number, client_id, message))
            assert frame.decode_size(written[:4]) == len(written) - 4
            view = memoryview(written)[4:]
            header = decode_request_header(view, {api.key: api})
            assert header[:4] == (api.key, version, number, client_id)
            assert frame.decode_request(api, version, view, header.body_position) == message


@pytest.mark.parametrize("api", APIS, ids=api_id)
def test_a_response_is_read_as_it_was_written(api: AnyApi) -> None:
    random = Random(api.key)
    for version in api.versions:
        for number in range(MESSAGES_PER_VERSION):
            message = random_message(api.response, version, random)
            written = frame.joined(frame.encode_response(api, version, number, message))
            assert frame.decode_size(written[:4]) == len(written) - 4
            read = frame.decode_response(api, version, memoryview(written)[4:])
            assert read == (number, message)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_message_of_defaults_is_read_as_it_was_written(direction: str) -> None:
    for api, version in VERSIONS:
        message = message_class(api, direction)()
        if direction == "request":
            written = frame.joined(frame.encode_request(api, version, 1, None, message))
            position = 11 if api.is_flexible(version) else 10
            read = frame.decode_request(api, version, memoryview(written)[4:], position)
        else:
            written = frame.joined(frame.encode_response(api, version, 1, message))
            _, read = frame.decode_response(api, version, memoryview(written)[4:])
        assert read == message, (api, version)


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_varint_is_read_as_it_was_written(value: int) -> None:
    written = varint_bytes(value)
    assert varint(written, 0) == (value, len(written))
