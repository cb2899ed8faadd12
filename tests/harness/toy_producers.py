"""Producers with a transactional id, and what each of them was told: Kafka's clients, much smaller.

A producer's life is a generator: it gives what it wants of the world, and gets what comes of it.
"""

from collections.abc import Callable, Generator
from random import Random
from typing import TYPE_CHECKING, Any, Final

from harness.living import Life, Living, Wish
from harness.toy_brokers import ToyBroker
from harness.toy_transaction_logs import Data
from harness.toy_written import Written
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.node.groups.placement import OFFSETS_TOPIC, partition_of
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response, encode_request, joined
from tidelog.wire.header import AnyApi
from tidelog.wire.messages import k22_init_producer_id as k22
from tidelog.wire.messages import k24_add_partitions_to_txn as k24
from tidelog.wire.messages import k25_add_offsets_to_txn as k25
from tidelog.wire.messages import k26_end_txn as k26
from tidelog.wire.transactions import STATE_TOPIC

if TYPE_CHECKING:
    from harness.transaction_world import World

GROUP: Final = "g"
RETRIED: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)
BACK_OFF_MS: Final = 20
VERSIONS: Final = (1, 2)
"""Of transactions: a partition is added before it is written to, or by that; the epoch stays, or
each end takes one."""
END_VERSION: Final = {1: 3, 2: 5}
LATE_MAX: Final = 20
ANSWER_WITHIN_MS: Final = 25_000


class Fenced(Exception):  # noqa: N818 -- an outcome, no fault
    """Another producer has the id."""


