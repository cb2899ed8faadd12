"""How often one kind of event may be logged, whoever causes it: a client can do so without end."""

from typing import Final

LINES_MAX: Final = 10
SPAN_MS: Final = 5_000


class FewLines:
    """So many lines in a span of time; the others are counted.

    Invariant: what `may_say` refused is told by `left_out` once, after the span's end.
    """

    def __init__(self, lines_max: int = LINES_MAX, span_ms: int = SPAN_MS) -> None:
        self._lines_max = lines_max
        self._span_ms = span_ms
        self._ends_ms = 0
        self._said = 0
        self._left_out = 0

    def may_say(self, now_ms: int) -> bool:
        if now_ms >= self._ends_ms:
            self._ends_ms = now_ms + self._span_ms
            self._said = 0
        if self._said == self._lines_max:
            self._left_out += 1
            return False
        self._said += 1
        return True

    def left_out(self, now_ms: int) -> int:
        """How many lines were left out; 0 while more may follow."""
        if now_ms < self._ends_ms:
            return 0
        count, self._left_out = self._left_out, 0
        return count
