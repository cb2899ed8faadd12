"""How long to wait before trying again: pure, so that whoever waits owns the clock."""

from dataclasses import dataclass

from tidelog.kernel.instant import ms

DOUBLINGS_MAX = 30


@dataclass(frozen=True, slots=True)
class Backoff:
    """Doubles from the first wait to the longest; no jitter, one machine has no herd."""

    first_ns: int = ms(50)
    longest_ns: int = ms(1_000)

    def __post_init__(self) -> None:
        assert 0 < self.first_ns <= self.longest_ns

    def wait(self, failures: int) -> int:
        """The wait after so many failures in a row, at least one.

        >>> [Backoff(first_ns=100, longest_ns=500).wait(n) for n in (1, 2, 3, 4)]
        [100, 200, 400, 500]
        """
        assert failures >= 1, failures
        return min(self.first_ns << min(failures - 1, DOUBLINGS_MAX), self.longest_ns)


BACKOFF = Backoff()
