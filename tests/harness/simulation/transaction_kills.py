"""Somebody dies when a transaction comes to a certain step of its way, at a certain moment of it.

A step is a batch that it puts into some log. Before: whoever asks for that has not been heard.
Appended: it is in the leader's log, and nowhere else. Committed: its replicas have it, and nobody
has been told.
"""

from typing import Final

from harness.simulation.broker import Life
from harness.simulation.transaction_scene import TransactionScene
from harness.simulation.transaction_truth import entries_of
from harness.simulation.transactional import TransactionalClient
from harness.simulation.transactor import TransactionProcess
from tidelog.coordinator.transactions import records
from tidelog.coordinator.transactions.states import TxnState
from tidelog.kernel.ids import COORDINATOR_ID, BrokerId, Partition, TopicPartition
from tidelog.node.groups.placement import OFFSETS_TOPIC
from tidelog.node.replica.replicas import Replica
from tidelog.wire.header import AnyApi
from tidelog.wire.messages import k28_txn_offset_commit as k28
from tidelog.wire.records import iterate_batches, iterate_records
from tidelog.wire.transactions import STATE_TOPIC, Append, FromTransactions, Mark

STATE: Final = (STATE_TOPIC, Partition(0))
OFFSETS: Final = (OFFSETS_TOPIC, Partition(0))
DATA: Final = (("t", Partition(0)), ("t", Partition(1)))
MARKERS: Final = {
    "marker t-0": DATA[0],
    "marker t-1": DATA[1],
    "marker __consumer_offsets-0": OFFSETS,
}
COMMITTED_OFFSETS: Final = "TxnOffsetCommit"
STEPS: Final = (
    "AddPartitions",
    "AddOffsets",
    COMMITTED_OFFSETS,
    "Prepare",
    *MARKERS,
    "Complete",
)
MOMENTS: Final = ("before", "appended", "committed")
COORDINATOR: Final = "coordinator"
VICTIMS: Final = {
    COORDINATOR: None,
    "leader of its state partition": STATE,
    "leader of a data partition": DATA[0],
    "leader of the offsets partition": OFFSETS,
}
RESTART_MS: Final = 50.0


class Killing:
    """Kills the victim at that moment of the step, once, and starts it again later."""

    def __init__(
        self, scene: TransactionScene, client: TransactionalClient, *, victim: str, dies: bool
    ) -> None:
        self.scene = scene
        self.is_done = False
        self._client = client if dies else None
        self._place = VICTIMS[victim]
        self._step = ""

    def at(self, step: str, moment: str, client: TransactionalClient) -> None:
        self._step = step
        cluster = self.scene.cluster
        if moment == "before" and step == COMMITTED_OFFSETS:
            client.look = self._asked
        elif moment == "before" and self._place is None:
            cluster.transactor.look = self._sends
        elif moment == "before":
            cluster.transactions.look = self._arrives
        else:
            self._looks_at_logs(committed=moment == "committed")

    # -- before

    def _asked(self, api: AnyApi) -> None:
        if api is k28.API:
            self._kill()

    def _sends(
        self, _process: TransactionProcess, _broker: BrokerId, message: FromTransactions
    ) -> bool:
        """It dies with the message on its lips."""
        return self._arrives(None, message)

    def _arrives(self, life: Life | None, message: FromTransactions) -> bool:
        if not self.is_done and self._step in steps_of(message):
            self._kill()
            return life is not None and life.alive
        return True

    # -- later

    def _looks_at_logs(self, *, committed: bool) -> None:
        key = MARKERS.get(self._step, OFFSETS if self._step == COMMITTED_OFFSETS else STATE)
        seen = [0]

        def look(life: Life) -> None:
            replica = life.broker.replicas.get(key)
            if self.is_done or replica is None or replica.leader is None:
                return
            until = replica.high_watermark if committed else replica.log.end
            if until > seen[0]:
                start, seen[0] = seen[0], until
                if self._step in _steps_between(replica, start, until):
                    self._kill(silences=life)

        self.scene.cluster.look_at_turn = look

    # -- how it dies

    def _kill(self, silences: Life | None = None) -> None:
        """What the one that is silenced said last nobody hears, if it is the victim."""
        if self.is_done:
            return
        self.is_done = True
        cluster = self.scene.cluster
        if self._client is not None:
            self._client.dies()
        if self._place is None:
            cluster.transactor.kill()
            return
        victim = cluster.view(*self._place).leader
        if silences is not None and silences.me == victim:
            for other in (*cluster.disks, COORDINATOR_ID, cluster.transactor.process.me):
                cluster.network.pipe(victim, other).lose_newest(1_000)
        cluster.kill(victim)
        cluster.timeline.after(RESTART_MS, lambda: self._again(victim))

    def _again(self, victim: BrokerId) -> None:
        if victim not in self.scene.cluster.lives:
            self.scene.cluster.start(victim)


def steps_of(message: FromTransactions) -> set[str]:
    """What a coordinator wants to be done by that."""
    if isinstance(message, Mark):
        return {f"marker {one.topic}-{one.partition}" for one in message.markers}
    return _steps_of_state(memoryview(message.batch)) if isinstance(message, Append) else set()


def _steps_between(replica: Replica, start: int, end: int) -> set[str]:
    found = replica.log.read(start, 1 << 30, end, min_one=True)
    assert found is not None
    data = found.file.read(found.position, found.size)
    steps: set[str] = set()
    for header, batch in iterate_batches(data):
        if replica.topic == STATE_TOPIC:
            steps |= _steps_of_state(batch)
        elif header.is_control:
            steps.add(f"marker {replica.topic}-{replica.partition}")
        elif header.is_transactional and replica.topic == OFFSETS_TOPIC:
            steps.add(COMMITTED_OFFSETS)
    return steps


def _steps_of_state(batch: memoryview) -> set[str]:
    known = [records.read(row.key or b"", row.value) for row in iterate_records(batch)]
    values = [one.value for one in known if one is not None and one.value is not None]
    return {_step_of(one) for one in values if one.state is not TxnState.EMPTY}


def _step_of(value: records.Transaction) -> str:
    if value.state is TxnState.ONGOING:
        topics = {topic for topic, _ in value.partitions}
        return "AddOffsets" if OFFSETS_TOPIC in topics else "AddPartitions"
    return "Prepare" if value.state.is_prepared else "Complete"


def markers_in(scene: TransactionScene, key: TopicPartition) -> list[bool]:
    """What transactions came to in that partition, in order."""
    replica = scene.cluster.replica(scene.leader(key), *key)
    return [one.marker for one in entries_of(replica) if one.marker is not None]
