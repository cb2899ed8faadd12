"""Which partition a key belongs to, by the hash that Kafka's own producer uses."""

import struct

SEED = 0x9747B28C
FACTOR = 0x5BD1E995
ROTATE = 24
MASK = 0xFFFFFFFF


def partition_of(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bit, little-endian words, with the seed all Kafka clients share."""
    value = SEED ^ len(data)
    whole = len(data) // 4 * 4
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        mixed = word * FACTOR & MASK
        mixed = (mixed ^ mixed >> ROTATE) * FACTOR & MASK
        value = (value * FACTOR & MASK) ^ mixed
    if whole < len(data):
        value = (value ^ int.from_bytes(data[whole:], "little")) * FACTOR & MASK
    value = (value ^ value >> 13) * FACTOR & MASK
    return value ^ value >> 15
