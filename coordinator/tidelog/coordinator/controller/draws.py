"""What the controller draws: where a topic's first replica goes, and new ids."""

from typing import Protocol


class Draws(Protocol):
    """A `random.Random`, made and seeded outside: the same draws decide the same."""

    def randrange(self, _stop: int, /) -> int: ...

    def getrandbits(self, _bits: int, /) -> int: ...
