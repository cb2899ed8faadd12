"""The stage of the named scenarios: a simulated cluster, its clients, and what is on the disks."""

from collections.abc import Callable

from harness.disks.memory_disk import MemoryDisk
from harness.simulation.clients import Clients, Write, shown
from harness.simulation.cluster import SimulatedCluster
from tidelog.kernel.ids import NO_LEADER, BrokerId
from tidelog.wire.replication import Message, decode, encode


def turn_a_byte(disk: MemoryDisk, *, back: int = 1) -> None:
    """Of the first file of partition t-0, so far from its end; on the platter, too."""
    directory = disk.directory().directory("t-0")
    name = next(one for one in directory.names() if one.endswith(".log"))
    directory.content(name)[-back] ^= 1
    directory.syncable(name).sync()


class Scene:
    """One topic `t` of one partition, unless a scenario wants more."""

    def __init__(
        self,
        *replicas: BrokerId,
        min_isr: int = 2,
        partitions: int = 1,
        lag_ms: int = 10_000,
        brokers: int = 3,
        ring_bytes: int = 64 * 1024,
        directories: int = 1,
        **configs: str,
    ) -> None:
        settings = {"replica.lag.time.max.ms": str(lag_ms)}
        self.cluster = SimulatedCluster(1, brokers, settings, ring_bytes, directories)
        self.clients = Clients(self.cluster)
        self.cluster.create(
            "t", *replicas, partitions=partitions, min_insync_replicas=str(min_isr), **configs
        )
        self.said: list[tuple[BrokerId, BrokerId, Message]] = []
        """Every message between brokers, as it arrived."""
        self.lost: Callable[[BrokerId, BrokerId, Message], bool] = lambda _f, _t, _m: False
        """What is so is taken out of the messages it comes in."""
        self.cluster.look_at_message = self._look

    def _look(self, sender: BrokerId, to: BrokerId, parts: list[bytes]) -> bool:
        head, entries = decode(parts)
        kept = [entry for entry in entries if not self.lost(sender, to, entry[0])]
        self.said += [(sender, to, message) for message, _ in kept]
        if len(kept) < len(entries):
            parts[:] = [bytes(part) for part in encode(head, kept)]
        return bool(kept)

    def heard(self, kind: type[Message], sender: BrokerId, to: BrokerId) -> list[Message]:
        """What of this kind one said to the other since this was last asked for anything."""
        found = [one for f, t, one in self.said if (f, t) == (sender, to) and type(one) is kind]
        self.said.clear()
        return found

    # -- logs

    def log(self, broker: BrokerId, partition: int = 0) -> str:
        return shown(self.cluster.replica(broker, "t", partition).log)

    def end(self, broker: BrokerId, partition: int = 0) -> int:
        return int(self.cluster.replica(broker, "t", partition).log.end)

    def content(self, broker: BrokerId) -> bytes:
        """What lies in a log that never rolled."""
        log = self.cluster.replica(broker).log
        found = log.read(0, 1 << 20, log.end, min_one=True)
        return b"" if found is None else bytes(found.file.read(found.position, found.size))

    def high(self, broker: BrokerId, partition: int = 0) -> int:
        return int(self.cluster.replica(broker, "t", partition).high_watermark)

    def epochs(self, broker: BrokerId) -> dict[int, int]:
        """The epoch cache: where each leader epoch began."""
        return dict(self.cluster.replica(broker).log.epochs.entries())

    def sync(self, broker: BrokerId) -> None:
        """What this broker holds survives a power loss."""
        self.cluster.lives[broker].flush()

    def checkpoint(self, broker: BrokerId) -> None:
        """The high watermarks as they are now, in the file."""
        self.cluster.lives[broker].checkpoint()

    # -- what happens

    def start(self, broker: BrokerId) -> None:
        """Until it serves."""
        life = self.cluster.start(broker)
        self.cluster.until(lambda: life.serving)

    def apart(self, one: BrokerId, other: BrokerId) -> None:
        """Nothing passes between these two."""
        self.cluster.network.cut(one, other)

    def together(self, one: BrokerId, other: BrokerId) -> None:
        self.cluster.network.heal_link(one, other, lose=True)

    def wrote(self, broker: BrokerId, count: int = 1, acks: int = -1) -> Write:
        """A batch, answered well."""
        return self.clients.wrote(broker, count, acks)

    def isr(self, partition: int = 0) -> set[int]:
        return set(self.cluster.view("t", partition).isr)

    def until_isr(self, *brokers: BrokerId) -> None:
        """Written down, and known to the leader."""
        self.cluster.until(lambda: self.isr() == set(brokers) and self.leader_knows())

    def leader_knows(self) -> bool:
        view = self.cluster.view()
        if view.leader not in self.cluster.lives:
            return True
        leader = self.cluster.replica(view.leader).leader
        return leader is not None and leader.partition_epoch == view.partition_epoch

    def settle(self) -> None:
        """Long enough for whatever is under way, and for high watermarks to be told."""
        self.cluster.run(50)

    def leader(self) -> BrokerId | None:
        """As it is written down."""
        leader = self.cluster.view().leader
        return None if leader == NO_LEADER else leader

    def the_leader(self) -> BrokerId:
        """There is one, it lives, and it knows."""
        self.cluster.until(lambda: self.leader() in self.cluster.lives and self.leader_knows())
        leader = self.leader()
        assert leader is not None
        return leader
