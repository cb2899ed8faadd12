"""The members of a classic group, and which protocol they can agree on."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from tidelog.kernel.ids import RequestId
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.limits import GROUP_BYTES_MAX
from tidelog.node.groups.embedded import topics_in
from tidelog.node.groups.history import Named
from tidelog.node.groups.records import GroupMember
from tidelog.node.groups.requests import DescribedMember, JoinedMember, JoinGroup, Who
from tidelog.wire.errors import ErrorCode, Rejected


class Member(Struct, eq=False):
    """One member. What a fail-over forgets of it, it says again when it joins."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """In the order of its liking."""
    assignment: bytes = b""
    joining: RequestId | None = None
    """Its JoinGroup, which waits for the generation to be complete."""
    syncing: RequestId | None = None
    """Its SyncGroup, which waits for the leader's."""
    has_synced: bool = False
    """It asked for its assignment in this generation."""
    expires: Instant = Instant(0)
    """When it is given up, unless it waits for an answer."""
    is_gone: bool = False
    """Its connection has ended, and it was not heard since."""

    def said(self, request: JoinGroup) -> None:
        """Take what its JoinGroup says of it."""
        self.client_id, self.client_host = request.client_id, request.client_host
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.protocols = request.protocols

    def seen(self, now: Instant) -> Instant:
        """It lives; until when it may be silent."""
        self.expires = Instant(now + ms(self.session_timeout_ms))
        self.is_gone = False
        return self.expires

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for an answer: then it cannot speak."""
        return not self.is_gone and (self.joining is not None or self.syncing is not None)

    @property
    def size_bytes(self) -> int:
        return len(self.assignment) + sum(len(metadata) for _, metadata in self.protocols)

    @property
    def named(self) -> Named:
        return Named(self.id, self.client_id, self.client_host)

    def subscription(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")

    def kept(self, protocol: str | None, assignment: bytes) -> GroupMember:
        """As the log keeps it."""
        return GroupMember(
            self.id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.subscription(protocol),
            assignment,
        )

    def described(self, protocol: str | None, *, is_stable: bool) -> DescribedMember:
        """While the group is not stable nobody knows what a member has."""
        return DescribedMember(
            self.id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.subscription(protocol) if is_stable else b"",
            self.assignment if is_stable else b"",
        )


def member_of(kept: GroupMember, protocol: str | None) -> Member:
    """A member out of the log: of the protocols that it knows the chosen one is left."""
    return Member(
        id=kept.member_id,
        instance_id=kept.instance_id,
        client_id=kept.client_id,
        client_host=kept.client_host,
        session_timeout_ms=kept.session_timeout_ms,
        rebalance_timeout_ms=kept.rebalance_timeout_ms,
        protocols=((protocol or "", kept.subscription),),
        assignment=kept.assignment,
        has_synced=True,
    )


class Members:
    """Those of one group, in the order in which they came.

    Invariant: each instance id stands for one member, which has it.
    """

    def __init__(self) -> None:
        self._by_id: dict[str, Member] = {}
        self._instances: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(tuple(self._by_id.values()))

    def get(self, member_id: str) -> Member | None:
        return self._by_id.get(member_id)

    def of_instance(self, instance_id: str) -> Member | None:
        member_id = self._instances.get(instance_id)
        return None if member_id is None else self._by_id[member_id]

    def add(self, member: Member) -> None:
        assert member.id not in self._by_id, member.id
        self._by_id[member.id] = member
        if member.instance_id is not None:
            assert member.instance_id not in self._instances, member.instance_id
            self._instances[member.instance_id] = member.id

    def remove(self, member: Member) -> None:
        del self._by_id[member.id]
        if member.instance_id is not None:
            del self._instances[member.instance_id]

    def rename(self, member: Member, member_id: str) -> None:
        """A static member came back under a new id; its place in the order stays."""
        assert member.instance_id is not None, member.id
        old = member.id
        member.id = member_id
        self._instances[member.instance_id] = member_id
        self._by_id = {one.id: one for one in self._by_id.values()}
        assert old not in self._by_id, old

    def named(self, who: Who) -> Member:
        """The member that a request comes from; Rejected where it is none, or is not it any
        more."""
        if who.instance_id is not None:
            standing = self.of_instance(who.instance_id)
            if standing is None:
                raise Rejected(ErrorCode.UNKNOWN_MEMBER_ID)
            if standing.id != who.member_id:
                raise Rejected(ErrorCode.FENCED_INSTANCE_ID)
        member = self._by_id.get(who.member_id)
        if member is None:
            raise Rejected(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def check_fits(self, request: JoinGroup, protocol_type: str) -> None:
        """Rejected where nobody could lead its protocols and ours, or all say too much."""
        names = {name for name, _ in request.protocols}
        fits = bool(request.protocol_type and names)
        if self._by_id:
            same = request.protocol_type == protocol_type
            fits = fits and same and bool(names & self.common_protocols())
        if not fits:
            raise Rejected(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        size = sum(len(metadata) for _, metadata in request.protocols)
        if size + self.size_bytes() > GROUP_BYTES_MAX:
            raise Rejected(ErrorCode.GROUP_MAX_SIZE_REACHED, "its members say too much")

    def common_protocols(self) -> set[str]:
        """What every member knows."""
        known = [{name for name, _ in member.protocols} for member in self._by_id.values()]
        return set.intersection(*known) if known else set()

    def choose_protocol(self) -> str:
        """Each votes for what it likes best of what all know; the most votes win, and of as many
        the one that the first member likes better."""
        common = self.common_protocols()
        assert common, "a member was let in that has no protocol in common with the others"
        liked = [[name for name, _ in one.protocols if name in common] for one in self]
        votes = Counter(names[0] for names in liked)
        return max(liked[0], key=lambda name: (votes[name], -liked[0].index(name)))

    def kept(
        self, protocol: str | None, assignments: Mapping[str, bytes]
    ) -> tuple[GroupMember, ...]:
        """As the log keeps them."""
        return tuple(one.kept(protocol, assignments.get(one.id, b"")) for one in self)

    def joined(self, protocol: str) -> tuple[JoinedMember, ...]:
        """As the leader is told of them."""
        return tuple(
            JoinedMember(one.id, one.instance_id, one.subscription(protocol)) for one in self
        )

    def rebalance_timeout_ms(self) -> int:
        """How long the slowest may take."""
        return max((one.rebalance_timeout_ms for one in self), default=0)

    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self)


class Promised:
    """Ids given away whose members have not joined yet, and until when they may."""

    def __init__(self) -> None:
        self._until: dict[str, Instant] = {}

    def __len__(self) -> int:
        return len(self._until)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._until

    def give(self, member_id: str, until: Instant) -> None:
        self._until[member_id] = until

    def take(self, member_id: str) -> bool:
        """Whether it was given away; it no longer is."""
        return self._until.pop(member_id, None) is not None

    def expire(self, now: Instant) -> None:
        self._until = {name: until for name, until in self._until.items() if until > now}

    def deadlines(self) -> Iterable[Instant]:
        return self._until.values()


def topics_of(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics that members of protocol type `consumer` read; None where it cannot be read."""
    topics: set[str] = set()
    for subscription in subscriptions:
        found = topics_in(subscription)
        if found is None:
            return None
        topics |= found
    return frozenset(topics)
