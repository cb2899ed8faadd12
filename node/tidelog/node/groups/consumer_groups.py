"""The groups of the consumer protocol among those of one coordinator."""

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from tidelog.kernel.ids import RequestId
from tidelog.kernel.instant import Instant
from tidelog.node.groups.consumer import ConsumerGroup
from tidelog.node.groups.consumer_checks import check_request
from tidelog.node.groups.consumer_describe import described
from tidelog.node.groups.consumer_requests import ConsumerHeartbeat, DescribeConsumerGroup
from tidelog.node.groups.group import Draft, Group
from tidelog.node.groups.records_consumer import ConsumerGroupMetadataKey, ConsumerRecord
from tidelog.node.groups.topics import Topics
from tidelog.wire.errors import ErrorCode, Rejected


class ConsumerGroups:
    """Makes them, finds them, and lets go of them when their log says so.

    A group that a request brings into being has heard of its member before its records are
    replayed: until then it waits in `_newborn`.
    """

    def __init__(
        self,
        groups: MutableMapping[str, Group],
        settings: Mapping[str, Any],
        topics: Topics,
        wall_ms: Callable[[Instant], int],
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._topics = topics
        self._wall_ms = wall_ms
        self._newborn: dict[str, ConsumerGroup] = {}

    def heartbeat(
        self, now: Instant, asked: RequestId, request: ConsumerHeartbeat, draft: Draft
    ) -> None:
        check_request(request)
        group = self._groups.get(request.group)
        if isinstance(group, ConsumerGroup):
            group.heartbeat(now, asked, request, draft)
            return
        if request.epoch != 0:
            raise Rejected(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"there is no group {request.group} of the consumer protocol",
            )
        if group is not None:
            self._convert(group, draft)
        made = self._make(request.group)
        made.heartbeat(now, asked, request, draft)
        self._newborn[request.group] = made

    def _convert(self, group: Group, draft: Draft) -> None:
        """An empty group of the classic protocol gives its name, and its offsets, to this one."""
        if not group.is_empty:
            raise Rejected(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                "the group has members of the classic protocol: stop them, or set "
                "group.protocol=classic",
            )
        for record in group.forgotten():
            draft.record(record)

    def describe(
        self, _now: Instant, asked: RequestId, request: DescribeConsumerGroup, draft: Draft
    ) -> None:
        group = self._groups.get(request.group)
        if not isinstance(group, ConsumerGroup):
            raise Rejected(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"there is no group {request.group} of the consumer protocol",
            )
        draft.reply(asked, described(group.log, self._topics))

    def replay(self, record: ConsumerRecord) -> None:
        """What takes something back brings no group into being: of a log that was compacted, the
        last words about a group may be all that is left of it."""
        name = record.group
        group = self._groups.get(name)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            group = self._newborn.pop(name, None) or self._make(name)
            self._groups[name] = group
        group.replay(record)
        if record.value is None and isinstance(record.key, ConsumerGroupMetadataKey):
            del self._groups[name]

    def newborn(self, name: str) -> ConsumerGroup | None:
        """A group that is decided on, and whose records are not replayed yet."""
        return self._newborn.get(name)

    def _make(self, name: str) -> ConsumerGroup:
        return ConsumerGroup(name, self._settings, self._topics, self._wall_ms)
