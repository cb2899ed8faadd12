"""The members of a classic group, and which protocol they can agree on."""

from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct

from tidelog.kernel.ids import RequestId
from tidelog.kernel.instant import Instant, ms
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


def topics_of(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """The topics that members of protocol type `consumer` read; None where it cannot be read."""
    topics: set[str] = set()
    for subscription in subscriptions:
        found = _topics(subscription)
        if found is None:
            return None
        topics |= found
    return frozenset(topics)


def _topics(subscription: bytes) -> set[str] | None:
    """Kafka's embedded protocol: a version, then the topics; what follows is for the leader."""
    found: set[str] = set()
    try:
        position = 6
        for _ in range(int.from_bytes(subscription[2:6], "big")):
            stop = position + 2 + int.from_bytes(subscription[position : position + 2], "big")
            if stop > len(subscription):
                return None
            found.add(subscription[position + 2 : stop].decode())
            position = stop
    except UnicodeDecodeError:
        return None
    return found if position <= len(subscription) else None
