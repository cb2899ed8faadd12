"""The contract of a state that changes only by replaying records of its own log."""

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from tidelog.kernel.ids import RequestId
from tidelog.kernel.instant import Instant

RequestT_contra = TypeVar("RequestT_contra", contravariant=True)
RecordT = TypeVar("RecordT")
ReplyT = TypeVar("ReplyT")


@dataclass(frozen=True, slots=True)
class Decision(Generic[RecordT, ReplyT]):
    """What a shard decided: records first, replies once those are committed."""

    records: tuple[RecordT, ...] = ()
    """Written as one batch, all or nothing."""
    replies: tuple[tuple[RequestId, ReplyT], ...] = ()
    """Sent once the records are committed; also to earlier requests that waited."""


class Shard(Protocol[RequestT_contra, RecordT, ReplyT]):
    """Decides on requests; changes only by `replay`, in running and in loading alike."""

    def decide(
        self, now: Instant, asked: RequestId, request: RequestT_contra
    ) -> Decision[RecordT, ReplyT]:
        """Raises Rejected where the protocol says no."""
        ...

    def expire(self, now: Instant) -> Decision[RecordT, ReplyT]: ...

    def replay(self, record: RecordT) -> None:
        """The only change of durable state."""
        ...

    def deadline(self) -> Instant | None: ...
