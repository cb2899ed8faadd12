"""What came to a log since its last flush began, and when that is too much."""

from collections.abc import Callable

from tidelog.kernel.instant import Instant
from tidelog.node.log.flush_policy import OS, FlushRules


class Dirty:
    """Invariant: while a flush is wanted, or the log is in a round, nobody is asked again."""

    __slots__ = ("_asked", "_begun", "_bytes", "_timed", "_want", "in_round", "since")

    def __init__(self, want: Callable[[Instant], None]) -> None:
        """`want` is told when the log is to be flushed."""
        self.in_round = False
        """A flush is under way: the next one waits for it."""
        self._want = want
        self._begun = 0
        """Up to where the last flush went."""
        self.since: Instant | None = None
        """When the first came that it leaves out."""
        self._bytes = 0
        self._asked = self._timed = False

    def grew(self, now: Instant, size: int, end: int, rules: FlushRules) -> None:
        """A batch was appended, up to this end."""
        if self.since is None:
            self.since = now
        self._bytes += size
        if rules is not OS and not self._asked and not self.in_round:
            self.look(now, end, rules)

    def look(self, now: Instant, end: int, rules: FlushRules) -> None:
        """Ask for a flush where the rules want one, now or at a later time."""
        if rules is OS or self.since is None or self._asked or self.in_round:
            return
        if self.is_due(now, end, rules):
            self.ask(now)
        elif not self._timed:
            deadline = rules.deadline(self.since)
            if deadline is not None:
                self._timed = True
                self._want(deadline)

    def ask(self, now: Instant) -> None:
        """Have all of it flushed soon, whatever the rules say."""
        self._asked = True
        self._want(now)

    def forget(self) -> None:
        """The log was deleted: it needs no flush, and nothing here keeps it in memory."""
        self._want = _nobody

    def is_due(self, now: Instant, end: int, rules: FlushRules) -> bool:
        if self.since is None:
            return False
        if rules.is_due(end - self._begun, self._bytes):
            return True
        deadline = rules.deadline(self.since)
        return deadline is not None and now >= deadline

    def begins(self, upto: int) -> None:
        """All that there is by now is about to be flushed."""
        self._begun, self._bytes, self.since = upto, 0, None
        self._asked = self._timed = False

    def missed(self) -> None:
        """A flush is over that was none of the rounds': who was to be in one could not."""
        self._timed = False
        if self._asked:
            self._want(Instant(0))


def _nobody(_when: Instant) -> None:
    """The log is gone."""
