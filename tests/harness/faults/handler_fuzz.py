"""Requests that look real enough to get deep into a broker, and then are wrong somewhere."""

from random import Random
from typing import Any

from harness.clients.messages import random_message
from harness.clients.produce_raw import batch_of
from harness.clients.raw_socket import request_bytes
from harness.faults.mutation import mutated
from tidelog.wire import primitives
from tidelog.wire.codecs import Codec
from tidelog.wire.header import AnyApi
from tidelog.wire.records import PLAIN, Origin
from tidelog.wire.schema import Array, Row, rows_of

_NAMES = {"name", "topic", "topic_name", "topic_names"}
_PARTITIONS = {"partition", "index", "partition_index", "partitions", "partition_indexes"}
_SMALL = {
    "acks": (-1, -1, 0, 1, 2),
    "replica_id": (-1, -1, -1, 0),
    "session_id": (0, 0, 1),
    "session_epoch": (-1, 0, 1),
    "current_leader_epoch": (-1, -1, 0, 1),
    "last_fetched_epoch": (-1, -1, 0, 5),
    "fetch_offset": (0, 0, 1, 3, -1),
    "max_wait_ms": (0, 0, 1),
    "timeout_ms": (0, 100),
    "timestamp": (-1, -2, -3, -4, -5, 0, 1_500),
    "num_partitions": (-1, 1, 2),
    "replication_factor": (-1, 1),
}


class Fuzz:
    """Makes frames; the topics it is given are those it aims at."""

    def __init__(self, apis: list[tuple[AnyApi, range]], random: Random) -> None:
        self._apis = apis
        self._random = random
        self.topics: list[tuple[str, bytes]] = []
        """Names and ids."""
        self.sessions: list[int] = []
        self._valid: list[bytes] = []

    def frame(self) -> bytes:
        """A whole frame with its size, or something that is none."""
        random = self._random
        if self._valid and random.random() < 0.4:
            body = mutated(random.choice(self._valid), random)
            return len(body).to_bytes(4, "big") + body
        api, versions = random.choice(self._apis)
        version = random.choice(versions)
        message = random_message(api.request, version, random)
        self._aim(message, version)
        whole = request_bytes(api, version, message, random.randrange(2**31))
        if len(self._valid) < 500:
            self._valid.append(whole[4:])
        else:
            self._valid[random.randrange(500)] = whole[4:]
        return mutated(whole, random) if random.random() < 0.05 else whole

    def _aim(self, message: Any, version: int) -> None:
        topic = self._random.choice(self.topics) if self.topics else None
        for row in rows_of(type(message)):
            if version in row.versions and self._random.random() < 0.9:
                self._aim_field(message, row, version, topic)

    def _aim_field(
        self, message: Any, row: Row, version: int, topic: tuple[str, bytes] | None
    ) -> None:
        value = getattr(message, row.name)
        if isinstance(row.type, Array) and not isinstance(row.type.element, primitives.Primitive):
            for element in value or ():
                self._aim(element, version)
        elif isinstance(row.type, type) and value is not None:
            self._aim(value, version)
        else:
            self._set(message, row, self._aimed(row.name, topic))

    @staticmethod
    def _set(message: Any, row: Row, aimed: object | None) -> None:
        if aimed is not None:
            setattr(message, row.name, [aimed] if isinstance(row.type, Array) else aimed)

    def _aimed(self, name: str, topic: tuple[str, bytes] | None) -> object | None:
        """A value that means something for a field of that name; None where any will do."""
        random = self._random
        if name in _SMALL:
            known = self.sessions[-3:] if name == "session_id" else []
            return random.choice((*_SMALL[name], *known))
        if name in _PARTITIONS:
            return random.choice((0, 0, 1))
        if name == "records":
            return self._batch()
        if topic is not None and name in _NAMES:
            return topic[0]
        return topic[1] if topic is not None and name == "topic_id" else None

    def _batch(self) -> memoryview:
        random = self._random
        origin = PLAIN
        if random.random() < 0.5:
            origin = Origin(random.randrange(3), random.randrange(2), random.randrange(4))
        batch = batch_of(b"fuzz", codec=random.choice(tuple(Codec)), origin=origin)
        return memoryview(mutated(bytes(batch), random) if random.random() < 0.5 else batch)
