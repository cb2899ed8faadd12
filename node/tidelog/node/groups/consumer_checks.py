"""What a member of the consumer protocol may not say, and which code tells it so."""

from collections.abc import Sequence

from tidelog.kernel.texts import quoted
from tidelog.node.groups.assignors import ASSIGNORS
from tidelog.node.groups.consumer_log import LoggedGroup
from tidelog.node.groups.consumer_member import LEFT_FOR_NOW, Member, is_part_of
from tidelog.node.groups.consumer_requests import ConsumerHeartbeat
from tidelog.node.groups.pattern_syntax import PatternError
from tidelog.node.groups.patterns import Pattern
from tidelog.node.groups.requests import OffsetToCommit
from tidelog.wire.errors import ErrorCode, Rejected


def check_request(request: ConsumerHeartbeat) -> None:
    """What is wrong whoever says it."""
    complaint = _complaint(request)
    if complaint is not None:
        raise Rejected(ErrorCode.INVALID_REQUEST, complaint)
    if request.assignor is not None and request.assignor not in ASSIGNORS:
        offered = ", ".join(sorted(ASSIGNORS))
        raise Rejected(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"there is no assignor {quoted(request.assignor)!r} here; there are: {offered}",
        )


def _complaint(request: ConsumerHeartbeat) -> str | None:
    for is_wrong, complaint in (
        (not request.group, "GroupId can't be empty."),
        (not request.member_id, "MemberId can't be empty."),
        (request.instance_id == "", "InstanceId can't be empty."),
        (request.rack_id == "", "RackId can't be empty."),
        (request.epoch < LEFT_FOR_NOW, "MemberEpoch is invalid."),
        (
            request.epoch == LEFT_FOR_NOW and request.instance_id is None,
            "InstanceId can't be null: only a static member leaves for now.",
        ),
    ):
        if is_wrong:
            return complaint
    return _complaint_of_joining(request) if request.epoch == 0 else None


def _complaint_of_joining(request: ConsumerHeartbeat) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.owned is None or request.owned:
        return "TopicPartitions must be empty when (re-)joining."
    if request.topics is None and request.regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be set when (re-)joining."
    return None


def check_epoch(member: Member, request: ConsumerHeartbeat) -> None:
    """FENCED_MEMBER_EPOCH where the member is not where its log says; it then joins anew.

    One epoch back is right while the answer that moved it may have been lost.
    """
    epoch = request.epoch
    if epoch in (0, member.epoch):
        return
    is_late = epoch == member.previous_epoch and epoch < member.epoch
    if not (is_late and is_part_of(request.owned, member.assigned)):
        raise Rejected(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"the member's epoch is {member.epoch}, not {epoch}: it must give up its partitions "
            "and join again",
        )


def check_late_commit(member: Member, epoch: int, offsets: Sequence[OffsetToCommit]) -> None:
    """A member may commit what it has had since that epoch or longer: the answer that moved it to
    the next one may be on its way. Nobody else had it meanwhile."""
    is_modern = member.classic is None
    code = ErrorCode.STALE_MEMBER_EPOCH if is_modern else ErrorCode.ILLEGAL_GENERATION
    if epoch > member.epoch:
        raise Rejected(code, f"the member's epoch is {member.epoch}, not {epoch}")
    for one in offsets:
        since = member.since(one.topic_id, one.partition)
        if since is None or epoch < since:
            has = "is not the member's" if since is None else f"is the member's since epoch {since}"
            raise Rejected(code, f"{one.topic}-{one.partition} {has}, not {epoch}")


def member_named(log: LoggedGroup, member_id: str, instance_id: str | None) -> Member:
    """The member that a request comes from, which is in the group."""
    if instance_id is None:
        member = log.members.get(member_id)
        if member is None:
            raise Rejected(
                ErrorCode.UNKNOWN_MEMBER_ID, f"{quoted(member_id)} is not in {quoted(log.group)}"
            )
        return member
    member = member_of_instance(log, instance_id)
    if member is None:
        raise Rejected(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"instance {quoted(instance_id)} is not in {quoted(log.group)}",
        )
    if member.member_id != member_id:
        raise Rejected(
            ErrorCode.FENCED_INSTANCE_ID,
            f"instance {quoted(instance_id)} is {quoted(member.member_id)} now",
        )
    return member


def member_of_instance(log: LoggedGroup, instance_id: str) -> Member | None:
    name = log.instances.get(instance_id)
    return None if name is None else log.members[name]


def check_released(member: Member, request: ConsumerHeartbeat) -> None:
    """A new member takes the place of an instance only once that has left for now; one of the
    classic protocol does not say so when it stops."""
    if (
        member.member_id != request.member_id
        and member.epoch != LEFT_FOR_NOW
        and member.classic is None
    ):
        raise Rejected(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"instance {quoted(request.instance_id or '')} is in use by {quoted(member.member_id)}",
        )


def pattern_of(text: str) -> Pattern:
    try:
        return Pattern(text)
    except PatternError as error:
        raise Rejected(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex {quoted(text)!r} is no valid expression: {error}",
        ) from error


def stored_pattern_of(text: str) -> Pattern:
    """Out of a log: an expression that this program cannot read matches nothing."""
    try:
        return Pattern(text)
    except PatternError:
        return Pattern("")
