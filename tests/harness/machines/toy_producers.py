"""Producers with a transactional id that ask toy brokers, one request after the other.

A producer's life is a generator: it gives what it wants of the world, and gets what comes of it.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from harness.machines.toy_brokers import ToyBroker
from harness.machines.toy_transaction_logs import Data
from harness.simulation.living import Life, Living, Wish
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.node.groups.placement import partition_of
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response, encode_request, joined
from tidelog.wire.header import AnyApi
from tidelog.wire.messages import k22_init_producer_id as k22
from tidelog.wire.messages import k24_add_partitions_to_txn as k24
from tidelog.wire.messages import k26_end_txn as k26
from tidelog.wire.transactions import STATE_TOPIC

if TYPE_CHECKING:
    from harness.machines.transaction_world import World

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
ANSWER_WITHIN_MS: Final = 25_000


@dataclass
class Written:
    """One transaction, as its producer knows it."""

    producer_id: int
    producer_epoch: int


class ToyProducer(Living):
    """One instance of a client. Its requests go to the leader of its partition of the state."""

    is_over = False

    def __init__(self, world: "World", transactional_id: str) -> None:
        self.world = world
        self.transactional_id = transactional_id
        self.identity = (-1, -1)
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
            if not broker.alive:
                answered(ErrorCode.NOT_COORDINATOR)
            elif kind == "ask":
                world.on_death(broker, lambda: answered(ErrorCode.NOT_COORDINATOR))
                broker.forward(rest[0], answered)
            else:
                self._write(broker, rest[0], rest[1], answered)

        world.later(arrives)

    def _write(self, broker: ToyBroker, key: TopicPartition, written: Written, done: Any) -> None:
        self.world.on_death(broker, lambda: done(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        broker.write(key, Data(written.producer_id, written.producer_epoch), done)

    # -- what it asks

    @property
    def state_key(self) -> TopicPartition:
        topic = self.world.image.names[STATE_TOPIC]
        return STATE_TOPIC, Partition(partition_of(self.transactional_id, len(topic.partitions)))

    def ask(
        self, api: AnyApi, version: int, request: object, code_of: Any
    ) -> Generator[Wish, Any, Any]:
        """Until there is an answer that is not to be asked again."""
        while True:
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
                assert code is ErrorCode.NONE, code
                return answer
            yield "wait", BACK_OFF_MS

    def init(self, *, timeout_ms: int = 60_000) -> Life:
        request = k22.InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms
        )
        answer = yield from self.ask(k22.API, 4, request, lambda one: one.error_code)
        self.identity = (answer.producer_id, answer.producer_epoch)

    def begin(self) -> Written:
        self.transactions.append(Written(*self.identity))
        return self.transactions[-1]

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

        yield from self.ask(k24.API, 3, request, code_of)

    def write(self, written: Written, key: TopicPartition) -> Life:
        while True:
            broker = self.world.leader(key)
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            if broker is not None:
                code = yield "write", broker, key, written
            if code not in RETRIED:
                break
            yield "wait", BACK_OFF_MS
        assert code is ErrorCode.NONE, code

    def end(self, written: Written, *, committed: bool) -> Life:
        request = k26.EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=written.producer_id,
            producer_epoch=written.producer_epoch,
            committed=committed,
        )
        yield from self.ask(k26.API, 3, request, lambda one: one.error_code)

    def transaction(self, keys: tuple[TopicPartition, ...], *, committed: bool = True) -> Life:
        written = self.begin()
        yield from self.add(written, *keys)
        for key in keys:
            yield from self.write(written, key)
        yield from self.end(written, committed=committed)
