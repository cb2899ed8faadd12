"""Another codec agrees byte for byte: ours writes, kio reads and writes again, ours reads that."""

from io import BytesIO
from random import Random
from typing import Any

import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from harness.clients.messages import APIS, DIRECTIONS, api_id, message_class, random_message
from tidelog.wire.compile import Piece, reader, writer
from tidelog.wire.frame import joined
from tidelog.wire.header import AnyApi

MESSAGES_PER_VERSION = 12

Theirs = Any
"""A schema or an entity of kio: a class of its own for each version."""


def kio_schema(api: AnyApi, version: int, direction: str) -> Theirs:
    load = load_request_schema if direction == "request" else load_response_schema
    return load(api.key, version)


def written_by_us(api: AnyApi, version: int, message: object) -> bytes:
    pieces: list[Piece] = []
    write = writer(type(message), version, flexible=api.is_flexible(version))
    pieces.append(write(message, bytearray(), pieces))
    return joined(pieces)


def written_by_kio(schema: Theirs, entity: Theirs) -> bytes:
    out = BytesIO()
    entity_writer(schema)(out, entity)
    return out.getvalue()


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("api", APIS, ids=api_id)
def test_kio_reads_our_bytes_and_writes_the_same(api: AnyApi, direction: str) -> None:
    random = Random(f"{api.key}{direction}")
    cls = message_class(api, direction)
    for version in api.versions:
        schema = kio_schema(api, version, direction)
        read = entity_reader(schema)
        messages = [
            cls(),
            *(random_message(cls, version, random) for _ in range(MESSAGES_PER_VERSION)),
        ]
        for message in messages:
            ours = written_by_us(api, version, message)
            theirs, size = read(ours, 0)
            assert size == len(ours), (api, version)
            back = written_by_kio(schema, theirs)
            assert back == ours, (api, version, message)
            again, end = reader(cls, version, flexible=api.is_flexible(version))(
                memoryview(back), 0
            )
            assert (again, end) == (message, len(back)), (api, version)
