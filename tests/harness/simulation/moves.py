"""The stage of scenarios in which replicas move: one partition, and four brokers."""

from harness.simulation.clients import content_of
from harness.simulation.cluster import A, B, C, D
from harness.simulation.scenes import Scene
from tidelog.kernel.ids import BrokerId
from tidelog.wire.metadata_records import PartitionChanged, PartitionView
from tidelog.wire.replication import Batch, Bytes

Placement = tuple[tuple[int, ...], set[int], set[int]]


class Move(Scene):
    """t-0 on A, B and C, four brokers, and a writer that must always be answered well."""

    def __init__(self, *replicas: BrokerId, min_isr: int = 2) -> None:
        super().__init__(*(replicas or (A, B, C)), brokers=4, min_isr=min_isr)
        self.wrote(A, 5)
        self.settle()

    @property
    def view(self) -> PartitionView:
        return self.cluster.view()

    def placement(self) -> Placement:
        return self.view.replicas, set(self.view.adding), set(self.view.removing)

    def begin(self, *replicas: BrokerId) -> None:
        self.cluster.begin_reassign(self.cluster.lives[C], *replicas)

    def until_moving(self) -> None:
        self.cluster.until(lambda: self.view.is_moving)

    def until_settled_on(self, *replicas: BrokerId) -> None:
        """And all of them in sync, with nothing left on the others' disks."""

        def is_so() -> bool:
            view = self.view
            return view.replicas == replicas and not view.is_moving and self.isr() == {*replicas}

        self.cluster.until(is_so)
        self.cluster.until(lambda: self.holders() == {*replicas})
        self.cluster.until(lambda: self.leader() in replicas and self.leader_knows())

    def holders(self) -> set[int]:
        """The brokers that have a log of it."""
        return {
            broker
            for broker, life in self.cluster.lives.items()
            if any(log.name.key == ("t", 0) for log in life.logs)
        }

    def check(self, *replicas: BrokerId) -> None:
        """Writes go on; all replicas are equal; nothing acknowledged is lost."""
        self.wrote(self.the_leader(), 2)
        self.settle()
        assert len({content_of(self.cluster.replica(one).log) for one in replicas}) == 1
        self.clients.check_all_is_there()

    def hold_back(self, broker: BrokerId) -> None:
        """It gets no records of anybody."""
        self.lost = lambda _from, to, one: to == broker and isinstance(one, Batch | Bytes)

    def let_go(self) -> None:
        self.lost = lambda _from, _to, _one: False

    def undecided(self) -> list[PartitionChanged]:
        """Records of partitions that are not on the coordinator's disk yet."""
        batches = self.cluster.coordinator._unsynced
        records = [record for batch in batches for record in batch.records]
        return [one for one in records if isinstance(one, PartitionChanged)]

    def restart_coordinator(self, *, forgets: bool = False) -> None:
        """It is killed; where it `forgets`, nothing got to its disk that was on the way there."""
        if forgets:
            self.cluster.coordinator._unsynced.clear()
        self.cluster.kill_coordinator()
        self.wrote(A, 1)  # nobody needs it for that
        self.cluster.start_coordinator()

    def away_and_back(self) -> None:
        """D is added, goes, and is added again, and the leader hears of the last two at once."""
        self.cluster.reassign(A, B, C, D)
        self.until_settled_on(A, B, C, D)
        self.cluster.network.cut_from(3_000, A)
        life = self.cluster.lives[B]
        self.cluster.begin_reassign(life, A, B, C)
        self.cluster.until(lambda: D not in self.holders())
        self.hold_back(D)
        self.cluster.begin_reassign(life, A, B, C, D)
        self.until_moving()
        self.cluster.mend_all()
        self.cluster.run(2_000)
        assert D not in self.isr()
        self.let_go()
        self.until_settled_on(A, B, C, D)
