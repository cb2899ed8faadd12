"""A coordinator and its brokers in one process, with their pipes, their log and its disk in hand.

Nothing moves by itself: a test says when a write is forced to disk, when messages arrive, when the
coordinator is killed, and what of its last writes the next one finds.
"""

from collections import deque
from dataclasses import dataclass, field
from itertools import count
from random import Random

from harness.machines.controllers import CLUSTER, START, check
from harness.machines.outcomes import (
    ALTER_VERSION,
    CREATE_VERSION,
    DELETE_VERSION,
    GROWTH_VERSION,
    Outcome,
)
from tidelog.coordinator.controller import front
from tidelog.coordinator.controller.feed import Feed
from tidelog.coordinator.controller.front import Front
from tidelog.coordinator.controller.requests import BrokerLost, BrokerStarted
from tidelog.coordinator.controller.settled import Settled, Settlements
from tidelog.coordinator.controller.shard import ControllerShard
from tidelog.coordinator.settings import ControllerSettings
from tidelog.kernel.ids import TRANSACTIONS_ID, BrokerId, Epoch, Incarnation, Offset
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import ALTER_ISR_TIMEOUT_MS
from tidelog.node.ipc.events import Happening
from tidelog.node.metadata import link
from tidelog.node.metadata.image import Changes, MetadataImage, TopicView
from tidelog.node.metadata.link import ImageChanged, Link, Me, Observer, Suspected
from tidelog.node.runtime.shard_host import LogAppended, LogCommitted, Tick
from tidelog.wire.control import Client, Deltas, IsrChange, LogEnd, ToBroker, encode
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response, encode_request, joined
from tidelog.wire.messages import k19_create_topics as creation
from tidelog.wire.messages import k20_delete_topics as deletion
from tidelog.wire.messages import k37_create_partitions as growth
from tidelog.wire.messages import k44_incremental_alter_configs as altering
from tidelog.wire.messages import k45_alter_partition_reassignments as reassigning
from tidelog.wire.messages import k55_describe_quorum as quorum
from tidelog.wire.messages import k64_unregister_broker as unregistering
from tidelog.wire.metadata_records import BrokerFenced, MetadataRecord, StopKind

QUORUM_VERSION = 2
CALL_MS = 5_000
CLIENT = Client("PLAINTEXT", "User:ANONYMOUS", "127.0.0.1:50000")


@dataclass
class Side:
    """One life of one broker, or of the transaction coordinator."""

    me: Me | Observer
    link: Link
    inbox: deque[bytes] = field(default_factory=deque)
    connected: bool = False
    epochs: list[Offset] = field(default_factory=list)
    fenced: int = 0
    turned_away: list[ErrorCode] = field(default_factory=list)
    changes: list[Changes] = field(default_factory=list)
    suspected: list[Suspected] = field(default_factory=list)
    last_epoch: Epoch = Epoch(0)
    end: Offset = Offset(0)
    high_watermark: Offset = Offset(0)
    """What it says of each of its logs."""

    def told(self, what: ImageChanged | Suspected) -> None:
        if isinstance(what, Suspected):
            self.suspected.append(what)
        else:
            self.changes.append(what.changes)

    @property
    def peer(self) -> bytes:
        return f"{self.me.broker}/{self.me.incarnation}".encode()


