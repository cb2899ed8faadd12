"""Clients whose life is a generator: it yields wishes, and goes on with what comes of each."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any, Protocol

Wish = tuple[Any, ...]
Life = Generator[Wish, Any, Any]


class _World(Protocol):
    def until(self, done: Callable[[], bool], /, *, within_ms: float) -> object: ...


class Living(ABC):
    """One of them, in a world with a clock of its own."""

    is_over = True
    _life: Life | None = None
    _turn = 0

    def live(self, life: Life) -> None:
        self._life, self.is_over = life, False
        self._go_on(None)

    def finish(self, life: Life, *, within_ms: float = 30_000) -> None:
        self.live(life)
        self._world().until(lambda: self.is_over, within_ms=within_ms)

    def dies(self) -> None:
        """What it asked stays asked."""
        self._life, self.is_over = None, True
        self._turn += 1

    def _go_on(self, came: Any) -> None:
        if self._life is None:
            return
        self._turn += 1
        turn = self._turn
        try:
            wish = self._life.send(came)
        except StopIteration:
            self._life, self.is_over = None, True
            return

        def come(answer: Any) -> None:
            # Of a wish that was granted twice, or after its death, it hears nothing more.
            if self._turn == turn:
                self._go_on(answer)

        self._grant(wish, come)

    @abstractmethod
    def _world(self) -> _World: ...

    @abstractmethod
    def _grant(self, wish: Wish, come: Callable[[Any], None]) -> None:
        """Have it come, at some time."""
