"""What the controller is asked, and what it replies."""

from msgspec import Struct

from tidelog.kernel.ids import BrokerId, Incarnation, Offset, ProducerId, Uuid
from tidelog.wire.control import DamagedLog, IsrChange, LogEnd, NoRoom
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsResponse
from tidelog.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from tidelog.wire.messages.k33_alter_configs import AlterConfigsRequest, AlterConfigsResponse
from tidelog.wire.messages.k37_create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
)
from tidelog.wire.messages.k43_elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from tidelog.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tidelog.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from tidelog.wire.messages.k57_update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tidelog.wire.messages.k64_unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from tidelog.wire.metadata_records import StopKind


class Activate(Struct, frozen=True):
    """The first request of every life of the controller."""

    cluster_id: str
    incarnation: Incarnation
    run_id: str


class RegisterBroker(Struct, frozen=True):
    cluster_id: str
    broker: BrokerId
    incarnation: Incarnation
    host: str
    port: int
    rack: str | None
    log_dirs: tuple[Uuid, ...]
    stopped: StopKind
    applied: Offset
    kept: tuple[tuple[Uuid, tuple[int, ...]], ...] = ()
    """By topic, partitions of which it has all that it ever vouched for."""


class RegisterTransactions(Struct, frozen=True):
    """A life of the transaction coordinator wants its epoch."""

    cluster_id: str
    incarnation: Incarnation


class BrokerRegistration(Struct, frozen=True):
    """Reply to RegisterBroker and RegisterTransactions: the epoch of this life."""

    epoch: Offset


class BrokerApplied(Struct, frozen=True):
    """A broker's image has everything up to this offset."""

    broker: BrokerId
    incarnation: Incarnation
    offset: Offset


class BrokerStarted(Struct, frozen=True):
    """The supervisor forked a broker: its earlier lives are over."""

    broker: BrokerId
    incarnation: Incarnation

    @property
    def next_life(self) -> Incarnation:
        """Every life before this one is over."""
        return self.incarnation


class BrokerLost(Struct, frozen=True):
    """This life of a broker died, stopped, or hangs."""

    broker: BrokerId
    incarnation: Incarnation

    @property
    def next_life(self) -> Incarnation:
        """Every life before this one is over."""
        return Incarnation(self.incarnation + 1)


class CreateTopics(Struct, frozen=True):
    version: int
    message: CreateTopicsRequest


class DeleteTopics(Struct, frozen=True):
    version: int
    message: DeleteTopicsRequest


class CreatePartitions(Struct, frozen=True):
    version: int
    message: CreatePartitionsRequest


class AlterConfigs(Struct, frozen=True):
    """Each resource's settings become what is given; what is not given is taken away."""

    version: int
    message: AlterConfigsRequest


class IncrementalAlterConfigs(Struct, frozen=True):
    version: int
    message: IncrementalAlterConfigsRequest


class ElectLeaders(Struct, frozen=True):
    version: int
    message: ElectLeadersRequest


class UpdateFeatures(Struct, frozen=True):
    version: int
    message: UpdateFeaturesRequest


class UnregisterBroker(Struct, frozen=True):
    version: int
    message: UnregisterBrokerRequest


class AlterReassignments(Struct, frozen=True):
    version: int
    message: AlterPartitionReassignmentsRequest


class AllocateProducerIds(Struct, frozen=True):
    broker: BrokerId
    incarnation: Incarnation


class ProducerIdBlock(Struct, frozen=True):
    """Reply to AllocateProducerIds."""

    first: ProducerId
    count: int


class TellLogEnds(Struct, frozen=True):
    """What a broker has of partitions that nobody leads."""

    broker: BrokerId
    incarnation: Incarnation
    ends: tuple[LogEnd, ...]


class TellDamage(Struct, frozen=True):
    """A broker's replicas whose files are no good. It may be fenced still: before it is let in."""

    broker: BrokerId
    incarnation: Incarnation
    logs: tuple[DamagedLog, ...]


class TellNoRoom(Struct, frozen=True):
    """A broker leads these and has no room for them; others have."""

    broker: BrokerId
    incarnation: Incarnation
    places: tuple[NoRoom, ...]


class BrokerLeaving(Struct, frozen=True):
    """A broker wants to stop; answered when it leads nothing, and all who live know."""

    broker: BrokerId
    incarnation: Incarnation


class AlterIsr(Struct, frozen=True):
    """A leader wants other in-sync replicas."""

    broker: BrokerId
    incarnation: Incarnation
    changes: tuple[IsrChange, ...]


class IsrOutcomes(Struct, frozen=True):
    """Reply to AlterIsr: what became of each change, and where the log has what was taken."""

    outcomes: tuple[ErrorCode, ...]
    offset: Offset


class Done(Struct, frozen=True):
    """Reply to everything that only tells the controller something."""


class AskedAgain(Struct, frozen=True):
    """A client's request that is decided already; also its reply, once every live broker knows."""

    answer: bytes


ClientRequest = (
    CreateTopics
    | DeleteTopics
    | CreatePartitions
    | AlterConfigs
    | IncrementalAlterConfigs
    | ElectLeaders
    | UpdateFeatures
    | UnregisterBroker
    | AlterReassignments
)
"""What a client asked of a broker that passed it on; answered once every live broker knows."""

ClientReply = (
    CreateTopicsResponse
    | DeleteTopicsResponse
    | CreatePartitionsResponse
    | AlterConfigsResponse
    | IncrementalAlterConfigsResponse
    | ElectLeadersResponse
    | UpdateFeaturesResponse
    | UnregisterBrokerResponse
    | AlterPartitionReassignmentsResponse
)

BrokerRequest = (
    RegisterBroker
    | BrokerApplied
    | BrokerLeaving
    | AlterIsr
    | TellLogEnds
    | TellDamage
    | TellNoRoom
    | AllocateProducerIds
)
"""What a broker says or wants for itself."""

ControllerRequest = (
    Activate
    | BrokerRequest
    | RegisterTransactions
    | BrokerStarted
    | BrokerLost
    | ClientRequest
    | AskedAgain
)
ControllerReply = (
    BrokerRegistration | ProducerIdBlock | IsrOutcomes | ClientReply | AskedAgain | Done
)