class ToyProducer(Living):
    """One instance of a client. Its requests go to whoever leads its partition of the state."""

    is_over = False

    def __init__(self, world: "World", transactional_id: str) -> None:
        self.world = world
        self.transactional_id = transactional_id
        self.identity = (-1, -1)
        self.version = 1
        self.late: list[Callable[[], None]] = []
        """What it sent under version 2, once more: it may come at any time."""
        self.transactions: list[Written] = []
        self.codes: list[tuple[str, ErrorCode]] = []
        """What it was told, in order."""

    # -- how its life goes on

    def _world(self) -> "World":
        return self.world

    def _grant(self, wish: Wish, come: Any) -> None:
        world, (kind, *what) = self.world, wish
        if kind == "wait":
            world.timeline.after(what[0], lambda: come(None))
            return
        broker, *rest = what
        world.timeline.after(ANSWER_WITHIN_MS, lambda: come(ErrorCode.REQUEST_TIMED_OUT))

        def answered(answer: Any) -> None:
            world.later(lambda: come(answer))

        def arrives() -> None:
            if kind == "write" and rest[0] not in world.partitions:
                answered(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif not broker.alive:
                answered(ErrorCode.NOT_COORDINATOR)
            elif kind == "ask":
                world.on_death(broker, lambda: answered(ErrorCode.NOT_COORDINATOR))
                broker.forward(rest[0], answered)
            else:
                self._write(broker, rest[0], rest[1], answered)

        world.later(arrives)

    def _write(self, broker: ToyBroker, key: TopicPartition, written: Written, done: Any) -> None:
        """As a broker takes a batch: where no transaction is open it asks the coordinator first."""
        data = Data(written.producer_id, written.producer_epoch, written.serial)
        self.world.on_death(broker, lambda: done(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        before = broker.last(key, written.producer_id)
        is_open = isinstance(before, Data) and before.producer_epoch == written.producer_epoch
        if is_open or broker.admissions.let_in(key, data):
            broker.write(key, data, done)
            return

        def verified(answer: bytes | ErrorCode) -> None:
            code = answer if isinstance(answer, ErrorCode) else _verdict(answer)
            self._was_told(code, key, written)
            if code is not ErrorCode.NONE:
                done(code)
            elif key not in self.world.partitions or (
                broker.last(key, written.producer_id) != before
            ):
                done(ErrorCode.NOT_LEADER_OR_FOLLOWER)  # a marker came in between
            else:
                broker.write(key, data, done)

        leader = self.world.leader(self.state_key)
        if leader is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        else:
            leader.forward(_question(self.transactional_id, written, key), verified)

    def _was_told(self, code: ErrorCode, key: TopicPartition, written: Written) -> None:
        """By the coordinator, about a first batch."""
        if code is ErrorCode.NONE and written.version == 2:
            self.world.truth.added(written, (key,))

    # -- what it asks

    @property
    def state_key(self) -> TopicPartition:
        topic = self.world.image.names[STATE_TOPIC]
        return STATE_TOPIC, Partition(partition_of(self.transactional_id, len(topic.partitions)))

    def ask(
        self,
        api: AnyApi,
        version: int,
        request: object,
        code_of: Any,
        before: Callable[[], None] = lambda: None,
    ) -> Generator[Wish, Any, Any]:
        """Until there is an answer that is not to be asked again."""
        while True:
            before()
            broker = self.world.leader(self.state_key)
            code, answer = ErrorCode.COORDINATOR_NOT_AVAILABLE, None
            if broker is not None:
                frame = joined(encode_request(api, version, 1, None, request))[4:]
                came = yield "ask", broker, frame
                if isinstance(came, ErrorCode):
                    code = came
                else:
                    _, answer = decode_response(api, version, memoryview(came))
                    code = ErrorCode(code_of(answer))
            self.codes.append((api.name, code))
            if code not in RETRIED:
                return code, answer
            yield "wait", BACK_OFF_MS

    def init(self, *, timeout_ms: int = 60_000) -> Life:
        request = k22.InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms
        )
        code, answer = yield from self.ask(k22.API, 4, request, lambda one: one.error_code)
        assert code is ErrorCode.NONE, code
        self.identity = (answer.producer_id, answer.producer_epoch)
        self.world.truth.identified(self, self.identity)

    def begin(self) -> Written:
        written = Written(self.transactional_id, *self.identity, version=self.version)
        self.transactions.append(written)
        self.world.truth.begun(written)
        return written

    def add(self, written: Written, *keys: TopicPartition) -> Life:
        topics: dict[str, list[int]] = {}
        for topic, partition in keys:
            topics.setdefault(topic, []).append(partition)
        request = k24.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=written.producer_id,
            v3_and_below_producer_epoch=written.producer_epoch,
            v3_and_below_topics=[
                k24.AddPartitionsToTxnTopic(name=topic, partitions=ids)
                for topic, ids in topics.items()
            ],
        )

        def code_of(answer: k24.AddPartitionsToTxnResponse) -> int:
            first = answer.results_by_topic_v3_and_below[0]
            return first.results_by_partition[0].partition_error_code

        code, _ = yield from self.ask(
            k24.API, 3, request, code_of, lambda: self._check_known(*keys)
        )
        self._check(code)
        self.world.truth.added(written, keys)

    def add_offsets(self, written: Written) -> Life:
        request = k25.AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=written.producer_id,
            producer_epoch=written.producer_epoch,
            group_id=GROUP,
        )
        code, _ = yield from self.ask(k25.API, 3, request, lambda one: one.error_code)
        self._check(code)
        self.world.truth.added(written, (self.offsets_key,))

    @property
    def offsets_key(self) -> TopicPartition:
        topic = self.world.image.names[OFFSETS_TOPIC]
        return OFFSETS_TOPIC, Partition(partition_of(GROUP, len(topic.partitions)))

    def write(self, written: Written, key: TopicPartition) -> Life:
        written.partitions.add(key)
        if written.version == 2:
            self._may_come_late(lambda: self._write_late(key, written))
        while True:
            self._check_known(key)
            broker = self.world.leader(key)
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if broker is not None:
                code = yield "write", broker, key, written
            if code not in RETRIED:
                break
            yield "wait", BACK_OFF_MS
        self._check(code)

    def end(self, written: Written, *, committed: bool) -> Life:
        written.asked = committed or bool(written.asked)
        request = k26.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=written.producer_id,
            producer_epoch=written.producer_epoch,
            committed=committed,
        )
        version = END_VERSION[written.version]
        if written.version == 2:
            frame = joined(encode_request(k26.API, version, 1, None, request))[4:]
            self._may_come_late(lambda: self._ask_late(frame))
        code, answer = yield from self.ask(k26.API, version, request, lambda one: one.error_code)
        self._check(code)
        written.told = committed
        self.world.truth.ended(written)
        if written.version == 2:
            self.identity = (answer.producer_id, answer.producer_epoch)
            self.world.truth.identified(self, self.identity)

    # -- what comes late

    def _may_come_late(self, again: Callable[[], None]) -> None:
        self.late = [*self.late[1 - LATE_MAX :], again]

    def _write_late(self, key: TopicPartition, written: Written) -> None:
        broker = self.world.leader(key)
        if broker is not None and broker.alive and key in self.world.partitions:
            self._write(broker, key, written, lambda _code: None)

    def _ask_late(self, frame: bytes) -> None:
        broker = self.world.leader(self.state_key)
        if broker is not None and broker.alive:
            broker.forward(frame, lambda _answer: None)

    def _check_known(self, *keys: TopicPartition) -> None:
        """Whoever writes to a topic that is gone gives the transaction up, and begins anew."""
        if not self.world.deleted.isdisjoint(keys):
            raise Fenced

    def _check(self, code: ErrorCode) -> None:
        if code is not ErrorCode.NONE:
            raise Fenced(code)

    # -- whole lives

    def transaction(
        self, keys: tuple[TopicPartition, ...], *, committed: bool = True, offsets: bool = False
    ) -> Life:
        written = self.begin()
        if self.version == 1:
            yield from self.add(written, *keys)
        for key in keys:
            yield from self.write(written, key)
        if offsets:
            if self.version == 1:
                yield from self.add_offsets(written)
            yield from self.write(written, self.offsets_key)
        yield from self.end(written, committed=committed)

    def abort_if_it_can_be(self) -> Generator[Wish, Any, bool]:
        """After an error, as clients of version 2 do: they go on with the epoch that they get."""
        if self.version == 1 or not self.transactions:
            return False
        try:
            yield from self.end(self.transactions[-1], committed=False)
        except Fenced:
            return False
        return True

    def drawn(self, rng: Random, keys: list[TopicPartition], transactions: int) -> Life:
        """Transactions of any kind, until another producer has the id; then it begins anew."""
        self.version = rng.choice(VERSIONS)
        yield from self.init(timeout_ms=rng.choice((30, 500, 60_000)))
        for _ in range(transactions):
            if rng.random() < 0.1:
                self.version = rng.choice(VERSIONS)  # it has heard of another level
            chosen = tuple(rng.sample(keys, rng.randint(self.version == 1, 3)))
            try:
                yield from self.transaction(
                    chosen,
                    committed=bool(chosen) and rng.random() < 0.7,
                    offsets=rng.random() < 0.3,
                )
            except Fenced:
                goes_on = yield from self.abort_if_it_can_be()
                if not goes_on:
                    yield "wait", rng.uniform(0, 200)
                    yield from self.init()
            if rng.random() < 0.2:
                yield "wait", rng.uniform(0, 100)


def _question(transactional_id: str, written: Written, key: TopicPartition) -> bytes:
    """What the broker of a first batch asks: to let the partition in, or whether it is."""
    request = k24.AddPartitionsToTxnRequest(
        transactions=[
            k24.AddPartitionsToTxnTransaction(
                transactional_id=transactional_id,
                producer_id=written.producer_id,
                producer_epoch=written.producer_epoch,
                verify_only=written.version == 1,
                topics=[k24.AddPartitionsToTxnTopic(name=key[0], partitions=[key[1]])],
            )
        ]
    )
    return joined(encode_request(k24.API, 5, 1, None, request))[4:]


def _verdict(frame: bytes) -> ErrorCode:
    _, answer = decode_response(k24.API, 5, memoryview(frame))
    (one,) = answer.results_by_transaction
    return ErrorCode(one.topic_results[0].results_by_partition[0].partition_error_code)
