"""The controller: decides on brokers, topics and producer ids, by the metadata log alone."""

from typing import assert_never

from msgspec import Struct

from tidelog.coordinator.controller import brokers
from tidelog.coordinator.controller.config_changes import (
    alter_configs,
    incremental_alter_configs,
)
from tidelog.coordinator.controller.config_effects import effects_of
from tidelog.coordinator.controller.creation import TopicCreation
from tidelog.coordinator.controller.deletion import delete_topics
from tidelog.coordinator.controller.draws import Draws
from tidelog.coordinator.controller.features import update_features
from tidelog.coordinator.controller.isr_changes import alter_isr, damaged, without_room
from tidelog.coordinator.controller.leader_elections import elect_leaders
from tidelog.coordinator.controller.partitions_growth import create_partitions
from tidelog.coordinator.controller.reassignments import alter_reassignments
from tidelog.coordinator.controller.recovery import Recovery, Window
from tidelog.coordinator.controller.requests import (
    Activate,
    AllocateProducerIds,
    AlterConfigs,
    AlterIsr,
    AlterReassignments,
    AskedAgain,
    BrokerApplied,
    BrokerLeaving,
    BrokerLost,
    BrokerRegistration,
    BrokerRequest,
    BrokerStarted,
    ClientRequest,
    ControllerReply,
    ControllerRequest,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    Done,
    ElectLeaders,
    IncrementalAlterConfigs,
    IsrOutcomes,
    ProducerIdBlock,
    RegisterBroker,
    RegisterTransactions,
    TellDamage,
    TellLogEnds,
    TellNoRoom,
    UnregisterBroker,
    UpdateFeatures,
)
from tidelog.coordinator.controller.states import check_steps
from tidelog.coordinator.controller.transactions import activate, holds
from tidelog.coordinator.controller.waiting import AppliedWaits
from tidelog.coordinator.settings import ControllerSettings
from tidelog.kernel.ids import BrokerId, Epoch, Incarnation, Offset, ProducerId, RequestId
from tidelog.kernel.instant import Instant, s
from tidelog.kernel.limits import LEADERS_MOVED_PER_DECISION_MAX, PRODUCER_ID_BLOCK
from tidelog.kernel.shard import Decision
from tidelog.node.log.flush_policy import OS
from tidelog.node.metadata.features import KEPT, SUPPORTED
from tidelog.node.metadata.image import BrokerView, MetadataImage
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages.k64_unregister_broker import UnregisterBrokerResponse
from tidelog.wire.metadata_records import (
    BrokerRegistered,
    ClusterCreated,
    ControllerActivated,
    FeatureChanged,
    MetadataRecord,
    PartitionChanged,
    PartitionView,
    ProducerIdsAllocated,
)

_Record = MetadataRecord
_Replies = tuple[tuple[RequestId, ControllerReply], ...]
ControllerDecision = Decision[MetadataRecord, ControllerReply]
DONE = Done()


class Departed(Struct, frozen=True):
    """Takes the place of the answer to a broker that leaves: when all know, it is fenced."""

    broker: BrokerId
    epoch: Offset


