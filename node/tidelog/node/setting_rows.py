"""The most frequent kind of a setting's row: a whole number within bounds."""

from typing import Final

from tidelog.kernel.config import Setting, integer

LONG_MAX: Final = 2**63 - 1
INT_MAX: Final = 2**31 - 1


def whole(
    name: str, default: int, low: int, high: int, doc: str, *, effect: bool = True
) -> Setting:
    """A whole number, of Kafka's type int where its bounds are."""
    kind = "int" if high <= INT_MAX else "long"
    rule = f"must be a whole number from {low} to {high}"
    return Setting(name, integer(low, high), str(default), rule, doc, kind, effect)
