"""Clients of a simulated cluster that write in transactions: their requests go through brokers' own
handlers, and they try again as Kafka's clients do.

A client's life is a generator: it gives what it wants of the world, and gets what comes of it.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

from harness.clients.produce_raw import batch_of
from harness.simulation.clients import Asked
from harness.simulation.cluster import SimulatedCluster
from harness.simulation.living import Life, Living, Wish
from tidelog.kernel.ids import NO_LEADER, BrokerId, TopicPartition
from tidelog.wire.errors import ErrorCode
from tidelog.wire.header import AnyApi
from tidelog.wire.messages import k00_produce as k00
from tidelog.wire.messages import k09_offset_fetch as k09
from tidelog.wire.messages import k10_find_coordinator as k10
from tidelog.wire.messages import k22_init_producer_id as k22
from tidelog.wire.messages import k24_add_partitions_to_txn as k24
from tidelog.wire.messages import k25_add_offsets_to_txn as k25
from tidelog.wire.messages import k26_end_txn as k26
from tidelog.wire.messages import k28_txn_offset_commit as k28
from tidelog.wire.records import TRANSACTIONAL_BIT, Origin, read_header

if TYPE_CHECKING:
    from harness.simulation.transaction_truth import TransactionTruth, Written

GROUP: Final = "g"
PRODUCE, OFFSET_FETCH, FIND, INIT, ADD, END, COMMIT = 11, 8, 4, 4, 3, 3, 3
"""Request versions of a client that speaks version 1 of transactions."""
PRODUCE_2, END_2, COMMIT_2 = 12, 5, 5
"""Request versions of a client that speaks version 2: its first batch adds a partition to the
transaction, its offsets add their group, and each end gives it another epoch."""
OF_GROUP, OF_TRANSACTION = 0, 1
BACK_OFF_MS: Final = 20.0
RETRIED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)


class Refused(Exception):  # noqa: N818 -- an outcome, no fault
    """The transaction cannot go on, as far as this client is concerned."""


class TransactionalClient(Living):
    """One instance of a client with a transactional id; others may have the same."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        truth: "TransactionTruth",
        name: str,
        *,
        rng: Random | None = None,
        timeout_ms: int = 60_000,
        version: int = 1,
    ) -> None:
        self.cluster = cluster
        self.version = version
        """Of transactions."""
        self.truth = truth
        self.name = name
        self.timeout_ms = timeout_ms
        self.rng = rng or Random(1)
        self.producer_id, self.epoch = -1, -1
        self.identified = 0
        """When it got those, counted over all clients."""
        self.answers: list[tuple[str, ErrorCode]] = []
        """What it was told, in order; not what sent it back to try again."""
        self.codes: list[tuple[str, ErrorCode]] = []
        """All that it was told."""
        self.look: Callable[[AnyApi], None] = lambda _api: None
        """Told of each request that is about to go out."""
        self.copies = 0.0
        """Of so many requests a copy comes late."""
        self._needed: set[str] = set()
        """Topics without which what it asks at present cannot be granted."""
        self._sequences: dict[TopicPartition, int] = {}
        self._coordinators: dict[tuple[int, str], BrokerId] = {}
        self._epochs: dict[TopicPartition, int] = {}

    # -- how its life goes on

    def _world(self) -> SimulatedCluster:
        return self.cluster

    def _grant(self, wish: Wish, come: Callable[[Any], None]) -> None:
        kind, *what = wish
        if kind == "wait":
            self.cluster.timeline.after(what[0], lambda: come(None))
        else:
            self._send(what[0], what[1], what[2], what[3], come)

    def _send(
        self,
        broker: BrokerId,
        api: AnyApi,
        version: int,
        request: object,
        come: Callable[[Any], None],
    ) -> None:
        self.look(api)
        timeline, life = self.cluster.timeline, self.cluster.lives.get(broker)
        if life is None or not life.serving:
            timeline.after(BACK_OFF_MS, lambda: come(None))
            return
        # It may be over before it has a name: what comes of it is taken at the next turn.
        box: list[Asked] = []
        box.append(
            Asked(
                life, api, version, request, lambda: timeline.after(0, lambda: come(box[0].answer))
            )
        )

    # -- whom it asks

    def _image(self) -> Any:
        lives = [life for life in self.cluster.lives.values() if life.serving]
        return self.rng.choice(lives).link.image if lives else None

    def _leader(self, key: TopicPartition) -> BrokerId | None:
        """As some broker knows it; not one of an epoch before that of which it has heard."""
        image = self._image()
        topic = None if image is None else image.names.get(key[0])
        view = None if topic is None else topic.partitions[key[1]]
        if view is None or view.leader_epoch < self._epochs.get(key, 0):
            return None
        self._epochs[key] = view.leader_epoch
        return None if view.leader == NO_LEADER else BrokerId(view.leader)

    def _find(self, kind: int, key: str) -> Life:
        """Whoever coordinates it, asked of some broker until one knows."""
        while (kind, key) not in self._coordinators:
            lives = [one for one, life in self.cluster.lives.items() if life.serving]
            if lives:
                request = k10.FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
                answer = yield "ask", self.rng.choice(lives), k10.API, FIND, request
                if answer is not None and not answer.coordinators[0].error_code:
                    found = BrokerId(answer.coordinators[0].node_id)
                    self._coordinators[kind, key] = found
                    break
            yield "wait", BACK_OFF_MS
        return self._coordinators[kind, key]

    def ask(
        self, where: tuple[int, str], api: AnyApi, version: int, request: object, code_of: Any
    ) -> Life:
        """A coordinator, until there is an answer that is not to be asked again."""
        while True:
            self._check_topics(self._needed)
            broker = yield from self._find(*where)
            answer = yield "ask", broker, api, version, request
            code = ErrorCode.NOT_COORDINATOR if answer is None else ErrorCode(code_of(answer))
            self.codes.append((api.name, code))
            if code not in RETRIED:
                self.answers.append((api.name, code))
                self._copy(where, api, version, request)
                return code, answer
            if code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                self._coordinators.pop(where, None)
            yield "wait", BACK_OFF_MS

    def _copy(self, where: Any, api: AnyApi, version: int, request: Any) -> None:
        """Maybe it was sent twice, and one of them is still somewhere in the network."""
        if self.rng.random() >= self.copies:
            return
        identity = (self.producer_id, self.epoch)

        def comes() -> None:
            # A copy of the same epoch can end, or begin, the next transaction: the first version
            # of the protocol cannot tell. Of a batch the log can.
            if api is k00.API:
                self._ask_once(self._leader(where), api, version, request)
            elif self.truth.is_past(self.name, *identity):
                self._ask_once(self._coordinators.get(where), api, version, request)

        self.cluster.timeline.after(self.rng.uniform(50, 4_000), comes)

    def _ask_once(
        self, broker: BrokerId | None, api: AnyApi, version: int, request: object
    ) -> None:
        life = None if broker is None else self.cluster.lives.get(broker)
        if life is not None and life.serving:
            if api is k22.API:
                self.truth.asks_for_id(self.name)
            Asked(life, api, version, request, lambda: None)

    # -- what it asks

    @property
    def where(self) -> tuple[int, str]:
        return OF_TRANSACTION, self.name

    def init(self, producer_id: int = -1, epoch: int = -1) -> Life:
        request = k22.InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=self.timeout_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        asking = self.truth.asks_for_id(self.name)
        code, answer = yield from self.ask(
            self.where, k22.API, INIT, request, lambda one: one.error_code
        )
        if code is not ErrorCode.NONE:
            raise Refused(code)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        self.truth.identified(self, asking)

    def add(self, written: "Written", *keys: TopicPartition) -> Life:
        topics: dict[str, list[int]] = {}
        for topic, partition in keys:
            topics.setdefault(topic, []).append(partition)
        request = k24.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[
                k24.AddPartitionsToTxnTopic(name=topic, partitions=ids)
                for topic, ids in topics.items()
            ],
        )

        written.added_at = written.added_at or self.cluster.now
        self._needed = {topic for topic, _ in keys}
        code, _ = yield from self.ask(self.where, k24.API, ADD, request, _code_of_added)
        self._needed = set()
        self._check(written, code)

    def batch(self, key: TopicPartition, values: Sequence[bytes]) -> bytes:
        """The next one of this partition."""
        sequence = self._sequences.get(key, 0)
        self._sequences[key] = sequence + len(values)
        origin = Origin(self.producer_id, self.epoch, sequence, TRANSACTIONAL_BIT)
        return bytes(batch_of(*values, origin=origin))

    def write(self, written: "Written", key: TopicPartition, *numbers: int) -> Life:
        """One batch. Values name their transaction, and a number each."""
        values = [b"%d:%d" % (written.serial, one) for one in numbers or (-1,)]
        yield from self.send(written, key, self.batch(key, values))

    def send(self, written: "Written", key: TopicPartition, batch: bytes) -> Life:
        written.keys.add(key)
        written.added_at = written.added_at or self.cluster.now
        request = produce(self.name, key, batch)
        version = PRODUCE if written.version == 1 else PRODUCE_2
        while True:
            self._check_topics({key[0]})
            broker, answer = self._leader(key), None
            if broker is not None:
                answer = yield "ask", broker, k00.API, version, request
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if answer is not None:
                row = answer.responses[0].partition_responses[0]
                code = ErrorCode(row.error_code)
            self.codes.append((k00.API.name, code))
            if code not in RETRIED:
                break
            yield "wait", BACK_OFF_MS
        self.answers.append((k00.API.name, code))
        self._copy(key, k00.API, version, request)
        self._check(written, code)
        self.truth.acked(written, key, row.base_offset, read_header(batch).crc)

    def add_offsets(self, written: "Written") -> Life:
        request = k25.AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=GROUP,
        )
        written.added_at = written.added_at or self.cluster.now
        code, _ = yield from self.ask(self.where, k25.API, ADD, request, lambda one: one.error_code)
        self._check(written, code)

    def commit_offset(self, written: "Written", offset: int) -> Life:
        """Of partition 0 of `t`, for the group."""
        row = k28.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=None
        )
        request = k28.TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=GROUP,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[k28.TxnOffsetCommitRequestTopic(name="t", partitions=[row])],
        )
        written.offset = offset
        code, _ = yield from self.ask(
            (OF_GROUP, GROUP),
            k28.API,
            COMMIT if written.version == 1 else COMMIT_2,
            request,
            lambda one: one.topics[0].partitions[0].error_code,
        )
        self._check(written, code)

    def committed_offset(self) -> Life:
        """What the group has, and no open transaction may change."""
        wanted = k09.OffsetFetchRequestGroup(
            group_id=GROUP,
            topics=[k09.OffsetFetchRequestTopics(name="t", partition_indexes=[0])],
        )
        request = k09.OffsetFetchRequest(groups=[wanted], require_stable=True)

        def code_of(answer: Any) -> int:
            (found,) = answer.groups
            return int(found.error_code or found.topics[0].partitions[0].error_code)

        code, answer = yield from self.ask(
            (OF_GROUP, GROUP), k09.API, OFFSET_FETCH, request, code_of
        )
        assert code is ErrorCode.NONE, code
        return int(answer.groups[0].topics[0].partitions[0].committed_offset)

    def end(self, written: "Written", *, committed: bool) -> Life:
        written.asked = committed
        request = k26.EndTxnRequest(
            transactional_id=self.name,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )
        version = END if written.version == 1 else END_2
        code, answer = yield from self.ask(
            self.where, k26.API, version, request, lambda one: one.error_code
        )
        self._check(written, code)
        self.truth.ended(written, committed=committed)
        if written.version == 2:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()
            self.truth.moved_on(self)

    def _check_topics(self, topics: set[str]) -> None:
        """A client whose topic was deleted gives its transaction up."""
        if topics & self.truth.gone:
            self._needed = set()
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _check(self, written: "Written", code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            self.truth.refused(self, written, code)
            raise Refused(code)

    # -- whole transactions

    def transaction(
        self,
        keys: Sequence[TopicPartition],
        *,
        committed: bool = True,
        offset: int | None = None,
        numbers: Sequence[int] = (),
    ) -> Life:
        """A batch to each of these; with the offset of a group where one is given. Each number
        goes to one of the partitions."""
        written = self.truth.begun(self)
        if written.version == 1:
            yield from self.add(written, *keys)
        for at, key in enumerate(keys):
            yield from self.write(written, key, *numbers[at :: len(keys)])
        if offset is not None:
            if written.version == 1:
                yield from self.add_offsets(written)
            yield from self.commit_offset(written, offset)
        yield from self.end(written, committed=committed)


def produce(name: str, key: TopicPartition, batch: bytes) -> k00.ProduceRequest:
    data = k00.PartitionProduceData(index=key[1], records=memoryview(batch))
    return k00.ProduceRequest(
        transactional_id=name,
        acks=-1,
        timeout_ms=5_000,
        topic_data=[k00.TopicProduceData(name=key[0], partition_data=[data])],
    )


def _code_of_added(answer: Any) -> int:
    """All partitions are added or none: of a refusal some may only say that it took place."""
    codes = [
        int(one.partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
        for one in topic.results_by_partition
    ]
    return next(code for code in codes if code != ErrorCode.OPERATION_NOT_ATTEMPTED)