class ControllerShard:
    """Owns brokers, topics, their settings and ids, and the producer ids given away.

    Invariant: the image is what the records of the log make, and nothing else is durable. Who waits
    and who is about to be unfenced is soft: after a crash brokers register again and ask again.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        draws: Draws,
        image: MetadataImage | None = None,
    ) -> None:
        self.image = image or MetadataImage()
        self._settings = settings
        self._draws = draws
        self._waits: AppliedWaits[ControllerReply | Departed] = AppliedWaits()
        self._recovery = Recovery()
        self._rebalance_at: Instant | None = None
        self._leaving: dict[BrokerId, RequestId] = {}
        """Who gives away what it leads, and is not done with it."""
        self._joining: dict[BrokerId, Offset] = {}
        """Registered in this life of the controller and still fenced, with their epochs. Only
        these are unfenced: an acknowledgement that was under way when its sender hung is old."""

    def decide(
        self, now: Instant, asked: RequestId, request: ControllerRequest
    ) -> ControllerDecision:
        if isinstance(request, ClientRequest):
            return self._client(now, asked, request)
        match request:
            case AskedAgain():
                return self._asked_again(now, asked, request)
            case BrokerStarted() | BrokerLost():
                return self._lost(now, asked, request.broker, before=request.next_life)
            case RegisterTransactions():
                records, epoch = activate(self.image, request)
                return Decision(records, ((asked, BrokerRegistration(Offset(epoch))),))
            case Activate():
                self._rebalance_at = self._rebalance_after(now)
                return Decision(self._activate(request), ((asked, DONE),))
            case _:
                return self._broker(now, asked, request)

    def expire(self, now: Instant) -> ControllerDecision:
        if self._rebalance_at is not None and now >= self._rebalance_at:
            return self._rebalance(now)
        for broker in self._leaving:
            return self._give_away(now, self.image.brokers[broker])
        elected = self._recovery.expire(now, self.image, self._settings.rules(self.image))
        fenced, replies = self._known(now)
        return Decision((*elected, *fenced), replies)

    def replay(self, record: MetadataRecord) -> None:
        check_steps(self.image, record)
        self.image.replay(record)

    def deadline(self) -> Instant | None:
        if self._leaving:
            return Instant(0)
        times = (self._waits.deadline(), self._recovery.deadline(), self._rebalance_at)
        return min((one for one in times if one is not None), default=None)

    def _activate(self, request: Activate) -> tuple[MetadataRecord, ...]:
        image = self.image
        created: tuple[MetadataRecord, ...] = ()
        if not image.cluster_id:
            created = (ClusterCreated(request.cluster_id),)
        elif image.cluster_id != request.cluster_id:
            raise Rejected(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"the metadata log is of cluster {image.cluster_id}, "
                f"this is cluster {request.cluster_id}",
            )
        # Brokers end with their supervisor: nobody of an earlier run is left.
        rules = self._settings.rules(image)
        fenced = (
            brokers.fence(image, rules, image.brokers.values())
            if image.run_id != request.run_id
            else ()
        )
        return (
            *created,
            *(
                FeatureChanged(name, levels.highest)
                for name, levels in SUPPORTED.items()
                if image.features.get(name) != levels.highest
                and not (name in KEPT and name in image.features)
            ),
            ControllerActivated(
                Epoch(image.controller_epoch + 1), request.incarnation, request.run_id
            ),
            *fenced,
        )

    def _broker(self, now: Instant, asked: RequestId, request: BrokerRequest) -> ControllerDecision:
        match request:
            case RegisterBroker():
                return self._register(now, asked, request)
            case BrokerApplied():
                return self._applied(now, asked, request)
            case BrokerLeaving():
                return self._leave(now, asked, request)
            case AlterIsr() | TellDamage() | TellNoRoom():
                return self._in_sync(asked, request)
            case TellLogEnds():
                return self._log_ends(now, asked, request)
            case AllocateProducerIds():
                return self._producer_ids(asked, request)
            case _:
                assert_never(request)

    def _register(
        self, now: Instant, asked: RequestId, request: RegisterBroker
    ) -> ControllerDecision:
        image = self.image
        brokers.check_registration(image, request)
        self._waits.applied(request.broker, request.applied)
        if brokers.is_current(image, request):
            epoch = image.brokers[request.broker].epoch
            return Decision((), ((asked, BrokerRegistration(epoch)),))
        records = brokers.register(image, self._settings.rules(image), request)
        (epoch,) = (one.epoch for one in records if isinstance(one, BrokerRegistered))
        left = self._life_over(now, request.broker)
        self._joining[request.broker] = epoch
        return Decision(records, ((asked, BrokerRegistration(epoch)), *left))

    def _applied(
        self, now: Instant, asked: RequestId, request: BrokerApplied
    ) -> ControllerDecision:
        broker = self.image.brokers.get(request.broker)
        if broker is None or broker.incarnation != request.incarnation:
            return Decision((), ((asked, DONE),))
        self._waits.applied(request.broker, request.offset)
        fenced, replies = self._known(now)
        replies = ((asked, DONE), *replies)
        joining = self._joining.get(broker.id)
        if joining is None or request.offset < joining:
            return Decision(fenced, replies)
        del self._joining[broker.id]
        unfenced = brokers.unfence(self.image, self._settings.rules(self.image), broker)
        return Decision((*fenced, *unfenced), replies)

    def _known(
        self, now: Instant, *, lost: BrokerId | None = None
    ) -> tuple[tuple[_Record, ...], _Replies]:
        """What everyone who stays knows by now: answers, and who is fenced as it has left. Who is
        lost need not be waited for, though the image is told only when this is replayed."""
        image = self.image
        done = self._waits.done(now, [one for one in image.active() if one != lost])
        departed = [
            broker
            for _, one in done
            if isinstance(one, Departed) and one.broker != lost
            for broker in [image.brokers.get(one.broker)]
            if broker is not None and broker.epoch == one.epoch
        ]
        fenced = brokers.fence(image, self._settings.rules(image), departed)
        return fenced, tuple(
            (asked, DONE if isinstance(reply, Departed) else reply) for asked, reply in done
        )

    def _leave(self, now: Instant, asked: RequestId, request: BrokerLeaving) -> ControllerDecision:
        broker = self._living(request.broker, request.incarnation)
        if broker is None or broker.stopping:
            return Decision((), ((asked, DONE),))
        self._leaving[broker.id] = asked
        self._recovery.look_again(now)
        return self._give_away(now, broker)

    def _rebalance(self, now: Instant) -> ControllerDecision:
        """Leaders go back to where they were placed: deaths would heap them on who was left."""
        most = LEADERS_MOVED_PER_DECISION_MAX
        records = brokers.give_back(self.image, self._settings.rules(self.image), most=most)
        self._rebalance_at = now if len(records) == most else self._rebalance_after(now)
        return Decision(records)

    def _rebalance_after(self, now: Instant) -> Instant | None:
        after_s = self._settings.rebalance_after_s
        return None if after_s is None else Instant(now + s(after_s))

    def _give_away(self, now: Instant, broker: BrokerView) -> ControllerDecision:
        """A part of what a leaving broker leads; when that was all, everyone must hear of it."""
        rules = self._settings.rules(self.image)
        records = brokers.leave(self.image, rules, broker, most=LEADERS_MOVED_PER_DECISION_MAX)
        moved = sum(isinstance(one, PartitionChanged) for one in records)
        if moved < LEADERS_MOVED_PER_DECISION_MAX:
            asked = self._leaving.pop(broker.id)
            end = Offset(self.image.offset + len(records))
            self._waits.wait(now, asked, end, Departed(broker.id, broker.epoch))
        return Decision(records) if records else Decision(*self._known(now))

    def _log_ends(self, now: Instant, asked: RequestId, request: TellLogEnds) -> ControllerDecision:
        image = self.image
        broker = self._living(request.broker, request.incarnation)
        if broker is None:
            return Decision((), ((asked, DONE),))
        places = self._recovery.told(now, image, broker.id, request.ends)
        records = self._recovery.elect(now, image, self._settings.rules(image), places)
        return Decision(tuple(records), ((asked, DONE),))

    def _lost(
        self, now: Instant, asked: RequestId, broker_id: BrokerId, *, before: Incarnation
    ) -> ControllerDecision:
        """Fence a broker if the life it registered with began before this incarnation."""
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.incarnation >= before:
            return Decision((), ((asked, DONE),))
        left = self._life_over(now, broker_id)
        rules = self._settings.rules(self.image)
        departed, replies = self._known(now, lost=broker_id)
        lost = brokers.fence(self.image, rules, [broker])
        return Decision((*lost, *departed), ((asked, DONE), *left, *replies))

    def window_of(self, before: PartitionView, election: PartitionChanged) -> Window:
        """What was lost where this one leads now, as far as can be told."""
        place, after = (election.topic, election.partition), election.view
        topic = self.image.topics.get(election.topic)
        rules = OS if topic is None else self._settings.flush_rules(self.image, topic)
        return Window(
            records=after.lost_records - before.lost_records,
            start=self._recovery.lost_from(place, before.leader_epoch, after.leader),
            bound=rules.window,
        )

    def _life_over(self, now: Instant, broker_id: BrokerId) -> _Replies:
        """Forget what is known of this life only; who wanted to leave has left."""
        self._joining.pop(broker_id, None)
        self._recovery.lost(now, broker_id)
        leaving = self._leaving.pop(broker_id, None)
        return () if leaving is None else ((leaving, DONE),)

    def _living(self, broker_id: BrokerId, incarnation: Incarnation) -> BrokerView | None:
        """The broker, if it is in this life and in the cluster."""
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.fenced or broker.incarnation != incarnation:
            return None
        return broker

    def reply_to_be(self, asked: RequestId) -> ControllerReply | None:
        """What is decided and waits until every live broker knows."""
        reply = self._waits.reply(asked)
        assert not isinstance(reply, Departed)
        return reply

    def _asked_again(
        self, now: Instant, asked: RequestId, request: AskedAgain
    ) -> ControllerDecision:
        if not self.image.active():
            return Decision((), ((asked, request),))
        self._waits.wait(now, asked, self.image.offset, request)
        return Decision(*self._known(now))

    def _client(self, now: Instant, asked: RequestId, request: ClientRequest) -> ControllerDecision:
        """Decided at once, answered when every live broker has taken it."""
        records, reply = self._decided(request)
        if isinstance(request, AlterConfigs | IncrementalAlterConfigs):
            records = (*records, *effects_of(self.image, self._settings, records))
            self._recovery.look_again(now)
        left: _Replies = ()
        if isinstance(request, UnregisterBroker):
            left = self._life_over(now, BrokerId(request.message.broker_id))
        if not records or not self.image.active():
            return Decision(records, ((asked, reply), *left))
        self._waits.wait(now, asked, Offset(self.image.offset + len(records)), reply)
        return Decision(records, left)

    def _decided(
        self, request: ClientRequest
    ) -> tuple[tuple[MetadataRecord, ...], ControllerReply]:
        image, settings = self.image, self._settings
        match request:
            case CreateTopics():
                return TopicCreation(image, settings, self._draws).decide(request.message)
            case DeleteTopics():
                return delete_topics(image, settings, request.version, request.message)
            case AlterConfigs():
                return alter_configs(image, settings, request.message)
            case IncrementalAlterConfigs():
                return incremental_alter_configs(image, settings, request.message)
            case UpdateFeatures() | UnregisterBroker():
                return self._of_cluster(request)
            case _:
                return self._of_partitions(request)

    def _of_partitions(
        self, request: CreatePartitions | ElectLeaders | AlterReassignments
    ) -> tuple[tuple[MetadataRecord, ...], ControllerReply]:
        image, rules = self.image, self._settings.rules(self.image)
        match request:
            case CreatePartitions():
                return create_partitions(image, request.message)
            case ElectLeaders():
                return elect_leaders(image, rules, self._recovery, request.message)
            case AlterReassignments():
                return alter_reassignments(image, rules, request.message)
            case _:
                assert_never(request)

    def _of_cluster(
        self, request: UpdateFeatures | UnregisterBroker
    ) -> tuple[tuple[MetadataRecord, ...], ControllerReply]:
        image = self.image
        match request:
            case UpdateFeatures():
                return update_features(image, request.version, request.message)
            case UnregisterBroker():
                broker = BrokerId(request.message.broker_id)
                records = brokers.unregister(image, self._settings.rules(image), broker)
                return records, UnregisterBrokerResponse(error_message=None)
            case _:
                assert_never(request)

    def _in_sync(
        self, asked: RequestId, request: AlterIsr | TellDamage | TellNoRoom
    ) -> ControllerDecision:
        rules = self._settings.rules(self.image)
        if isinstance(request, TellDamage):
            joins = request.broker in self._joining
            return Decision(damaged(self.image, rules, request, joins=joins), ((asked, DONE),))
        if isinstance(request, TellNoRoom):
            return Decision(without_room(self.image, rules, request), ((asked, DONE),))
        records, outcomes = alter_isr(self.image, rules, request)
        end = Offset(self.image.offset + len(records))
        return Decision(records, ((asked, IsrOutcomes(outcomes, end)),))

    def _producer_ids(self, asked: RequestId, request: AllocateProducerIds) -> ControllerDecision:
        broker = self.image.brokers.get(request.broker)
        lives = broker is not None and broker.incarnation == request.incarnation
        if not lives and not holds(self.image, request.broker, request.incarnation):
            raise Rejected(
                ErrorCode.STALE_BROKER_EPOCH, f"broker {request.broker} is not registered"
            )
        first = self.image.producer_id_next
        record = ProducerIdsAllocated(request.broker, ProducerId(first + PRODUCER_ID_BLOCK))
        return Decision((record,), ((asked, ProducerIdBlock(first, PRODUCER_ID_BLOCK)),))
