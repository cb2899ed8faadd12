"""The controller: decides on brokers, topics and producer ids, by the metadata log alone."""

from typing import assert_never

from tidelog.coordinator.controller import brokers
from tidelog.coordinator.controller.config_changes import (
    alter_configs,
    incremental_alter_configs,
)
from tidelog.coordinator.controller.creation import TopicCreation
from tidelog.coordinator.controller.deletion import delete_topics
from tidelog.coordinator.controller.draws import Draws
from tidelog.coordinator.controller.isr_changes import alter_isr
from tidelog.coordinator.controller.partitions_growth import create_partitions
from tidelog.coordinator.controller.requests import (
    Activate,
    AllocateProducerIds,
    AlterConfigs,
    AlterIsr,
    BrokerApplied,
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
    IncrementalAlterConfigs,
    IsrOutcomes,
    ProducerIdBlock,
    RegisterBroker,
)
from tidelog.coordinator.controller.waiting import AppliedWaits
from tidelog.coordinator.settings import ControllerSettings
from tidelog.kernel.ids import BrokerId, Epoch, Incarnation, Offset, ProducerId, RequestId
from tidelog.kernel.instant import Instant
from tidelog.kernel.limits import PRODUCER_ID_BLOCK
from tidelog.kernel.shard import Decision
from tidelog.node.metadata.image import METADATA_VERSION, MetadataImage
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.metadata_records import (
    ClusterCreated,
    ControllerActivated,
    FeatureChanged,
    MetadataRecord,
    ProducerIdsAllocated,
)

FEATURES = {METADATA_VERSION: 27}
"""Levels that a cluster is finalized at. Raising one writes a record at the next start."""

ControllerDecision = Decision[MetadataRecord, ControllerReply]
DONE = Done()


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
        self._waits: AppliedWaits[ControllerReply] = AppliedWaits()
        self._joining: dict[BrokerId, Offset] = {}
        """Registered in this life of the controller and still fenced, with their epochs. Only
        these are unfenced: an acknowledgement that was under way when its sender hung is old."""

    def decide(
        self, now: Instant, asked: RequestId, request: ControllerRequest
    ) -> ControllerDecision:
        match request:
            case RegisterBroker() | BrokerApplied() | AlterIsr() | AllocateProducerIds():
                return self._broker(now, asked, request)
            case BrokerStarted() | BrokerLost():
                return self._lost(now, asked, request.broker, before=request.next_life)
            case Activate():
                return Decision(self._activate(request), ((asked, DONE),))
            case _:
                return self._client(now, asked, request)

    def expire(self, now: Instant) -> ControllerDecision:
        return Decision((), self._waits.done(now, self.image.alive()))

    def replay(self, record: MetadataRecord) -> None:
        self.image.replay(record)

    def deadline(self) -> Instant | None:
        return self._waits.deadline()

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
        fenced = brokers.fence_all(image) if image.run_id != request.run_id else ()
        return (
            *created,
            *(
                FeatureChanged(name, level)
                for name, level in FEATURES.items()
                if image.features.get(name) != level
            ),
            ControllerActivated(
                Epoch(image.controller_epoch + 1), request.incarnation, request.run_id
            ),
            *fenced,
        )

    def _broker(self, now: Instant, asked: RequestId, request: BrokerRequest) -> ControllerDecision:
        match request:
            case RegisterBroker():
                return self._register(asked, request)
            case BrokerApplied():
                return self._applied(now, asked, request)
            case AlterIsr():
                return self._alter_isr(asked, request)
            case AllocateProducerIds():
                return self._producer_ids(asked, request)
            case _:
                assert_never(request)

    def _register(self, asked: RequestId, request: RegisterBroker) -> ControllerDecision:
        image = self.image
        brokers.check_registration(image, request)
        self._waits.applied(request.broker, request.applied)
        if brokers.is_current(image, request):
            epoch = image.brokers[request.broker].epoch
            return Decision((), ((asked, BrokerRegistration(epoch)),))
        records = brokers.register(image, request)
        epoch = Offset(image.offset + len(records))
        self._joining[request.broker] = epoch
        return Decision(records, ((asked, BrokerRegistration(epoch)),))

    def _applied(
        self, now: Instant, asked: RequestId, request: BrokerApplied
    ) -> ControllerDecision:
        broker = self.image.brokers.get(request.broker)
        if broker is None or broker.incarnation != request.incarnation:
            return Decision((), ((asked, DONE),))
        self._waits.applied(request.broker, request.offset)
        replies = ((asked, DONE), *self._waits.done(now, self.image.alive()))
        joining = self._joining.get(broker.id)
        if joining is None or request.offset < joining:
            return Decision((), replies)
        del self._joining[broker.id]
        return Decision(brokers.unfence(self.image, broker), replies)

    def _lost(
        self, now: Instant, asked: RequestId, broker_id: BrokerId, *, before: Incarnation
    ) -> ControllerDecision:
        """Fence a broker if the life it registered with began before this incarnation."""
        broker = self.image.brokers.get(broker_id)
        if broker is None or broker.incarnation >= before:
            return Decision((), ((asked, DONE),))
        self._joining.pop(broker_id, None)
        # It need not be waited for, though the image is told only when this is replayed.
        left = [other for other in self.image.alive() if other != broker_id]
        replies = ((asked, DONE), *self._waits.done(now, left))
        return Decision(brokers.fence(self.image, broker), replies)

    def _client(self, now: Instant, asked: RequestId, request: ClientRequest) -> ControllerDecision:
        """Decided at once, answered when every live broker has taken it."""
        records, reply = self._decided(request)
        if not records or not self.image.alive():
            return Decision(records, ((asked, reply),))
        self._waits.wait(now, asked, Offset(self.image.offset + len(records)), reply)
        return Decision(records)

    def _decided(
        self, request: ClientRequest
    ) -> tuple[tuple[MetadataRecord, ...], ControllerReply]:
        image, settings = self.image, self._settings
        match request:
            case CreateTopics():
                return TopicCreation(image, settings, self._draws).decide(request.message)
            case DeleteTopics():
                return delete_topics(image, settings, request.version, request.message)
            case CreatePartitions():
                return create_partitions(image, self._draws, request.message)
            case AlterConfigs():
                return alter_configs(image, settings, request.message)
            case IncrementalAlterConfigs():
                return incremental_alter_configs(image, settings, request.message)
            case _:
                assert_never(request)

    def _alter_isr(self, asked: RequestId, request: AlterIsr) -> ControllerDecision:
        records, outcomes = alter_isr(self.image, request)
        end = Offset(self.image.offset + len(records))
        return Decision(records, ((asked, IsrOutcomes(outcomes, end)),))

    def _producer_ids(self, asked: RequestId, request: AllocateProducerIds) -> ControllerDecision:
        broker = self.image.brokers.get(request.broker)
        if broker is None or broker.incarnation != request.incarnation:
            raise Rejected(
                ErrorCode.STALE_BROKER_EPOCH, f"broker {request.broker} is not registered"
            )
        first = self.image.producer_id_next
        record = ProducerIdsAllocated(broker.id, ProducerId(first + PRODUCER_ID_BLOCK))
        return Decision((record,), ((asked, ProducerIdBlock(first, PRODUCER_ID_BLOCK)),))
