"""What the records of `__consumer_offsets` say of one group, and nobody can be asked. No I/O.

When each offset was committed, since when each partition has its owner, and which generations there
were: in the order of the log, as far as compaction has left it.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple, assert_never

from msgspec import Struct

from tidelog.kernel.ids import Uuid
from tidelog.node.groups import codec
from tidelog.node.groups.embedded import read_assignment
from tidelog.node.groups.records import GroupMember, GroupRecord, GroupState, OffsetRecord
from tidelog.node.groups.records_consumer import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataValue,
    ConsumerRecord,
)
from tidelog.wire.errors import WireError
from tidelog.wire.records import Record

GENERATIONS_KEPT: Final = 50
Place = tuple[str | Uuid, int]
"""A partition of a topic; groups of the consumer protocol name topics by their ids."""


class Commit(NamedTuple):
    offset: int
    at_ms: int


class Generation(Struct, frozen=True):
    """One generation, or one epoch: who came with it, and who was gone."""

    number: int
    at_ms: int
    came: tuple[str, ...]
    went: tuple[str, ...]


class _Tenure(NamedTuple):
    """Who has a partition, and since when; who had it last where nobody has it."""

    owner: str
    since_ms: int
    left_ms: int | None = None


class GroupLog:
    """Of one group. `see` takes the records of its partition in their order."""

    def __init__(self, group: str) -> None:
        self.commits: dict[tuple[str, int], Commit] = {}
        self.generations: deque[Generation] = deque(maxlen=GENERATIONS_KEPT)
        self._tenures: dict[Place, _Tenure] = {}
        self._clients: dict[str, str] = {}
        """By member: how its client is called."""
        self._instances: dict[str, str] = {}
        """By member of the consumer protocol: the instance that it is, where it is static."""
        self._came: list[str] = []
        self._went: list[str] = []
        name = group.encode()
        self._mark = len(name).to_bytes(2, "big") + name
        """How each key of this group goes on behind its kind."""

    def since_ms(self, place: Place) -> int | None:
        """Since when its owner has it, as far as the log goes back."""
        tenure = self._tenures.get(place)
        return None if tenure is None or tenure.left_ms is not None else tenure.since_ms

    def see(self, record: Record) -> None:
        key = record.key
        if key is None or bytes(key[2 : 2 + len(self._mark)]) != self._mark:
            return
        try:
            stored = codec.read(bytes(key), None if record.value is None else bytes(record.value))
        except WireError:
            return  # of a later version of Kafka
        match stored:
            case None:
                return
            case OffsetRecord():
                self._commit(stored)
            case GroupRecord():
                self._classic(record.timestamp, stored.value)
            case ConsumerRecord():
                self._consumer(record.timestamp, stored)
            case _:
                assert_never(stored)

    def _commit(self, record: OffsetRecord) -> None:
        place = (record.topic, record.partition)
        if record.value is None:
            self.commits.pop(place, None)
        else:
            self.commits[place] = Commit(record.value.offset, record.value.commit_ms)

    # -- the classic protocol

    def _classic(self, at_ms: int, state: GroupState | None) -> None:
        members = () if state is None else state.members
        clients = {one.member_id: one.client_id for one in members}
        if state is not None and state.generation and not self._is_latest(state.generation):
            came = _missing(clients, self._clients)
            went = _missing(self._clients, clients)
            self.generations.append(Generation(state.generation, at_ms, came, went))
        self._clients = clients
        if members and not any(one.assignment for one in members):
            return  # the generation is complete, and nobody has anything yet
        owners = dict(_shares(members))
        for place in [place for place in self._tenures if place not in owners]:
            del self._tenures[place]
        for place, owner in owners.items():
            self._has(place, owner, at_ms)

    def _is_latest(self, number: int) -> bool:
        return bool(self.generations) and self.generations[-1].number == number

    # -- the consumer protocol

    def _consumer(self, at_ms: int, record: ConsumerRecord) -> None:
        key, value = record.key, record.value
        match key, value:
            case ConsumerGroupMemberMetadataKey(), None:
                self._gone(key.member)
            case ConsumerGroupMemberMetadataKey(), ConsumerGroupMemberMetadataValue():
                if key.member not in self._clients:
                    self._came.append(value.client_id)
                self._clients[key.member] = value.client_id
                if value.instance_id is not None:
                    self._instances[key.member] = value.instance_id
            case ConsumerGroupCurrentMemberAssignmentKey(), None:
                self._holds(key.member, set(), at_ms)
            case (
                ConsumerGroupCurrentMemberAssignmentKey(),
                ConsumerGroupCurrentMemberAssignmentValue(),
            ):
                rows = (*value.assigned_partitions, *value.partitions_pending_revocation)
                held = {(one.topic_id, number) for one in rows for number in one.partitions}
                self._holds(key.member, held, at_ms)
            case _, ConsumerGroupMetadataValue():
                came, self._came = tuple(self._came), []
                went, self._went = tuple(self._went), []
                self.generations.append(Generation(value.epoch, at_ms, came, went))
            case _:
                return  # targets, patterns, and what is taken back: nobody asks for them here

    def _gone(self, member: str) -> None:
        client = self._clients.pop(member, None)
        self._instances.pop(member, None)
        if client is not None:
            self._went.append(client)

    def _holds(self, member: str, places: AbstractSet[Place], at_ms: int) -> None:
        owner = self._instances.get(member, member)
        for place, tenure in self._tenures.items():
            if tenure.owner == owner and tenure.left_ms is None and place not in places:
                self._tenures[place] = tenure._replace(left_ms=at_ms)
        for place in places:
            self._has(place, owner, at_ms)

    def _has(self, place: Place, owner: str, at_ms: int) -> None:
        """A static member that came back in the same decision was never away."""
        before = self._tenures.get(place)
        goes_on = before is not None and before.owner == owner and before.left_ms in {None, at_ms}
        if not goes_on:
            self._tenures[place] = _Tenure(owner, at_ms)
        elif before is not None and before.left_ms is not None:
            self._tenures[place] = before._replace(left_ms=None)


def _missing(clients: Mapping[str, str], among: Mapping[str, str]) -> tuple[str, ...]:
    """How those are called whose ids are not among the others."""
    return tuple(name for member, name in clients.items() if member not in among)


def _shares(members: Iterable[GroupMember]) -> Iterator[tuple[Place, str]]:
    """Each partition, and who has it."""
    for one in members:
        for topic, partitions in (read_assignment(one.assignment) or {}).items():
            for partition in partitions:
                yield (topic, partition), one.instance_id or one.member_id
