"""What one attacker says: bursts of frames, most of them whole, the last one often broken."""

from collections.abc import Sequence
from random import Random
from typing import Any, Final

from harness.faults.fuzz_values import Aims, Learned, Values
from harness.faults.mutation import mutated
from tidelog.wire.errors import WireError
from tidelog.wire.frame import decode_known, decode_response, encode_request, joined
from tidelog.wire.header import AnyApi

_KEPT: Final = 400
_AGAIN: Final = 0.7
_FETCH: Final = 1
_JOIN_GROUP: Final = 11
_CREATE_TOPICS: Final = 19
_INIT_PRODUCER_ID: Final = 22
_HEARTBEAT: Final = 68
_OFTEN: Final = {0: 6, 1: 3, 8: 2, 11: 2, 14: 2, 22: 2, 24: 2, 26: 2, 28: 2, 68: 2}
"""How often these keys are drawn, compared with others: they lead to the most code."""
_LEARNED_FROM: Final = frozenset(
    {_FETCH, _JOIN_GROUP, _CREATE_TOPICS, _INIT_PRODUCER_ID, _HEARTBEAT}
)
_STRANGERS: Final = (
    b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
    bytes.fromhex("160301020001000140030366"),
    b"\xff" * 12,
    b"\x7f\xff\xff\xff" + b"\0" * 40,
    b"\x00\x00\x00\x00",
    b"\x00\x00\x00\x07" + b"\0" * 7,
    b"\x80\x00\x00\x00",
    b"\x00\x00\x40\x00" + b"\x00\x00\x00\x03",
)
"""What other programs say to a port, and sizes that lie."""


class Traffic:
    """Frames of one seed."""

    def __init__(self, apis: Sequence[tuple[AnyApi, range]], aims: Aims, seed: str) -> None:
        self.random = Random(seed)
        self.learned = Learned()
        self._apis = [one for one in apis for _ in range(_OFTEN.get(one[0].key, 1))]
        self._by_key = {api.key: api for api, _ in apis}
        self._values = Values(aims, self.random, self.learned)
        self._stocks: list[list[bytes]] = [[] for _ in aims.groups]
        """For each broker."""
        self._stock = self._stocks[0]
        self._correlation = 0

    def burst(self, broker: int, most: int) -> list[bytes]:
        """Whole frames with their sizes; perhaps one at the end that is none."""
        random = self.random
        self._stock, self._values.broker = self._stocks[broker], broker
        frames = [self._frame() for _ in range(random.randrange(1, most + 1))]
        if random.random() < 0.35:
            frames[-1] = self._broken()
        return frames

    def learn(self, frame: memoryview, asked: bytes) -> None:
        """From the answer to a request."""
        api, version = self._by_key.get(int.from_bytes(asked[4:6], "big")), asked[7]
        if api is None or api.key not in _LEARNED_FROM or version not in api.versions:
            return
        try:
            _, answer = decode_response(api, version, frame)
            _, request = decode_known(asked[4:], self._by_key)
        except WireError:
            return  # the answer to another version, where ApiVersions did not know this one
        self._learn(api.key, request, answer)

    def _learn(self, key: int, request: Any, answer: Any) -> None:
        learned = self.learned
        if key == _CREATE_TOPICS:
            for row in answer.topics:
                learned.note(learned.created, row.topic_id)
        elif key == _INIT_PRODUCER_ID and not answer.error_code:
            producer = (answer.producer_id, answer.producer_epoch)
            learned.note(learned.producers, producer)
            learned.of_transaction[request.transactional_id or ""] = producer
        elif key == _FETCH and answer.session_id:
            learned.note(learned.sessions, answer.session_id)
        elif key in {_JOIN_GROUP, _HEARTBEAT} and answer.member_id:
            generation = answer.generation_id if key == _JOIN_GROUP else answer.member_epoch
            learned.note(learned.members, answer.member_id)
            learned.of_group[request.group_id] = (answer.member_id, generation)

    def fresh(self) -> bytes:
        """A whole frame that was not said before."""
        api, versions = self.random.choice(self._apis)
        version = self.random.choice(versions)
        self._correlation += 1
        message = self._values.message(api.request, version)
        client_id = self._values.client_id()
        return joined(encode_request(api, version, self._correlation, client_id, message))

    def _frame(self) -> bytes:
        """One out of a stock that is renewed little by little: to make one takes long."""
        random = self.random
        if len(self._stock) == _KEPT and random.random() < _AGAIN:
            return random.choice(self._stock)
        frame = self.fresh()
        if len(self._stock) < _KEPT:
            self._stock.append(frame)
        else:
            self._stock[random.randrange(_KEPT)] = frame
        return frame

    def _broken(self) -> bytes:
        random = self.random
        drawn = random.random()
        if drawn < 0.08:
            return random.choice(_STRANGERS)
        frame = random.choice(self._stock)
        # Draws of its own: how many it takes depends on the frame, and so on what brokers answered.
        own = Random(random.getrandbits(64))
        if drawn < 0.2:
            return mutated(frame, own)  # its size, too
        body = mutated(frame[4:], own)
        return len(body).to_bytes(4, "big") + body
