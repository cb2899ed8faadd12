"""Pipes between processes that exist only in memory: in order, slow, cut, full and forgetful.

One pipe leads from each process to each other one. Within a pipe nothing overtakes; between pipes
everything may. What a pipe holds while its link is cut or its receiver is away comes late, and some
of the oldest of it never: that is what a socket does that connects anew.
"""

from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import Any

from harness.simulation.clock import Timeline
from tidelog.kernel.instant import Instant, ms

CAPACITY = 1_000
DELAY_MS = (0.05, 0.4)
HICCUP_MS = (2.0, 40.0)
HICCUPS = 0.01


class Pipe:
    """From one process to another. Invariant: messages arrive in the order they were pushed."""

    def __init__(self, network: "Network", sender: int, to: int) -> None:
        self.is_cut = False
        self.slower_ms = 0.0
        self.held: deque[Any] = deque()
        """Pushed and not yet taken by the receiver."""
        self._network = network
        self._sender = sender
        self._to = to
        self._coming = 0
        self._last = network.timeline.now

    def push(self, message: Any) -> bool:
        """False where the pipe is full: the message is gone."""
        if len(self.held) >= self._network.capacity:
            return False
        self.held.append(message)
        self._come()
        return True

    def lose_oldest(self, count: int) -> None:
        """So many of what is held were with somebody who is no more."""
        for _ in range(min(count, len(self.held))):
            self.held.popleft()

    def lose_newest(self, count: int) -> None:
        for _ in range(min(count, len(self.held))):
            self.held.pop()

    def reopened(self) -> None:
        """What is held may come now."""
        while self._coming < len(self.held):
            self._come()

    def _come(self) -> None:
        network = self._network
        arrival = network.timeline.now + ms(network.draw_delay() + self.slower_ms)
        self._last = Instant(max(self._last, arrival))
        self._coming += 1
        network.timeline.at(self._last, self._arrive)

    def _arrive(self) -> None:
        self._coming -= 1
        if self.held and not self.is_cut and self._network.listens(self._to):
            self._network.deliver(self._sender, self._to, self.held.popleft())


class Network:
    """All pipes there are. Who listens, and what it does with a message, is the world's."""

    def __init__(
        self,
        timeline: Timeline,
        rng: Random,
        deliver: Callable[[int, int, Any], None],
        listens: Callable[[int], bool],
    ) -> None:
        self.timeline = timeline
        self.deliver = deliver
        self.listens = listens
        self.capacity = CAPACITY
        self._rng = rng
        self._pipes: dict[tuple[int, int], Pipe] = {}

    def pipe(self, sender: int, to: int) -> Pipe:
        found = self._pipes.get((sender, to))
        if found is None:
            found = self._pipes[sender, to] = Pipe(self, sender, to)
        return found

    def push(self, sender: int, to: int, message: Any) -> bool:
        return self.pipe(sender, to).push(message)

    def draw_delay(self) -> float:
        rng = self._rng
        return rng.uniform(*(HICCUP_MS if rng.random() < HICCUPS else DELAY_MS))

    # -- what goes wrong

    def cut(self, one: int, other: int) -> None:
        """Both ways."""
        self.cut_from(one, other)
        self.cut_from(other, one)

    def cut_from(self, sender: int, to: int) -> None:
        """Nothing of this sender arrives there; the other direction stays."""
        self.pipe(sender, to).is_cut = True

    def heal(self, *, lose: bool | None = None) -> None:
        """All links are whole. Of what was held some is lost: none, or by draw where `lose` is not
        given."""
        for pipe in self._pipes.values():
            if pipe.is_cut:
                self._mend(pipe, lose=lose)
            pipe.slower_ms = 0.0

    def heal_link(self, one: int, other: int, *, lose: bool | None = None) -> None:
        for pipe in (self.pipe(one, other), self.pipe(other, one)):
            self._mend(pipe, lose=lose)

    def _mend(self, pipe: Pipe, *, lose: bool | None) -> None:
        pipe.is_cut = False
        if lose or (lose is None and self._rng.random() < 0.5):
            pipe.lose_oldest(self._rng.randint(0, len(pipe.held)))
        pipe.reopened()

    def slow(self, sender: int, to: int, milliseconds: float) -> None:
        self.pipe(sender, to).slower_ms = milliseconds

    def died(self, process: int) -> None:
        """What it had taken in is gone; what its peers still hold waits for its next life."""
        for (sender, to), pipe in self._pipes.items():
            if to == process:
                pipe.lose_oldest(self._rng.randint(0, len(pipe.held)))
            elif sender == process:
                pipe.lose_newest(self._rng.randint(0, len(pipe.held)))

    def awake(self, process: int) -> None:
        """It listens (again): what was held for it comes, some of it from long ago."""
        for pipe in self._to(process):
            if not pipe.is_cut:
                pipe.reopened()

    def _to(self, process: int) -> Iterable[Pipe]:
        return [pipe for (_, to), pipe in self._pipes.items() if to == process]