class Conversation:
    """One coordinator (or none, while it is dead) and any number of brokers."""

    def __init__(self, settings: ControllerSettings | None = None) -> None:
        self.settings = settings or ControllerSettings()
        self.now = START
        self.durable: list[MetadataRecord] = []
        self.settled: list[tuple[Offset, Settled]] = []
        """What is on disk of the answers to calls."""
        self.written: list[front.Append] = []
        """Appended and not forced to disk."""
        self.sides: dict[BrokerId, Side] = {}
        self.inbox: deque[tuple[bytes, bytes]] = deque()
        self.front: Front | None = None
        self.epochs: list[Epoch] = []
        self.calls: dict[int, Outcome] = {}
        self.snapshots: list[front.SaveSnapshot] = []
        self.ignored: list[str] = []
        self.logged: list[front.LossyElection | front.TopicGone] = []
        self.fences: dict[BrokerId, Offset] = {}
        """The fence words of the board."""
        self.happened: list[Happening] = []
        """What people were told."""
        self._numbers = count(1)
        self._incarnation = 0

    # -- lives

    def start_coordinator(self, *, settled_from: int = 0) -> None:
        """What calls were answered it knows from that offset on."""
        self._incarnation += 1
        images = (MetadataImage(), MetadataImage())
        for image in images:
            for record in self.durable:
                image.replay(record)
        shard = ControllerShard(self.settings, Random(self._incarnation), images[0])
        self.shard = shard
        settlements = Settlements(Offset(settled_from))
        for offset, settled in self.settled:
            settlements.note(offset, settled)
        self.front = Front(
            shard, Feed(images[1]), Incarnation(self._incarnation), settlements=settlements
        )
        self.inbox.clear()
        self._coordinator_effects(self.front.start(self.now, cluster_id=CLUSTER, run_id="run-1"))
        self.force()
        for side in self.sides.values():
            self._connect(side)

    def kill_coordinator(self, *, found: int = 0, by_a_bug: bool = False) -> None:
        """Of its last writes the next one finds so many. Otherwise than by a bug of its own,
        somebody else ends it."""
        for batch in self.written[:found]:
            self._keep(batch)
        self.written.clear()
        crashed = frozenset({Incarnation(self._incarnation)} if by_a_bug else ())
        self.front = None
        self.inbox.clear()
        for side in self.sides.values():
            side.inbox.clear()
            if side.connected:
                side.connected = False
                self._broker_step(side, link.Disconnected(crashed))

    def start_broker(
        self, broker: int, incarnation: int = 1, *, stopped: StopKind = StopKind.FIRST_START
    ) -> Side:
        me = Me(
            cluster_id=CLUSTER,
            broker=BrokerId(broker),
            incarnation=Incarnation(incarnation),
            host="127.0.0.1",
            port=9092 + broker,
            stopped=stopped,
        )
        side = self.sides[me.broker] = Side(me, Link(me))
        if self.front is not None:
            self.tell(BrokerStarted(me.broker, me.incarnation))
            self._connect(side)
        return side

    def start_observer(self, incarnation: int) -> Side:
        """A life of the transaction coordinator; the one before it may live on."""
        me = Observer(CLUSTER, Incarnation(incarnation))
        side = self.sides[BrokerId(TRANSACTIONS_ID + incarnation)] = Side(me, Link(me))
        if self.front is not None:
            self._connect(side)
        return side

    def kill_broker(self, broker: int) -> None:
        side = self.sides.pop(BrokerId(broker))
        self.tell(BrokerLost(side.me.broker, side.me.incarnation))

    def break_connection(self, broker: int) -> None:
        """Everything under way is lost; both come back."""
        side = self.sides[BrokerId(broker)]
        side.inbox.clear()
        self.inbox = deque(one for one in self.inbox if one[0] != side.peer)
        self._broker_step(side, link.Disconnected())
        self._connect(side)

    def tell(self, said: BrokerStarted | BrokerLost) -> None:
        if self.front is not None:
            self._coordinator_effects(self.front.step(self.now, front.Heard(said)))

    # -- what moves

    def force(self, batches: int | None = None) -> None:
        """The disk has so many of the written batches, all by default."""
        taken = self.written[: len(self.written) if batches is None else batches]
        del self.written[: len(taken)]
        for batch in taken:
            assert batch.base == len(self.durable)
            self._keep(batch)
        if taken and self.front is not None:
            end = Offset(len(self.durable))
            last = taken[-1]
            for batch in taken:
                at = Offset(batch.base + len(batch.records))
                self._coordinator_effects(self.front.step(self.now, LogAppended(batch.ticket, at)))
            assert last.base + len(last.records) == end
            self._coordinator_effects(self.front.step(self.now, LogCommitted(end)))

    def _keep(self, batch: front.Append) -> None:
        self.durable += batch.records
        if batch.settled is not None:
            self.settled.append((batch.base, batch.settled))

    def deliver_one(self) -> bool:
        """The oldest message to the coordinator, else the oldest to some broker."""
        if self.inbox and self.front is not None:
            peer, frame = self.inbox.popleft()
            self._coordinator_effects(self.front.step(self.now, front.Received(peer, frame)))
            return True
        for side in self.sides.values():
            if side.inbox:
                self._broker_step(side, link.Received(side.inbox.popleft()))
                return True
        return False

    def settle(self) -> None:
        """Until nothing moves any more."""
        while True:
            while self.deliver_one():
                pass
            if not self.written or self.front is None:
                return
            self.force()

    def wait(self, milliseconds: float) -> None:
        """Time passes; whoever wanted a tick gets one."""
        self.now = Instant(self.now + ms(milliseconds))
        if self.front is not None and _due(self.front.deadline(), self.now):
            self._coordinator_effects(self.front.step(self.now, Tick()))
        for side in self.sides.values():
            if _due(side.link.deadline(), self.now):
                self._broker_step(side, link.Tick())

    # -- what brokers are asked

    def create(self, broker: int, *topics: creation.CreatableTopic) -> Outcome:
        request = creation.CreateTopicsRequest(topics=list(topics))
        return self._forward(
            broker, joined(encode_request(creation.API, CREATE_VERSION, 19 << 24, None, request))
        )

    def delete(self, broker: int, *names: str) -> Outcome:
        states = [deletion.DeleteTopicState(name=name) for name in names]
        request = deletion.DeleteTopicsRequest(topics=states)
        return self._forward(
            broker, joined(encode_request(deletion.API, DELETE_VERSION, 20 << 24, None, request))
        )

    def grow(self, broker: int, name: str, count: int) -> Outcome:
        topics = [growth.CreatePartitionsTopic(name=name, count=count, assignments=None)]
        request = growth.CreatePartitionsRequest(topics=topics)
        return self._forward(
            broker, joined(encode_request(growth.API, GROWTH_VERSION, 37 << 24, None, request))
        )

    def reassign(self, broker: int, name: str, replicas: list[int] | None) -> Outcome:
        """Partition 0 to these replicas; to None: what is under way is cancelled."""
        row = reassigning.ReassignablePartition(partition_index=0, replicas=replicas)
        request = reassigning.AlterPartitionReassignmentsRequest(
            topics=[reassigning.ReassignableTopic(name=name, partitions=[row])]
        )
        frame = encode_request(reassigning.API, 1, 45 << 24, None, request)
        return self._forward(broker, joined(frame))

    def configure(self, broker: int, resource: str, name: str, value: str | None) -> Outcome:
        """Set or take back one entry: of a topic, or of all brokers where no topic is named."""
        operation = 1 if value is None else 0
        entry = altering.AlterableConfig(name=name, config_operation=operation, value=value)
        row = altering.AlterConfigsResource(
            resource_type=2 if resource else 4, resource_name=resource, configs=[entry]
        )
        request = altering.IncrementalAlterConfigsRequest(resources=[row])
        return self._forward(
            broker, joined(encode_request(altering.API, ALTER_VERSION, 44 << 24, None, request))
        )

    def unregister(self, broker: int, whom: int) -> Outcome:
        request = unregistering.UnregisterBrokerRequest(broker_id=whom)
        return self._forward(
            broker, joined(encode_request(unregistering.API, 0, 64 << 24, None, request))
        )

    def describe_quorum(
        self, broker: int, request: quorum.DescribeQuorumRequest
    ) -> quorum.DescribeQuorumResponse:
        """What is told by now: what is under way goes on afterwards."""
        frame = joined(encode_request(quorum.API, QUORUM_VERSION, 55 << 24, None, request))
        side = self.sides[BrokerId(broker)]
        outcome = self._forward(broker, frame)
        peer, asked = self.inbox.pop()
        assert self.front is not None
        for effect in self.front.step(self.now, front.Received(peer, asked)):
            assert isinstance(effect, front.SendTo)
            self._broker_step(side, link.Received(encode(effect.message)))
        assert isinstance(outcome.result, bytes), outcome
        _, answer = decode_response(quorum.API, QUORUM_VERSION, memoryview(outcome.result))
        return answer

    def _forward(self, broker: int, frame: bytes) -> Outcome:
        number, deadline = next(self._numbers), Instant(self.now + ms(CALL_MS))
        return self.ask(broker, link.ForwardAsked(number, CLIENT, frame[4:], deadline))

    def allocate(self, broker: int) -> Outcome:
        deadline = Instant(self.now + ms(CALL_MS))
        return self.ask(broker, link.IdsAsked(next(self._numbers), deadline))

    def alter_isr(self, broker: int, *changes: IsrChange) -> Outcome:
        deadline = Instant(self.now + ms(ALTER_ISR_TIMEOUT_MS))
        return self.ask(broker, link.IsrAsked(next(self._numbers), changes, deadline))

    def leave(self, broker: int) -> Outcome:
        deadline = Instant(self.now + ms(CALL_MS))
        return self.ask(broker, link.LeaveAsked(next(self._numbers), deadline))

    def ask(self, broker: int, asked: link.Asked) -> Outcome:
        outcome = self.calls[asked.call] = Outcome()
        self._broker_step(self.sides[BrokerId(broker)], asked)
        return outcome

    # -- effects

    def _connect(self, side: Side) -> None:
        side.connected = True
        self._broker_step(side, link.Connected())

    def _broker_step(self, side: Side, event: link.Event) -> None:
        for effect in side.link.step(self.now, event):
            match effect:
                case link.Send(message):
                    if self.front is not None and side.connected:
                        self.inbox.append((side.peer, encode(message)))
                case link.Finished(call, result):
                    assert self.calls[call].result is None, call
                    self.calls[call].result = result
                    self.calls[call].on_disk = len(self.durable)
                case link.Joined(epoch):
                    side.epochs.append(epoch)
                case link.Fenced():
                    side.fenced += 1
                case link.TurnedAway(code, _):
                    side.turned_away.append(code)
                case link.ImageChanged() | link.Suspected():
                    side.told(effect)
                case link.EndsWanted(places):
                    ends = tuple(self._log_end(side, *place) for place in places)
                    self._broker_step(side, link.EndsTold(ends))
        check(side.link.image)

    def _log_end(self, side: Side, topic: TopicView, partition: int) -> LogEnd:
        return LogEnd(
            topic=topic.id,
            partition=partition,
            leader_epoch=topic.partitions[partition].leader_epoch,
            last_epoch=side.last_epoch,
            end=side.end,
            high_watermark=side.high_watermark,
        )

    def _coordinator_effects(self, effects: list[front.Effect]) -> None:
        for effect in effects:
            self._coordinator_effect(effect)
        check(self.shard.image)

    def _coordinator_effect(self, effect: front.Effect) -> None:
        match effect:
            case front.Append():
                self.written.append(effect)
            case front.SendTo(peer, message):
                self._check_fences(message)
                self._send(peer, message)
            case front.Fence(broker, epoch):
                assert epoch >= self.fences.get(broker, 0), "a fence is never lifted"
                self.fences[broker] = epoch
            case front.Happened(what):
                self.happened += what
            case front.Active(epoch):
                self.epochs.append(epoch)
            case front.SaveSnapshot():
                self.snapshots.append(effect)
            case front.LossyElection() | front.TopicGone():
                self.logged.append(effect)
            case front.Ignored(_, reason):
                self.ignored.append(reason)
            case front.RequestFailed(reason) | front.GiveUp(reason):
                raise AssertionError(reason)

    def _send(self, peer: bytes, message: ToBroker) -> None:
        for side in self.sides.values():
            if side.peer == peer and side.connected:
                side.inbox.append(encode(message))

    def _check_fences(self, message: ToBroker) -> None:
        """Nobody hears that a broker is out before the broker itself can know it."""
        if isinstance(message, Deltas):
            for record in message.records:
                if isinstance(record, BrokerFenced):
                    assert self.fences.get(record.broker, 0) >= record.epoch, record


def _due(deadline: Instant | None, now: Instant) -> bool:
    return deadline is not None and deadline <= now
