"""How often clients may begin a producer: each of a flood's ids costs a record of the coordinator.

Bounds are far above what programs do: they ask once for each producer. Who goes beyond them has to
wait, and is refused where that would take long. No I/O.
"""

from typing import Final, NamedTuple

from tidelog.kernel import limits
from tidelog.kernel.instant import Instant, ms


class _Rate(NamedTuple):
    interval: int
    """Between two requests, in nanoseconds."""
    ahead: int
    """So far may the time of the next one lie ahead: that lets a burst through."""


def _rate(per_s: int, burst: int) -> _Rate:
    interval = ms(1_000) // per_s
    return _Rate(interval, interval * (burst - 1))


_ALL: Final = _rate(limits.PRODUCERS_BEGUN_PER_S, limits.PRODUCERS_BEGUN_BURST)
_CLIENT: Final = _rate(
    limits.PRODUCERS_BEGUN_PER_S_OF_CLIENT, limits.PRODUCERS_BEGUN_BURST_OF_CLIENT
)
_WAIT_MAX: Final = ms(limits.PRODUCERS_BEGUN_WAIT_MS)


class ProducerRate:
    """Invariant: of each client it is known when its next request would be due at a steady rate;
    of one whose time has come nothing need be known.
    """

    def __init__(self) -> None:
        self._of_all = 0
        self._of_clients: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._of_clients)

    def begin(self, now: Instant, client: str) -> int:
        """How many nanoseconds a client's request must wait; it is refused, and does not count,
        where that `is_too_long`.
        """
        due = max(now, self._of_clients.get(client, 0))
        of_all = max(now, self._of_all)
        wait = max(0, due - _CLIENT.ahead - now, of_all - _ALL.ahead - now)
        if not is_too_long(wait):
            self._of_all = of_all + _ALL.interval
            self._of_clients.pop(client, None)  # who asked last stands last
            self._of_clients[client] = due + _CLIENT.interval
            self._forget(now)
        return wait

    def _forget(self, now: Instant) -> None:
        """Of those who asked longest ago: one more than comes in is looked at, so it never grows
        beyond what is needed."""
        for client in [one for one, _ in zip(self._of_clients, range(2), strict=False)]:
            if self._of_clients[client] <= now or len(self) > limits.CONNECTIONS_MAX:
                del self._of_clients[client]


def is_too_long(wait: int) -> bool:
    return wait > _WAIT_MAX
