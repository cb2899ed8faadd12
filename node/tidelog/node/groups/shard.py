"""The coordinator of the groups that one partition of `__consumer_offsets` keeps: decides, replays.

A request is decided on at once, in the light of all that was decided before; what it changes goes
into records, and only their replay changes what a fail-over must not lose.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, assert_never

from tidelog.kernel.ids import ZERO_UUID, RequestId, Uuid
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import GROUP_BYTES_MAX, ROWS_PER_STEP, TRANSACTION_OFFSETS_MAX
from tidelog.kernel.shard import Decision
from tidelog.kernel.texts import quoted
from tidelog.node.groups import requests as ask
from tidelog.node.groups.classic import ClassicGroup
from tidelog.node.groups.codec import StoredRecord
from tidelog.node.groups.consumer_groups import ConsumerGroups
from tidelog.node.groups.consumer_mixed import MixedGroup
from tidelog.node.groups.consumer_requests import ConsumerHeartbeat, DescribeConsumerGroup
from tidelog.node.groups.conversion import as_classic
from tidelog.node.groups.deletions import Deletions
from tidelog.node.groups.group import Around, Draft, Group
from tidelog.node.groups.offsets import Offsets
from tidelog.node.groups.records import (
    NEVER,
    CommittedOffset,
    GroupRecord,
    GroupState,
    OffsetRecord,
    PendingOffset,
)
from tidelog.node.groups.records_consumer import ConsumerRecord
from tidelog.wire.errors import ErrorCode, Rejected

EMPTY: Final = "Empty"
_MINUTE_MS: Final = 60_000
_TIME_MS_MAX: Final = 2**63 - 1
FORGOTTEN_AT_ONCE_MAX: Final = 1_000
"""Offsets forgotten by one decision; the rest waits for the next turn of the loop."""

Answerer = Callable[[Instant, RequestId, Any, Draft], None]


class GroupShard:
    """Groups and offsets of one partition.

    Invariant: what `replay` has made is what a coordinator has that loads the same records.
    """

    def __init__(self, around: Around) -> None:
        self._around = around
        self._settings = around.settings
        self._wall_ms = around.wall_ms
        self._offsets = Offsets()
        self._groups: dict[str, Group] = {}
        self._consumers = ConsumerGroups(self._groups, around)
        self._due: list[tuple[Instant, str]] = []
        self._alarms: dict[str, Instant] = {}
        """When each group wants to be looked at; entries of `_due` that say otherwise are stale."""
        self._next_expiry: Instant | None = None
        self._suspects: set[str] = set()
        """Groups that may be in vain; looked at when what was decided last is replayed."""
        self._deletions = Deletions()
        self._answerers: Mapping[type, Answerer] = {
            ask.CommitOffsets: self._commit_offsets,
            ask.CommitInTransaction: self._commit_in_transaction,
            ask.FetchOffsets: self._fetch_offsets,
            ask.DeleteOffsets: self._delete_offsets,
            ask.DeleteGroup: self._delete_group,
            ask.ListGroups: self._list_groups,
            ask.ForgetDeletedTopics: self._forget_deleted_topics,
            ConsumerHeartbeat: self._consumers.heartbeat,
            DescribeConsumerGroup: self._consumers.describe,
            ask.JoinGroup: self._join,
            ask.SyncGroup: self._sync,
            ask.Heartbeat: self._heartbeat,
            ask.LeaveGroup: self._leave,
            ask.MemberDisconnected: self._disconnected,
            ask.DescribeGroup: self._describe,
        }

    # -- as every shard

    def decide(
        self,
        now: Instant,
        asked: RequestId,
        request: Any,  # noqa: ANN401 -- any of `requests`
    ) -> Decision[StoredRecord, Any]:
        self._drop_vain()
        draft = Draft()
        try:
            self._deletions.check(now, request)
            self._answerers[type(request)](now, asked, request, draft)
            self._groups.update(draft.becomes)
        finally:
            name = getattr(request, "group", None)
            if name is not None:
                self._watch(name)
        return draft.decision()

    def expire(self, now: Instant) -> Decision[StoredRecord, Any]:
        self._drop_vain()
        draft = Draft()
        for name in self._take_due(now):
            group = self._groups.get(name)
            if group is not None:
                group.expire(now, draft)
                self._groups.update(draft.becomes)
                self._watch(name)
        if self._next_expiry is not None and self._next_expiry <= now:
            self._expire_offsets(now, draft)
        return draft.decision()

    def _take_due(self, now: Instant) -> list[str]:
        """The groups to look at, each once: one that is due again at once waits for the next turn
        of the loop."""
        names = []
        while self._due and self._due[0][0] <= now:
            at, name = heapq.heappop(self._due)
            if self._alarms.get(name) == at:
                del self._alarms[name]
                names.append(name)
        return names

    def replay(self, record: StoredRecord) -> None:
        match record:
            case OffsetRecord():
                self._offsets.replay(record)
            case PendingOffset(producer_id, _, offset):
                self._offsets.replay_pending(producer_id, offset)
            case ConsumerRecord():
                self._consumers.replay(record)
            case GroupRecord(name, state):
                self._replay_group(name, state)
            case _:
                assert_never(record)

    def _replay_group(self, name: str, state: GroupState | None) -> None:
        if state is None:
            self._groups.pop(name, None)
            return
        group = self._groups.get(name)
        if not isinstance(group, ClassicGroup):
            group = self._groups[name] = self._new_classic(name)
        group.replay(state)

    def _new_classic(self, name: str) -> ClassicGroup:
        return ClassicGroup(name, self._around)

    def replay_marker(self, producer_id: int, *, committed: bool) -> None:
        """A transaction has ended."""
        self._offsets.replay_marker(producer_id, committed=committed)

    def loaded(self, now: Instant) -> None:
        """All records are replayed."""
        for name, group in self._groups.items():
            group.loaded(now)
            self._watch(name)
        self._expire_later(now)

    def deadline(self) -> Instant | None:
        while self._due and self._alarms.get(self._due[0][1]) != self._due[0][0]:
            heapq.heappop(self._due)
        first = self._due[0][0] if self._due else None
        dues = [one for one in (first, self._next_expiry) if one is not None]
        return min(dues, default=None)

    def _watch(self, name: str) -> None:
        """Look at the group when it wants that."""
        group = self._consumers.newborn(name) or self._groups.get(name)
        if group is not None and group.is_empty:
            self._suspects.add(name)
        wanted = None if group is None else group.deadline()
        known = self._alarms.get(name)
        if wanted is not None and (known is None or wanted < known):
            self._alarms[name] = wanted
            heapq.heappush(self._due, (wanted, name))

    def _drop_vain(self) -> None:
        for name in self._suspects:
            group = self._groups.get(name)
            if group is not None and group.is_vain:
                del self._groups[name]
        self._suspects.clear()

    # -- offsets

    def _commit_offsets(
        self, now: Instant, asked: RequestId, request: ask.CommitOffsets, draft: Draft
    ) -> None:
        group = self._groups.get(request.group)
        if group is not None:
            group.check_commit(now, request.who, request.offsets)
            if not request.knows_epochs:
                group.check_old_commit(request.who)
        elif request.who.generation >= 0:
            is_known = self._offsets.has(request.group)
            raise Rejected(
                ErrorCode.UNKNOWN_MEMBER_ID if is_known else ErrorCode.GROUP_ID_NOT_FOUND
            )
        now_ms = self._wall_ms(now)
        expire_ms = _expires_at(now_ms, request.kept_ms)
        for record in _commits(request.group, request.offsets, now_ms, expire_ms):
            draft.record(record)
        draft.reply(asked, None)

    def _commit_in_transaction(
        self, now: Instant, asked: RequestId, request: ask.CommitInTransaction, draft: Draft
    ) -> None:
        self._check_in_transaction(now, request)
        self._check_room_in_transaction(request)
        for record in _commits(request.group, request.offsets, self._wall_ms(now), NEVER):
            assert record.value is not None
            if self._is_of_deleted(record.topic, record.value):
                # The topic went while the transaction coordinator was asked. In the log it would
                # stand behind commits of the next topic of that name, and overwrite them.
                raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            draft.record(PendingOffset(request.producer_id, request.producer_epoch, record))
        draft.reply(asked, None)

    def _check_in_transaction(self, now: Instant, request: ask.CommitInTransaction) -> None:
        """Rejected where this member, or whoever claims to be none, may not commit these."""
        group, who = self._groups.get(request.group), request.who
        # Before version 3 a producer could not say for which member it commits.
        is_member = who.generation >= 0 or bool(who.member_id) or who.instance_id is not None
        if group is not None and is_member:
            try:
                group.check_commit(now, who, request.offsets, in_transaction=True)
            except Rejected as refused:
                if refused.code is not ErrorCode.STALE_MEMBER_EPOCH:
                    raise
                raise Rejected(ErrorCode.ILLEGAL_GENERATION, refused.detail) from refused
        elif group is None and who.generation >= 0:
            raise Rejected(ErrorCode.ILLEGAL_GENERATION)

    def _check_room_in_transaction(self, request: ask.CommitInTransaction) -> None:
        pending = self._offsets.open_of(request.producer_id)
        if len(pending) + len(request.offsets) <= TRANSACTION_OFFSETS_MAX:
            return
        added = {(request.group, one.topic, one.partition) for one in request.offsets} - pending
        if len(pending) + len(added) > TRANSACTION_OFFSETS_MAX:
            raise Rejected(
                ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
                f"a transaction commits {TRANSACTION_OFFSETS_MAX} offsets at most",
            )

    def _fetch_offsets(
        self, _now: Instant, asked: RequestId, request: ask.FetchOffsets, draft: Draft
    ) -> None:
        name = request.group
        group = self._groups.get(name)
        if group is not None:
            group.check_fetch(request.member_id, request.member_epoch)
        known = self._offsets.of(name)
        wanted = request.wanted
        if len(known if wanted is None else wanted) <= ROWS_PER_STEP:
            unstable = partial(self._offsets.pending, name) if request.require_stable else None
            rows: Iterable[ask.OffsetRow] = tuple(self._rows(known, wanted, unstable))
        else:
            pending = self._offsets.all_pending(name) if request.require_stable else {}
            rows = self._rows(dict(known), wanted, lambda where: pending.get(where, ()))
        draft.reply(asked, ask.OffsetsFound(rows))

    def _rows(
        self,
        known: Mapping[tuple[str, int], CommittedOffset],
        wanted: Iterable[tuple[str, int]] | None,
        pending: Callable[[tuple[str, int]], Iterable[CommittedOffset]] | None,
    ) -> Iterator[ask.OffsetRow]:
        """What is told of each partition; `pending` gives what open transactions commit of it, and
        is None where they do not count."""
        for where in known if wanted is None else wanted:
            topic = where[0]
            value = known.get(where)
            if value is not None and self._is_of_deleted(topic, value):
                if wanted is None:
                    continue
                value = None
            found: CommittedOffset | ErrorCode | None = value
            if pending is not None and any(
                not self._is_of_deleted(topic, one) for one in pending(where)
            ):
                found = ErrorCode.UNSTABLE_OFFSET_COMMIT
            yield *where, found

    def _delete_offsets(
        self, _now: Instant, asked: RequestId, request: ask.DeleteOffsets, draft: Draft
    ) -> None:
        name, offsets = request.group, self._offsets
        group = self._groups.get(name)
        if group is None and not offsets.has(name):
            raise Rejected(ErrorCode.GROUP_ID_NOT_FOUND)
        subscribed = frozenset[str]() if group is None else group.subscribed()
        if subscribed is None:
            raise Rejected(ErrorCode.NON_EMPTY_GROUP)
        codes = []
        for topic, partition in request.partitions:
            if topic in subscribed:
                codes.append(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
                continue
            if offsets.knows(name, (topic, partition)):
                draft.record(OffsetRecord(name, topic, partition, None))
            codes.append(ErrorCode.NONE)
        draft.reply(asked, tuple(codes))

    # -- of topics that were deleted

    def _is_of_deleted(self, topic: str, value: CommittedOffset) -> bool:
        """Whether it was committed of a topic that is no longer there.

        The image is never older than the commit. Only the leader of this partition writes commits,
        each of a topic in its image; it stops as soon as its image has the next election, and the
        next leader begins with an image that has it. A commit without an id, which old programs
        wrote, is of any topic of that name.
        """
        facts = self._around.topics.of_name(topic)
        return facts is None or value.topic_id not in {ZERO_UUID, facts.id}

    def _is_to_forget(self, group: str, where: tuple[str, int]) -> bool:
        """Whether all that is known of this partition is of a deleted topic. A tombstone would also
        take what an open transaction commits of the topic that has the name now."""
        value = self._offsets.of(group).get(where)
        values = self._offsets.pending(group, where)
        return all(
            self._is_of_deleted(where[0], one)
            for one in ((*values,) if value is None else (value, *values))
        )

    def _forget_deleted_topics(
        self, _now: Instant, asked: RequestId, _request: ask.ForgetDeletedTopics, draft: Draft
    ) -> None:
        found = islice(self._of_deleted(), FORGOTTEN_AT_ONCE_MAX)
        for group, topic, partition in sorted(found):
            draft.record(OffsetRecord(group, topic, partition, None))
        draft.reply(asked, len(draft.records) == FORGOTTEN_AT_ONCE_MAX)

    def _of_deleted(self) -> Iterator[tuple[str, str, int]]:
        ids: dict[str, Uuid] = {}
        """As far as they were looked up. There may be a million commits, of few topics."""
        for group in self._offsets.groups():
            offsets = self._offsets.of(group)
            suspects = [
                where
                for where, value in offsets.items()
                if ids.get(where[0]) != value.topic_id and self._may_be_gone(where[0], value, ids)
            ]
            if self._offsets.has_unstable(group):
                suspects += self._offsets.named(group) - offsets.keys()
            for where in suspects:
                if self._is_to_forget(group, where):
                    yield group, *where

    def _may_be_gone(self, topic: str, value: CommittedOffset, ids: dict[str, Uuid]) -> bool:
        """As `_is_of_deleted`; remembers the id of a topic that is there."""
        facts = self._around.topics.of_name(topic)
        if facts is not None:
            ids[topic] = facts.id
        return self._is_of_deleted(topic, value)

    # -- what is too old

    def _expire_later(self, now: Instant) -> None:
        wait_ms = self._settings["offsets.retention.check.interval.ms"]
        self._next_expiry = Instant(now + ms(wait_ms))

    def _expire_offsets(self, now: Instant, draft: Draft) -> None:
        now_ms = self._wall_ms(now)
        retention_ms = self._settings["offsets.retention.minutes"] * _MINUTE_MS
        for name in {*self._offsets.groups(), *self._groups}:
            self._expire_group(name, now_ms, retention_ms, draft)
            if len(draft.records) >= FORGOTTEN_AT_ONCE_MAX:
                self._next_expiry = now
                return
        self._expire_later(now)

    def _expire_group(self, name: str, now_ms: int, retention_ms: int, draft: Draft) -> None:
        group = self._groups.get(name)
        since_ms, kept = None, frozenset[str]()
        if group is not None:
            subscribed = group.subscribed()
            if subscribed is None:
                return  # somebody may read any of them
            since_ms, kept = group.empty_since_ms, frozenset(subscribed)
        expired = self._offsets.expired(name, now_ms, retention_ms, since_ms)
        room = FORGOTTEN_AT_ONCE_MAX - len(draft.records)
        old = list(islice((where for where in expired if where[0] not in kept), room))
        for topic, partition in old:
            draft.record(OffsetRecord(name, topic, partition, None))
        is_bare = len(old) == len(self._offsets.of(name)) and not self._offsets.has_unstable(name)
        if group is not None and group.is_empty and is_bare:
            self._forget(group, draft)

    # -- groups

    def _delete_group(
        self, now: Instant, asked: RequestId, request: ask.DeleteGroup, draft: Draft
    ) -> None:
        name = request.group
        group = self._groups.get(name)
        if group is None and not self._offsets.has(name):
            raise Rejected(ErrorCode.GROUP_ID_NOT_FOUND)
        if group is not None and not group.is_empty:
            raise Rejected(ErrorCode.NON_EMPTY_GROUP)
        known = list(islice(self._offsets.each(name), FORGOTTEN_AT_ONCE_MAX + 1))
        for topic, partition in sorted(known[:FORGOTTEN_AT_ONCE_MAX]):
            draft.record(OffsetRecord(name, topic, partition, None))
        if len(known) > FORGOTTEN_AT_ONCE_MAX:
            self._deletions.begin(now, name)
            draft.reply(asked, ask.MORE)
            return
        self._deletions.end(name)
        if group is not None:
            self._forget(group, draft)
        draft.reply(asked, None)

    def _forget(self, group: Group, draft: Draft) -> None:
        for record in group.forgotten():
            draft.record(record)

    def _list_groups(
        self, _now: Instant, asked: RequestId, _request: ask.ListGroups, draft: Draft
    ) -> None:
        simple = (name for name in self._offsets.groups() if name not in self._groups)
        rows = [ask.ListedGroup(name, "", EMPTY, ClassicGroup.kind) for name in simple]
        rows += [
            ask.ListedGroup(name, group.protocol_type, group.state, group.kind)
            for name, group in self._groups.items()
        ]
        draft.reply(asked, tuple(rows))

    def _describe(
        self, _now: Instant, asked: RequestId, request: ask.DescribeGroup, draft: Draft
    ) -> None:
        group = self._groups.get(request.group)
        if isinstance(group, ClassicGroup):
            draft.reply(asked, group.describe())
        elif group is None and self._offsets.has(request.group):
            draft.reply(asked, ask.GroupDescribed(EMPTY))
        else:
            raise Rejected(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {quoted(request.group)} not found."
            )

    # -- the classic protocol

    def _join(self, now: Instant, asked: RequestId, request: ask.JoinGroup, draft: Draft) -> None:
        settings = self._settings
        low, high = (
            settings["group.min.session.timeout.ms"],
            settings["group.max.session.timeout.ms"],
        )
        if not low <= request.session_timeout_ms <= high:
            raise Rejected(ErrorCode.INVALID_SESSION_TIMEOUT)
        group = self._groups.get(request.group)
        if isinstance(group, ClassicGroup) or (
            isinstance(group, MixedGroup) and not group.is_empty
        ):
            group.join(now, asked, request, draft)
            return
        if request.who.member_id:
            raise Rejected(ErrorCode.UNKNOWN_MEMBER_ID)
        if isinstance(group, MixedGroup):
            # Nobody is in it: the name, the offsets and the next generation are the new one's.
            made = as_classic(group.log, (), self._around, now, draft)
        else:
            made = self._new_classic(request.group)
            made.loaded(now)
        made.join(now, asked, request, draft)
        self._groups[request.group] = made

    def _sync(self, now: Instant, asked: RequestId, request: ask.SyncGroup, draft: Draft) -> None:
        self._joined(request.group).sync(now, asked, request, draft)

    def _heartbeat(
        self, now: Instant, asked: RequestId, request: ask.Heartbeat, draft: Draft
    ) -> None:
        self._joined(request.group).beat(now, asked, request, draft)

    def _leave(self, now: Instant, asked: RequestId, request: ask.LeaveGroup, draft: Draft) -> None:
        self._joined(request.group).leave(now, asked, request, draft)

    def _disconnected(
        self, now: Instant, asked: RequestId, request: ask.MemberDisconnected, draft: Draft
    ) -> None:
        self._joined(request.group).disconnected(now, request.member_id)
        draft.reply(asked, None)

    def _joined(self, name: str) -> ClassicGroup | MixedGroup:
        """The group; nobody is a member of one that is not there."""
        group = self._groups.get(name)
        if not isinstance(group, ClassicGroup | MixedGroup):
            raise Rejected(ErrorCode.UNKNOWN_MEMBER_ID)
        return group


def _expires_at(now_ms: int, kept_ms: int) -> int:
    """When a commit that is to be kept for that long expires. The log has 64 bits for it."""
    return NEVER if kept_ms == NEVER else min(now_ms + kept_ms, _TIME_MS_MAX)


def _commits(
    group: str, offsets: Sequence[ask.OffsetToCommit], now_ms: int, expire_ms: int
) -> Iterator[OffsetRecord]:
    if sum(len(one.topic) + len(one.metadata) for one in offsets) > GROUP_BYTES_MAX:
        raise Rejected(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
    for one in offsets:
        value = CommittedOffset(
            one.offset, one.leader_epoch, one.metadata, now_ms, expire_ms, one.topic_id
        )
        yield OffsetRecord(group, one.topic, one.partition, value)
