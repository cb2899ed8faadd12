"""Signed varints of records: zigzag, then seven bits a byte, lowest first."""

from tidelog.wire.errors import WireError


def varint_rest(data: bytes, position: int, first: int) -> tuple[int, int]:
    """A zigzag varint of at most 64 bits whose first byte is read and says that more follow."""
    byte = data[position]
    value = first & 127 | (byte & 127) << 7
    position += 1
    if byte < 128:
        return (value >> 1) ^ -(value & 1), position
    for shift in range(14, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), position
    raise WireError(f"varint of more than 64 bits ends at byte {position}")


def varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint, and the position behind it.

    >>> varint(bytes([0xAC, 0x02]), 0)
    (150, 2)
    """
    first = data[position]
    if first < 128:
        return (first >> 1) ^ -(first & 1), position + 1
    return varint_rest(data, position + 1, first)


def varint_bytes(value: int) -> bytes:
    """The encoding of `varint`.

    >>> varint_bytes(150)
    b'\\xac\\x02'
    """
    assert -(2**63) <= value < 2**63, value
    left = (value << 1) ^ (value >> 63)
    out = bytearray()
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    out.append(left)
    return bytes(out)


SMALL = tuple(varint_bytes(value) for value in range(1024))
"""The encodings of the small numbers of records: lengths and deltas."""
