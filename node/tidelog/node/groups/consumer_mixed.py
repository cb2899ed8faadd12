"""A group of the consumer protocol with members of the classic one among them.

Such a member joins, syncs and beats as in a classic group, and is answered at once: nobody waits
for the others, and no leader assigns. Its generation is its epoch, its assignment what it has of
its target; it is asked to join again whenever it could come a step further.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from tidelog.kernel.ids import RequestId, Uuid
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.texts import quoted
from tidelog.node.groups import requests as ask
from tidelog.node.groups.classic_members import Promised
from tidelog.node.groups.consumer import PROTOCOL_TYPE, ConsumerGroup, come_back
from tidelog.node.groups.consumer_checks import member_named, member_of_instance
from tidelog.node.groups.consumer_log import NOTHING
from tidelog.node.groups.consumer_member import ClassicSide, Member, OwnedReport, pairs_of
from tidelog.node.groups.conversion import as_classic, share_of
from tidelog.node.groups.embedded import Subscription, read_subscription
from tidelog.node.groups.group import Around, Draft
from tidelog.node.groups.history import Trigger
from tidelog.node.groups.records_consumer import MemberState
from tidelog.wire.errors import ErrorCode, Rejected


class MixedGroup(ConsumerGroup):
    """One group, whichever protocol each of its members speaks.

    Invariant: who joins by an id has it from here, or is a member. Kafka takes any id; but a member
    that was given up would keep what it had, and commit it in its new epoch.
    """

    def __init__(self, group: str, around: Around) -> None:
        super().__init__(group, around)
        self._promised = Promised()

    def deadline(self) -> Instant | None:
        deadlines = [*self._promised.deadlines()]
        due = super().deadline()
        return min(deadlines if due is None else [*deadlines, due], default=None)

    def expire(self, now: Instant, draft: Draft) -> None:
        self._promised.expire(now)
        super().expire(now, draft)

    # -- joining

    def join(self, now: Instant, asked: RequestId, request: ask.JoinGroup, draft: Draft) -> None:
        """Rejected where the member may not be in the group."""
        who = request.who
        subscription = self._checked(request)
        if not who.member_id and who.instance_id is None and request.needs_known_id:
            code = ErrorCode.MEMBER_ID_REQUIRED
            until = Instant(now + ms(request.session_timeout_ms))
            self._promised.give(request.new_member_id, until)
            draft.reply(asked, ask.JoinRefused(code, request.new_member_id))
            return
        before = self._joining(request)
        member_id = who.member_id or request.new_member_id
        is_twin = before.member_id != member_id
        if is_twin and self._is_left_to_classic([before.member_id]):
            made = as_classic(self.log, [before.member_id], self._around, now, draft)
            made.join(now, asked, request, draft)
            return
        after = _as_it_joins(come_back(before, member_id) if is_twin else before, request)
        after = replace(after, topics=tuple(sorted(subscription.topics)), rack_id=subscription.rack)
        is_new = is_twin or member_id not in self.log.members
        owned = OwnedReport(self._owned(subscription))
        arrived = self._take_in(now, before, after, owned, draft, is_new=is_new)
        self._owes_until[member_id] = self._in_time(now, arrived)
        assert arrived.classic is not None, member_id
        protocol = arrived.classic.protocol
        draft.reply(asked, ask.Joined(arrived.epoch, PROTOCOL_TYPE, protocol, "", member_id))

    def _checked(self, request: ask.JoinGroup) -> Subscription:
        """What it says it wants, where it may join at all."""
        if self._settings["group.consumer.migration.policy"] == "disabled":
            raise Rejected(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                "the group is of the consumer protocol, and group.consumer.migration.policy is "
                "disabled",
            )
        if not self._is_known(request.who):
            self._check_room(also=len(self._promised) - (request.who.member_id in self._promised))
        names = {name for name, _ in request.protocols}
        offered = self.log.classic_protocols()
        fits = bool(names) and request.protocol_type == PROTOCOL_TYPE
        if not fits or (offered is not None and not names & offered):
            raise Rejected(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        said = read_subscription(request.protocols[0][1])
        if said is None:
            raise Rejected(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "its subscription cannot be read")
        return said

    def _is_known(self, who: ask.Who) -> bool:
        return who.member_id in self.log.members or (
            who.instance_id is not None and who.instance_id in self.log.instances
        )

    def _joining(self, request: ask.JoinGroup) -> Member:
        """Who it is as the log knows it; a static member may still be known by another id."""
        who = request.who
        if who.instance_id is not None:
            standing = member_of_instance(self.log, who.instance_id)
            if who.member_id:
                return member_named(self.log, who.member_id, who.instance_id)
            if standing is not None:
                return standing
        known = self.log.members.get(who.member_id)
        if known is None and who.member_id and not self._promised.take(who.member_id):
            raise Rejected(ErrorCode.UNKNOWN_MEMBER_ID)
        return known or Member(who.member_id or request.new_member_id)

    def _owned(self, subscription: Subscription) -> Sequence[tuple[Uuid, int]]:
        """What it keeps while it joins. Who gives up all says nothing of it, or that it is none."""
        facts = {name: self._topics.of_name(name) for name in subscription.owned}
        return [
            (known.id, partition)
            for name, partitions in subscription.owned.items()
            if (known := facts[name]) is not None
            for partition in sorted(partitions)
        ]

    # -- its share

    def sync(self, now: Instant, asked: RequestId, request: ask.SyncGroup, draft: Draft) -> None:
        member, side = self._speaker(request.who)
        kinds, chosen = {None, PROTOCOL_TYPE}, {None, side.protocol}
        if request.protocol_type not in kinds or request.protocol not in chosen:
            raise Rejected(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        is_behind = member.epoch < self.log.epoch
        if is_behind and member.state is not MemberState.UNREVOKED_PARTITIONS:
            self._ask_to_join(now, member)
            raise Rejected(ErrorCode.REBALANCE_IN_PROGRESS)
        self._owes_until.pop(member.member_id, None)
        self._heard_of(now, member)
        share = share_of(pairs_of(member.assigned), side, self._topics)
        draft.reply(asked, ask.Synced(PROTOCOL_TYPE, side.protocol, share))

    # -- life and death

    def beat(self, now: Instant, asked: RequestId, request: ask.Heartbeat, draft: Draft) -> None:
        member, _ = self._speaker(request.who)
        self._heard_of(now, member)
        if member.epoch < self.log.epoch or self._may_go_on(member):
            self._ask_to_join(now, member)
            raise Rejected(ErrorCode.REBALANCE_IN_PROGRESS)
        draft.reply(asked, None)

    def _may_go_on(self, member: Member) -> bool:
        """Whether it could come further: it gives up, or all that it waits for is free."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return member.state is MemberState.UNREVOKED_PARTITIONS
        target = self.log.target.get(member.member_id, NOTHING)
        missing = pairs_of(target) - pairs_of(member.assigned)
        return all(self.log.is_free(*one) for one in missing)

    def _ask_to_join(self, now: Instant, member: Member) -> None:
        self._owes_until.setdefault(member.member_id, self._in_time(now, member))

    def _in_time(self, now: Instant, member: Member) -> Instant:
        return Instant(now + ms(member.rebalance_timeout_ms))

    def leave(self, now: Instant, asked: RequestId, request: ask.LeaveGroup, draft: Draft) -> None:
        codes, gone, reason = [], list[str](), ""
        for one in request.members:
            try:
                gone.append(self._leaving(one).member_id)
                reason = reason or one.reason
                codes.append(ErrorCode.NONE)
            except Rejected as refused:
                codes.append(refused.code)
        if gone:
            self._take_out(now, list(dict.fromkeys(gone)), Trigger.LEAVE, draft, reason)
        draft.reply(asked, tuple(codes))

    def _leaving(self, leaving: ask.LeavingMember) -> Member:
        """Of either protocol: an administrator takes members out by this, too."""
        member_id = leaving.member_id
        if leaving.instance_id is not None and not member_id:
            standing = member_of_instance(self.log, leaving.instance_id)
            member_id = "" if standing is None else standing.member_id
        return member_named(self.log, member_id, leaving.instance_id)

    def disconnected(self, now: Instant, member_id: str) -> None:
        """It has little time to come back, if the broker says so."""
        if member_id in self.log.members:
            soon = Instant(now + ms(self._settings["group.member.disconnect.ms"]))
            self._heard_until[member_id] = min(self._heard_until[member_id], soon)

    def _speaker(self, who: ask.Who) -> tuple[Member, ClassicSide]:
        """The member of the classic protocol that says this, in the epoch that it is in."""
        member, side = self._classic_one(who.member_id, who.instance_id)
        if who.generation != member.epoch:
            raise Rejected(ErrorCode.ILLEGAL_GENERATION)
        return member, side

    def _classic_one(self, member_id: str, instance_id: str | None) -> tuple[Member, ClassicSide]:
        member = member_named(self.log, member_id, instance_id)
        if member.classic is None:
            raise Rejected(
                ErrorCode.UNKNOWN_MEMBER_ID,
                f"{quoted(member_id)} does not speak the classic protocol",
            )
        return member, member.classic


def _as_it_joins(member: Member, request: ask.JoinGroup) -> Member:
    """The member with what JoinGroup says of it: all but its subscription."""
    return replace(
        member,
        instance_id=request.who.instance_id,
        regex=None,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        classic=ClassicSide(request.session_timeout_ms, request.protocols),
    )
