"""A controller with partitions that are reassigned."""

from dataclasses import dataclass

from harness.machines.controllers import ONE, THREE, TWO, Controlled, topic
from tidelog.coordinator.controller.requests import (
    AlterIsr,
    AlterReassignments,
    IsrOutcomes,
    TellLogEnds,
)
from tidelog.kernel.ids import BrokerId, Epoch, Offset
from tidelog.wire.control import IsrChange, LogEnd
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from tidelog.wire.metadata_records import PartitionView

FOUR, FIVE = BrokerId(4), BrokerId(5)
UNCLEAN: dict[str, str | None] = {"unclean.leader.election.enable": "true"}

Placement = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


@dataclass
class Moving:
    """Partitions of t on five brokers, and what is asked for them."""

    controlled: Controlled

    def view(self, partition: int = 0) -> PartitionView:
        return self.controlled.image.names["t"].partitions[partition]

    def placement(self) -> Placement:
        view = self.view()
        return view.replicas, view.adding, view.removing

    def alter(
        self,
        wanted: dict[int, list[int] | None],
        *,
        name: str = "t",
        factor_may_change: bool = True,
    ) -> list[tuple[int, str | None]]:
        """What became of each partition."""
        rows = [
            ReassignablePartition(partition_index=index, replicas=replicas)
            for index, replicas in wanted.items()
        ]
        message = AlterPartitionReassignmentsRequest(
            allow_replication_factor_change=factor_may_change,
            topics=[ReassignableTopic(name=name, partitions=rows)],
        )
        reply = self.controlled.everywhere(AlterReassignments(1, message))
        assert isinstance(reply, AlterPartitionReassignmentsResponse)
        assert (reply.error_code, reply.error_message) == (ErrorCode.NONE, None)
        assert reply.allow_replication_factor_change == factor_may_change
        (answer,) = reply.responses
        assert [row.partition_index for row in answer.partitions] == list(wanted)
        return [(row.error_code, row.error_message) for row in answer.partitions]

    def move(self, *replicas: int) -> None:
        assert self.alter({0: list(replicas)}) == [(ErrorCode.NONE, None)]

    def cancel(self) -> tuple[int, str | None]:
        (outcome,) = self.alter({0: None})
        return outcome

    def in_sync(self, *members: int) -> None:
        """The leader says who is in sync with it."""
        view, brokers = self.view(), self.controlled.image.brokers
        change = IsrChange(
            topic=self.controlled.image.names["t"].id,
            partition=0,
            leader_epoch=view.leader_epoch,
            partition_epoch=view.partition_epoch,
            isr=tuple((BrokerId(one), brokers[BrokerId(one)].epoch) for one in members),
        )
        reply = self.controlled.ask(
            AlterIsr(view.leader, brokers[view.leader].incarnation, (change,))
        )
        assert isinstance(reply, IsrOutcomes)
        assert reply.outcomes == (ErrorCode.NONE,)

    def has_nothing(self, broker: BrokerId) -> None:
        """A replica tells that its log is empty, for nobody leads."""
        view = self.view()
        end = LogEnd(
            topic=self.controlled.image.names["t"].id,
            partition=0,
            leader_epoch=view.leader_epoch,
            last_epoch=Epoch(-1),
            end=Offset(0),
            high_watermark=Offset(0),
        )
        incarnation = self.controlled.image.brokers[broker].incarnation
        self.controlled.ask(TellLogEnds(broker, incarnation, (end,)))


def moving(*replicas: int, configs: dict[str, str | None] | None = None) -> Moving:
    """t-0 and t-1, both on these of five brokers."""
    controlled = Controlled(ONE, TWO, THREE, FOUR, FIVE)
    assignments = {0: list(replicas), 1: list(replicas)}
    controlled.create(topic("t", assignments=assignments, configs=configs))
    return Moving(controlled)
