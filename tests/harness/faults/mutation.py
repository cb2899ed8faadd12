"""Valid bytes made wrong in the ways that codecs fear: lengths, cuts, and noise."""

from random import Random

_EXTREMES = (
    b"\x00",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80",
)


def mutated(valid: bytes, random: Random) -> bytes:
    """One to three changes at random places; one time in twenty pure noise instead."""
    if random.random() < 0.05:
        return random.randbytes(random.randrange(64))
    data = bytearray(valid)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        _mutate(data, random)
    return bytes(data)


def _mutate(data: bytearray, random: Random) -> None:
    at = random.randrange(len(data) + 1)
    match random.randrange(6):
        case 0:
            data[at : at + 1] = bytes([random.randrange(256)])
        case 1:
            extreme = random.choice(_EXTREMES)
            data[at : at + len(extreme)] = extreme
        case 2:
            del data[at:]
        case 3:
            data[at:at] = random.randbytes(random.randrange(1, 9))
        case 4:
            del data[at : at + random.randrange(1, 9)]
        case _:
            data[at:at] = data[at : at + random.randrange(1, 40)]
