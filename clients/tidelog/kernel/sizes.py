"""Sizes as people write them: `100`, `64KiB`, `2 MB`."""

import re
from collections.abc import Mapping
from typing import Final

UNITS: Final[Mapping[str, int]] = {
    "": 1,
    "B": 1,
    "k": 10**3,
    "kB": 10**3,
    "KB": 10**3,
    "M": 10**6,
    "MB": 10**6,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}
"""What may stand behind the number, with a space between or without."""
_SHAPE: Final = re.compile(rf"([0-9]{{1,18}}) ?({'|'.join(UNITS)})")


def byte_count(text: str) -> int | None:
    """How many bytes that are, 1 or more; None where it is no size.

    >>> byte_count("100"), byte_count("64KiB"), byte_count("2 MB")
    (100, 65536, 2000000)
    >>> byte_count("0"), byte_count("-1"), byte_count("2mb")
    (None, None, None)
    """
    found = _SHAPE.fullmatch(text)
    if found is None or not int(found[1]):
        return None
    return int(found[1]) * UNITS[found[2]]
