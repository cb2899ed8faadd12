"""The groups of the consumer protocol among those of one coordinator."""

from collections.abc import MutableMapping

from tidelog.kernel.ids import RequestId
from tidelog.kernel.instant import Instant
from tidelog.kernel.texts import quoted
from tidelog.node.groups.classic import ClassicGroup
from tidelog.node.groups.consumer import ConsumerGroup
from tidelog.node.groups.consumer_checks import check_request
from tidelog.node.groups.consumer_describe import described
from tidelog.node.groups.consumer_mixed import MixedGroup
from tidelog.node.groups.consumer_requests import ConsumerHeartbeat, DescribeConsumerGroup
from tidelog.node.groups.conversion import as_consumer, check_upgrade
from tidelog.node.groups.group import Around, Draft, Group
from tidelog.node.groups.records_consumer import ConsumerGroupMetadataKey, ConsumerRecord
from tidelog.wire.errors import ErrorCode, Rejected


class ConsumerGroups:
    """Makes them, finds them, and lets go of them when their log says so.

    A group that a request brings into being has heard of its member before its records are
    replayed: until then it waits in `_newborn`.
    """

    def __init__(self, groups: MutableMapping[str, Group], around: Around) -> None:
        self._groups = groups
        self._around = around
        self._newborn: dict[str, MixedGroup] = {}

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
                f"there is no group {quoted(request.group)} of the consumer protocol",
            )
        made = self._make(request.group)
        if group is not None:
            self._convert(now, group, made, draft)
        made.heartbeat(now, asked, request, draft)
        if isinstance(group, ClassicGroup):
            group.turn_away(draft)
        made.log.is_loaded = True
        self._newborn[request.group] = made

    def _convert(self, now: Instant, group: Group, made: ConsumerGroup, draft: Draft) -> None:
        """A group of the classic protocol gives this one its name, its offsets and its members."""
        assert isinstance(group, ClassicGroup), group.kind
        if not group.is_empty:
            check_upgrade(group, self._around)
        for taken_back in group.forgotten():
            draft.record(taken_back)
        if group.is_empty and not group.generation:
            return
        for record in as_consumer(group, self._around.topics, self._around.wall_ms(now)):
            made.replay(record)  # and again with the decision: that changes nothing more
            draft.record(record)
        made.loaded(now)

    def describe(
        self, _now: Instant, asked: RequestId, request: DescribeConsumerGroup, draft: Draft
    ) -> None:
        group = self._groups.get(request.group)
        if not isinstance(group, ConsumerGroup):
            raise Rejected(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"there is no group {quoted(request.group)} of the consumer protocol",
            )
        draft.reply(asked, described(group.log, self._around.topics))

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

    def newborn(self, name: str) -> MixedGroup | None:
        """A group that is decided on, and whose records are not replayed yet."""
        return self._newborn.get(name)

    def _make(self, name: str) -> MixedGroup:
        return MixedGroup(name, self._around)
