"""One drawn life of a name: its topic is written to, deleted and made anew at once, again and
again, while brokers die, lose power and sleep. Whatever comes back meets only the latest topic's
records.
"""

from collections.abc import Callable
from random import Random

from harness.simulation.clients import Clients, content_of
from harness.simulation.cluster import SimulatedCluster
from tidelog.kernel.ids import NO_LEADER, BrokerId
from tidelog.wire.records import iterate_batches

BROKERS = 3
WHOLE_WITHIN_MS = 60_000


class Recreations:
    """What the seed says happens."""

    def __init__(self, seed: int) -> None:
        rng = self.rng = Random(seed)
        settings = {"replica.lag.time.max.ms": "2000"}
        ring_bytes = rng.choice([0, 65_536])
        self.cluster = SimulatedCluster(rng.randrange(1 << 30), BROKERS, settings, ring_bytes)
        self.clients = Clients(self.cluster)
        self.min_in_sync = rng.choice(["1", "2"])
        self.kinds: list[Callable[[BrokerId], None]] = [
            self.cluster.kill,
            self._lose_power,
            self._pause,
            self._stop,
        ]
        self.old: set[int] = set()
        """Checksums of what earlier topics of the name were given."""

    def run(self) -> None:
        self._create()
        for _ in range(self.rng.randint(2, 4)):
            self._write()
            self._befall()
            if self.rng.random() < 0.5:
                self._write()
            self._delete()
            self._create()
            if self.rng.random() < 0.5:
                self._return()
        self._write()
        self._return()
        self.cluster.until(self._is_whole, within_ms=WHOLE_WITHIN_MS)
        self._write(must=True)
        self.cluster.until(self._is_whole, within_ms=WHOLE_WITHIN_MS)
        self.clients.check_all_is_there()
        for broker in self.cluster.disks:
            content = content_of(self.cluster.replica(broker).log)
            found = {header.crc for header, _ in iterate_batches(memoryview(content))}
            assert not found & self.old, (broker, "has records of an earlier topic")

    def _create(self) -> None:
        """Whoever sleeps wakes up: a simulated creation waits for everyone."""
        for life in list(self.cluster.lives.values()):
            if life.paused:
                self.cluster.resume(life.me)
        self.cluster.until(lambda: any(life.serving for life in self.cluster.lives.values()))
        first = next(life.me for life in self.cluster.lives.values() if life.serving)
        others = [one for one in self.cluster.disks if one != first]
        self.cluster.create("t", first, *others, min_insync_replicas=self.min_in_sync)

    def _delete(self) -> None:
        self.cluster.until(lambda: all(one.is_over for one in self.clients.writes))
        self.old |= {one.crc for one in self.clients.writes}
        self.clients.writes.clear()
        self.cluster.delete("t")
        self.cluster.witness.truths.clear()

    def _write(self, *, must: bool = False) -> None:
        """As many as it takes that a late follower has more, or less, than the next topic."""
        view = self.cluster.view()
        for _ in range(self.rng.randint(1, 12)):
            leader = self.cluster.view().leader
            if leader not in self.cluster.lives:
                continue
            write = self.clients.write(leader, self.rng.randint(1, 3), timeout_ms=500)
            if self.rng.random() < 0.7:
                self.cluster.run(self.rng.uniform(0, 20))
        if must:
            assert view.leader != NO_LEADER
            self.cluster.until(lambda: write.is_over)
            assert write.is_acked, write
        if self.rng.random() < 0.5:
            for life in self.cluster.lives.values():
                if self.rng.random() < 0.5:
                    life.turn(life.flush)

    def _befall(self) -> None:
        """Most of the brokers, but the first: who asks for the topics must be there."""
        first, *others = sorted(self.cluster.lives)
        for broker in self.rng.sample(others, self.rng.randint(1, len(others)) if others else 0):
            self.rng.choice(self.kinds)(broker)
            self.cluster.run(self.rng.choice([1, 20, 1_500]))
        assert first in self.cluster.lives

    def _lose_power(self, broker: BrokerId) -> None:
        self.cluster.lose_power(broker, Random(self.rng.random()))

    def _pause(self, broker: BrokerId) -> None:
        self.cluster.pause(broker)

    def _stop(self, broker: BrokerId) -> None:
        self.cluster.stop(broker)

    def _return(self) -> None:
        for broker in self.cluster.disks:
            life = self.cluster.lives.get(broker)
            if life is None:
                self.cluster.start(broker)
            elif life.paused:
                self.cluster.resume(broker)
            self.cluster.run(self.rng.choice([0, 5, 200]))

    def _is_whole(self) -> bool:
        """The leader must have heard of it, or it still refuses writes."""
        view = self.cluster.view()
        if set(view.isr) != set(view.replicas) or view.leader not in self.cluster.lives:
            return False
        leader = self.cluster.replica(view.leader).leader
        if leader is None or set(leader.in_sync) != set(view.replicas):
            return False
        replicas = [self.cluster.replica(one) for one in view.replicas]
        return len({(one.log.end, one.high_watermark) for one in replicas}) == 1
