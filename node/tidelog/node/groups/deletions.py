"""Groups that are being deleted, one part of their offsets after the other.

Nobody may use such a group in between: a member that joined would keep the group, without a part of
its offsets. Soft state: after a fail-over the client asks the next coordinator to delete the rest.
"""

from typing import Final

from tidelog.kernel.instant import Instant, ms
from tidelog.node.groups import requests as ask
from tidelog.node.groups.consumer_requests import ConsumerHeartbeat
from tidelog.wire.errors import ErrorCode, Rejected

_USES: Final = frozenset(
    {
        ask.CommitInTransaction,
        ask.CommitOffsets,
        ask.FetchOffsets,
        ask.JoinGroup,
        ConsumerHeartbeat,
    }
)
_PART_MS_MAX: Final = 5_000
"""The next part follows within a turn of the loop. If it does not, nobody deletes the group."""


class Deletions:
    """Groups of which a part is deleted, and until when the next part must come."""

    def __init__(self) -> None:
        self._until: dict[str, Instant] = {}

    def begin(self, now: Instant, group: str) -> None:
        """A part of the group's offsets is deleted, and others are left."""
        self._until[group] = Instant(now + ms(_PART_MS_MAX))

    def end(self, group: str) -> None:
        """Nothing of the group is left."""
        self._until.pop(group, None)

    def check(self, now: Instant, request: object) -> None:
        """Rejected, with a code upon which clients ask again, if the group is half deleted."""
        if not self._until or type(request) not in _USES:
            return
        until = self._until.get(getattr(request, "group", ""))
        if until is not None and now < until:
            raise Rejected(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
