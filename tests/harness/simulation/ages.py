"""How long each replica has had each batch, and whether a power loss took young ones only."""

from typing import Final

from harness.simulation.broker import Life
from harness.simulation.cluster import SimulatedCluster
from harness.simulation.truth import Copy, Piece
from tidelog.kernel.ids import BrokerId, Incarnation, TopicPartition
from tidelog.kernel.instant import Instant, ms

_FLUSHED: Final = Instant(-(1 << 62))


class Ages:
    """Of all replicas of a cluster whose policy flushes what is so old.

    The age counts from when a replica took the batch, not from when somebody wrote it: a replica
    that comes back takes all that it missed anew. What a killed process had not flushed counts
    from its next start.
    """

    def __init__(self, cluster: SimulatedCluster, most_ms: float) -> None:
        self.lost_young: set[Piece] = set()
        """What some replica lost with its power, before the policy would have flushed it."""
        self._cluster = cluster
        self._most = ms(most_ms)
        self._lives: dict[BrokerId, Incarnation] = {}
        self._taken: dict[tuple[BrokerId, TopicPartition], list[tuple[Piece, Instant]]] = {}
        """In the order of each log."""
        cluster.look_at_turn = self._look

    def _look(self, life: Life) -> None:
        is_new = self._lives.get(life.me) != life.incarnation
        self._lives[life.me] = life.incarnation
        for key, truth in self._cluster.witness.truths.items():
            copy = truth.copies.get(life.me)
            if copy is None or copy.life != life.incarnation:
                continue
            taken = self._taken.setdefault((life.me, key), [])
            if is_new:
                self._begins(taken, copy, life)
            self._follow(taken, copy)
            if life.is_closed:
                taken[:] = [(piece, _FLUSHED) for piece, _ in taken]

    def _begins(self, taken: list[tuple[Piece, Instant]], copy: Copy, life: Life) -> None:
        """What the last life of this broker had, and what this one found of it."""
        now, died = self._cluster.now, self._cluster.ended_at.get(life.me, Instant(0))
        kept = []
        for piece, since in taken:
            is_young = died - since <= self._most
            if copy.pieces.get(piece.base) == piece:
                kept.append((piece, now if is_young else since))
            else:  # a whole segment before others, too
                assert is_young, ("flushed by its age, and lost", life.me, piece, died - since)
                self.lost_young.add(piece)
        taken[:] = kept

    def _follow(self, taken: list[tuple[Piece, Instant]], copy: Copy) -> None:
        while taken and copy.pieces.get(taken[-1][0].base) != taken[-1][0]:
            taken.pop()
        last, new = taken[-1][0] if taken else None, []
        for piece in reversed(copy.pieces.values()):
            if piece == last:
                break
            new.append((piece, self._cluster.now))
        taken += reversed(new)
