"""A controller with one partition whose replicas may lose files, and what its brokers tell."""

from harness.machines.controllers import ONE, THREE, TWO, Controlled, topic
from tidelog.coordinator.controller.requests import (
    AlterIsr,
    ElectLeaders,
    IncrementalAlterConfigs,
    TellDamage,
    TellLogEnds,
    TellNoRoom,
)
from tidelog.kernel.ids import BrokerId, Epoch, Incarnation, Offset
from tidelog.kernel.instant import Instant, ms
from tidelog.wire.control import DamagedLog, IsrChange, LogEnd, NoRoom
from tidelog.wire.messages.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    TopicPartitions,
)
from tidelog.wire.messages.k44_incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidelog.wire.metadata_records import PartitionView, StopKind

POWER_LOSS = StopKind.POWER_LOSS
UNCLEAN: dict[str, str | None] = {"unclean.leader.election.enable": "true"}


class Lossy(Controlled):
    """A controller with partition t-0 on three brokers, two of which must be in sync."""

    def __init__(self, configs: dict[str, str | None] | None = None) -> None:
        super().__init__(ONE, TWO, THREE)
        given: dict[str, str | None] = {"min.insync.replicas": "2", **(configs or {})}
        self.create(topic(assignments={0: [ONE, TWO, THREE]}, configs=given))

    @property
    def view(self) -> PartitionView:
        (view,) = self.image.names["t"].partitions
        return view

    def tell(
        self,
        broker: BrokerId,
        last_epoch: int,
        end: int,
        high_watermark: int = 0,
        missing: int = 0,
    ) -> None:
        """Where a broker's log of the partition ends, in the image of now. So many offsets at its
        front may be missing."""
        told = LogEnd(
            topic=self.image.names["t"].id,
            partition=0,
            leader_epoch=self.view.leader_epoch,
            last_epoch=Epoch(last_epoch),
            end=Offset(end),
            high_watermark=Offset(high_watermark),
            start=Offset(missing),
            missing=missing,
        )
        self.ask(TellLogEnds(broker, self.image.brokers[broker].incarnation, (told,)))

    def tell_damage(self, broker: BrokerId, *, usable: bool = False, late: bool = False) -> None:
        """Its log of the partition is damaged, in the image of now or of the last change."""
        epoch = Epoch(self.view.partition_epoch - late)
        log = DamagedLog(self.image.names["t"].id, 0, epoch, usable)
        self.ask(TellDamage(broker, self.image.brokers[broker].incarnation, (log,)))

    def tell_no_room(
        self, broker: BrokerId, *others: BrokerId, late: bool = False, incarnation: int = 1
    ) -> None:
        """Its disk is full and these have room, in the image of now or of the last change."""
        epoch = Epoch(self.view.partition_epoch - late)
        place = NoRoom(self.image.names["t"].id, 0, epoch, others)
        self.ask(TellNoRoom(broker, Incarnation(incarnation), (place,)))

    def take_back(self, broker: BrokerId) -> None:
        """The leader has it in sync again."""
        members = (*self.view.isr, broker)
        change = IsrChange(
            topic=self.image.names["t"].id,
            partition=0,
            leader_epoch=self.view.leader_epoch,
            partition_epoch=self.view.partition_epoch,
            isr=tuple((one, self.image.brokers[one].epoch) for one in members),
        )
        incarnation = self.image.brokers[self.view.leader].incarnation
        self.ask(AlterIsr(self.view.leader, incarnation, (change,)))
        assert set(self.view.isr) == set(members)

    def wait(self, milliseconds: int) -> None:
        self.now = Instant(self.now + ms(milliseconds))
        deadline = self.shard.deadline()
        if deadline is not None and deadline <= self.now:
            self.tick()

    def allow_unclean(self) -> None:
        entry = AlterableConfig(
            name="unclean.leader.election.enable", config_operation=0, value="true"
        )
        row = AlterConfigsResource(resource_type=2, resource_name="t", configs=[entry])
        request = IncrementalAlterConfigsRequest(resources=[row], validate_only=False)
        self.everywhere(IncrementalAlterConfigs(1, request))

    def elect_unclean(self) -> int:
        asked = [TopicPartitions(topic="t", partitions=[0])]
        request = ElectLeadersRequest(election_type=1, topic_partitions=asked)
        reply = self.everywhere(ElectLeaders(2, request))
        assert isinstance(reply, ElectLeadersResponse)
        return reply.replica_election_results[0].partition_result[0].error_code


def all_lost_power() -> Lossy:
    """ISR {3}, ELR {2}; then both lose power. The first is long gone."""
    lossy = Lossy()
    for broker in (ONE, TWO, THREE):
        lossy.lose(broker)
    assert (lossy.view.isr, set(lossy.view.elr)) == ((), {TWO, THREE})
    lossy.join(TWO, 2, stopped=POWER_LOSS)
    assert (lossy.view.elr, lossy.view.last_known) == ((THREE,), (TWO,))
    return lossy
