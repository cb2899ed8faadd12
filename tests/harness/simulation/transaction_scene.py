"""The stage of transactions in a simulated cluster: topics, a coordinator, clients, readers."""

from collections.abc import Callable
from typing import Any

from harness.simulation.clients import Asked, Clients, fetch_request
from harness.simulation.cluster import A, B, C, SimulatedCluster
from harness.simulation.transaction_truth import TransactionTruth
from harness.simulation.transactional import TransactionalClient
from tidelog.clients.producer.sender import Identity
from tidelog.coordinator.transactions import records
from tidelog.coordinator.transactions.states import TxnState
from tidelog.kernel.ids import BrokerId, Partition, TopicPartition
from tidelog.node.groups.placement import OFFSETS_TOPIC
from tidelog.wire.messages import k01_fetch as k01
from tidelog.wire.records import read_header
from tidelog.wire.transactions import STATE_TOPIC, written_as

FETCH = 12
COMMITTED = 1


class TransactionScene:
    """Topic `t` of two partitions, one of the state and one of the groups, led by different
    brokers where that can be."""

    def __init__(
        self,
        *,
        state: tuple[BrokerId, ...] = (A, B, C),
        offsets: tuple[BrokerId, ...] = (C, A, B),
        data: tuple[BrokerId, ...] = (B, C, A),
        brokers: int = 3,
        fresh: bool = False,
        **settings: str,
    ) -> None:
        given = {name.replace("_", "."): value for name, value in settings.items()}
        self.cluster = SimulatedCluster(1, brokers, given)
        self.clients = Clients(self.cluster)
        self.truth = TransactionTruth(self.cluster)
        self.keys = [("t", Partition(0)), ("t", Partition(1))]
        self.cluster.create("t", *data, partitions=2, min_insync_replicas="2")
        if not fresh:
            policy: dict[str, Any] = {"cleanup_policy": "compact", "min_insync_replicas": "2"}
            self.cluster.create(STATE_TOPIC, *state, **policy)
            self.cluster.create(OFFSETS_TOPIC, *offsets, **policy)
        self.cluster.transactor.start()
        self.cluster.until(lambda: self.cluster.transactor.process.machine is not None)

    def client(self, name: str = "tx", **more: Any) -> TransactionalClient:
        return TransactionalClient(self.cluster, self.truth, name, **more)

    def begun(self, name: str = "tx", **more: Any) -> TransactionalClient:
        """One that knows who it is."""
        client = self.client(name, **more)
        client.finish(client.init())
        return client

    def leader(self, key: TopicPartition) -> BrokerId:
        return self.cluster.view(*key).leader

    def until_led(self, key: TopicPartition) -> BrokerId:
        self.cluster.until(
            lambda: (
                self.leader(key) in self.cluster.lives
                and self.cluster.leads(self.leader(key), *key)
            )
        )
        return self.leader(key)

    # -- what is there

    def state(self, name: str = "tx") -> TxnState | None:
        """What the coordinator has in memory."""
        known = self._known(name)
        return None if known is None else known.state

    def is_open(self, name: str, identity: Identity) -> bool:
        """Whether a transaction of this producer is open, as far as the coordinator knows."""
        known = self._known(name)
        return known is not None and (
            known.state is TxnState.ONGOING
            and (known.producer_id, known.producer_epoch) == (*identity,)
        )

    def _known(self, name: str) -> records.Transaction | None:
        machine = self.cluster.transactor.process.machine
        place = None if machine is None else machine.partition(Partition(0))
        if place is None or place.shard is None:
            return None
        return place.shard._ids.get(name)

    def read(self, key: TopicPartition) -> tuple[list[bytes], int]:
        """What a reader of committed records gets, and where it may not read on."""
        start = self.clients.cluster.replica(self.until_led(key), *key).log.start
        return read_on(self.clients, self.truth, key, start)

    def write_state(self, record: records.TxnRecord) -> None:
        """As the present coordinator would have; it does not know of it, its successor will."""
        leader, now = self.until_led((STATE_TOPIC, Partition(0))), self.cluster.now
        life, replica = self.cluster.lives[leader], self.cluster.replica(leader, STATE_TOPIC, 0)
        epoch = self.cluster.transactor.process.epoch
        writer = replica.log.producers.get(written_as(epoch)[0])
        sequence = 0 if writer is None else writer.next_sequence
        pair = records.pair(record)
        batch = memoryview(bytearray(records.batch_of([pair], 0, epoch=epoch, sequence=sequence)))

        def write() -> None:
            header, led = read_header(batch), replica.log.latest_epoch
            replica.log.append_as_leader(now, 0, batch, header, led)
            life.machine.appended(now, replica, batch)

        life.turn(write)
        end = replica.log.end
        self.until(lambda: replica.high_watermark == end)

    def ask(self, broker: BrokerId, api: Any, version: int, request: object) -> Any:
        asked = Asked(self.cluster.lives[broker], api, version, request, lambda: None)
        self.cluster.until(lambda: asked.is_over)
        return asked.answer

    # -- the end

    def heal(self) -> None:
        """Everybody lives, and everything is in sync."""
        cluster = self.cluster
        for broker in cluster.disks:
            if broker not in cluster.lives:
                cluster.start(broker)
        cluster.until(self._is_whole)
        cluster.run(200)

    def _is_whole(self) -> bool:
        views = [
            ((name, Partition(at)), view)
            for name, topic in self.cluster.image.names.items()
            for at, view in enumerate(topic.partitions)
        ]
        return all(
            set(view.isr) == set(view.replicas) and self.cluster.leads(view.leader, *key)
            for key, view in views
        )

    def check(self) -> None:
        self.heal()
        for key in self.keys:
            self.read(key)
        self.truth.check()
        self.clients.check_all_is_there()

    def until(self, what: Callable[[], bool], *, within_ms: float = 30_000) -> None:
        self.cluster.until(what, within_ms=within_ms)


def read_on(
    clients: Clients, truth: TransactionTruth, key: TopicPartition, at: int
) -> tuple[list[bytes], int]:
    """As a consumer of committed records does it, as far as it gets; and where the limit is."""
    values: list[bytes] = []
    while True:
        request = fetch_request(*key, at, -1, -1)
        request.isolation_level = COMMITTED
        answer = clients.ask(clients.cluster.view(*key).leader, k01.API, FETCH, request)
        (found,) = answer.responses[0].partitions
        if not found.records:
            return values, found.last_stable_offset
        truth.read(key, at, found)
        values += [value for _, value in truth.seen[-1].values]
        at = truth.seen[-1].end
