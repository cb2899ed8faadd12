"""What the coordinator wants of a group, whichever protocol its members speak."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, NamedTuple, Protocol

from msgspec import Struct, field

from tidelog.kernel.ids import RequestId
from tidelog.kernel.instant import Instant
from tidelog.kernel.shard import Decision
from tidelog.node.groups.codec import StoredRecord
from tidelog.node.groups.history import Tell
from tidelog.node.groups.requests import OffsetToCommit, Who
from tidelog.node.groups.topics import Topics


class Around(NamedTuple):
    """What every group of a coordinator uses of it."""

    settings: Mapping[str, Any]
    """Of the broker, live."""
    topics: Topics
    wall_ms: Callable[[Instant], int]
    tell: Tell


class Draft(Struct):
    """A decision on its way: what a group adds to it is written and answered as one."""

    records: list[StoredRecord] = field(default_factory=list)
    replies: list[tuple[RequestId, Any]] = field(default_factory=list)
    becomes: dict[str, "Group"] = field(default_factory=dict)
    """Groups that are of the other kind with this decision: they stand in their places before its
    records are replayed."""

    def record(self, record: StoredRecord) -> None:
        self.records.append(record)

    def reply(self, asked: RequestId, reply: object) -> None:
        self.replies.append((asked, reply))

    def decision(self) -> Decision[StoredRecord, Any]:
        return Decision(tuple(self.records), tuple(self.replies))


class Group(Protocol):
    """One group."""

    @property
    def kind(self) -> str:
        """ "classic" or "consumer"."""
        ...

    @property
    def protocol_type(self) -> str: ...

    @property
    def state(self) -> str:
        """As ListGroups names it."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether nobody is in it: it may be deleted, and its offsets may expire."""
        ...

    @property
    def empty_since_ms(self) -> int | None:
        """Since when, where it is known."""
        ...

    @property
    def is_vain(self) -> bool:
        """Whether it may be dropped: nobody is in it, and its log says nothing of it."""
        ...

    def subscribed(self) -> AbstractSet[str] | None:
        """The topics its members read; None where that cannot be known."""
        ...

    def check_commit(
        self,
        now: Instant,
        who: Who,
        offsets: Sequence[OffsetToCommit],
        *,
        in_transaction: bool = False,
    ) -> None:
        """Rejected where this member may not commit these now. A commit shows that it is alive."""
        ...

    def check_old_commit(self, who: Who) -> None:
        """Rejected where a member of this group does not commit by so old a request."""
        ...

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Rejected where this member may not ask for offsets."""
        ...

    def forgotten(self) -> tuple[StoredRecord, ...]:
        """The records that take it back."""
        ...

    def loaded(self, now: Instant) -> None:
        """All its records are replayed: its members' time begins."""
        ...

    def deadline(self) -> Instant | None: ...

    def expire(self, now: Instant, draft: Draft) -> None:
        """Do what is due."""
        ...
