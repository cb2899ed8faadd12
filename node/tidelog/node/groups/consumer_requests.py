"""What members of the consumer protocol ask, and what they are told; no version is in it."""

from msgspec import Struct

from tidelog.kernel.ids import Uuid
from tidelog.node.groups.consumer_member import Holdings


class ConsumerHeartbeat(Struct, frozen=True):
    """A member is here, or comes (epoch 0), or goes (-1, -2). Answered with HeartbeatAnswer.

    None is what has not changed since it last said so.
    """

    group: str
    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: tuple[tuple[Uuid, int], ...] | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """Whether it says everything, as a member does that may have missed an answer."""
        has_topics = self.topics is not None or self.regex is not None
        return self.rebalance_timeout_ms != -1 and has_topics and self.owned is not None


class HeartbeatAnswer(Struct, frozen=True):
    member_id: str
    epoch: int
    interval_ms: int
    assigned: Holdings | None = None
    """None: as it was."""


class DescribeConsumerGroup(Struct, frozen=True):
    """Answered with the group as ConsumerGroupDescribe has it."""

    group: str
