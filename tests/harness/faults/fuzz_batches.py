"""Batches of records for a fuzzer: good ones, and such with a wrong header and a right checksum.

A checksum that fits is what lets a batch reach the append path, the cleaner and time lookups.
"""

import struct
from collections.abc import Sequence
from random import Random
from typing import Final

from harness.faults.mutation import mutated
from tidelog.wire.codecs import Codec
from tidelog.wire.records import HEADER, HEADER_BYTES, Origin, Record, build_batch, seal

KEPT: Final = 300
_FIELDS: Final = (
    (">q", 0),  # base offset
    (">i", 8),  # length
    (">i", 12),  # leader epoch
    (">b", 16),  # magic
    (">h", 21),  # attributes
    (">i", 23),  # delta of the last offset
    (">q", 27),  # first timestamp
    (">q", 35),  # largest timestamp
    (">q", 43),  # producer id
    (">h", 51),  # producer epoch
    (">i", 53),  # first sequence
    (">i", 57),  # count of records
)
_EXTREMES: Final = {
    ">b": (0, 1, 3, -1, 127, -128),
    ">h": (0, 1, 8, 16, 32, 48, 7, -1, 32_767, -32_768),
    ">i": (0, 1, 2, -1, 1_000_000, 2**31 - 1, -(2**31)),
    ">q": (0, 1, -1, -2, 10**15, 2**31, 2**63 - 1, -(2**63)),
}
_PRODUCER: Final = struct.Struct(">qhi")
_PRODUCER_AT: Final = 43

assert HEADER.size == HEADER_BYTES == 61


class Batches:
    """A stock that is renewed little by little: to make a batch takes longer than to send it."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._stock: list[bytes] = []

    def draw(self, producers: Sequence[tuple[int, int]]) -> memoryview:
        random = self._random
        drawn, place, sequence = random.random(), random.random(), random.choice((0, 0, 1, 2, 5))
        if len(self._stock) < KEPT or drawn < 0.05:
            self._renew()
        batch = bytearray(random.choice(self._stock))
        if drawn > 0.7 and producers and len(batch) >= HEADER_BYTES:
            # In the name of a producer that the cluster knows.
            known = producers[int(place * len(producers))]
            _PRODUCER.pack_into(batch, _PRODUCER_AT, *known, sequence)
            seal(batch)
        return memoryview(batch)

    def _renew(self) -> None:
        made = self._make()
        if len(self._stock) < KEPT:
            self._stock.append(made)
        else:
            self._stock[self._random.randrange(KEPT)] = made

    def _make(self) -> bytes:
        random = self._random
        good = self._good()
        drawn = random.random()
        if drawn < 0.45:
            return bytes(good)
        if drawn < 0.75:
            return bytes(self._misled(good))
        if drawn < 0.85:
            return self._noisy(good)
        if drawn < 0.93:
            return mutated(bytes(good), random)
        return bytes(good) + bytes(self._good())

    def _good(self) -> bytearray:
        random = self._random
        base = random.choice((1_000, 0, -1, 1_700_000_000_000, 2**40))
        records = [
            Record(
                offset=index,
                timestamp=base + random.choice((0, 0, index, -index)),
                key=random.choice((None, b"", b"k%d" % random.randrange(5), b"\x00\x01" * 20)),
                value=random.choice((None, b"", b"v" * random.choice((1, 30, 900)))),
                headers=(("h", None), ("", b"x")) if random.random() < 0.1 else (),
            )
            for index in range(random.choice((1, 1, 2, 5, 40)))
        ]
        origin = Origin(flags=random.choice((0, 0, 0, 0, 0, 0, 0, 0, 16, 32, 48)))
        return build_batch(records, codec=random.choice(tuple(Codec)), origin=origin)

    def _misled(self, good: bytearray) -> bytearray:
        """One to three fields of the header say something else; the checksum is right again."""
        random = self._random
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            form, at = random.choice(_FIELDS)
            struct.pack_into(form, good, at, random.choice(_EXTREMES[form]))
        seal(good)
        return good

    def _noisy(self, good: bytearray) -> bytes:
        """A right header and checksum over records that are none, or are wrong somewhere."""
        random = self._random
        records = bytes(good[HEADER_BYTES:])
        wrong = mutated(records, random) if random.random() < 0.7 else random.randbytes(200)
        batch = bytearray(good[:HEADER_BYTES]) + wrong
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        seal(batch)
        return bytes(batch)
