"""What the members of a group were told and what the log of its coordinator says: G1 to G5.

G1: a partition has one owner at a time, and only its owner commits it. G2: generations and epochs
rise. G3: an acknowledged commit is in the log, and is where the next owner begins. G4: no commit
goes back. G5: in the end each partition has one owner. Besides: all below a commit was processed.
"""

import struct
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from tidelog.node.groups import codec
from tidelog.node.groups.records import GroupRecord, GroupState, OffsetRecord
from tidelog.node.groups.records_consumer import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerRecord,
    CurrentPartitions,
)
from tidelog.wire.records import iterate_batches, iterate_records

COOPERATIVE = "cooperative-sticky"


class Event(NamedTuple):
    """One line of a member's history, or what the test did to the member."""

    at: float
    """By the one clock that all processes of the machine share."""
    member: str
    kind: str
    what: Any = None


def by_time(events: Iterable[Event]) -> list[Event]:
    return sorted(events, key=lambda event: event.at)


def numbers(what: dict[str, int]) -> dict[int, int]:
    """Offsets by partition, as JSON gives them."""
    return {int(partition): offset for partition, offset in what.items()}


class Owners:
    """Who has what, as the members themselves were told."""

    def __init__(self) -> None:
        self.of: dict[int, dict[str, float]] = defaultdict(dict)
        """By partition: whoever has it, and since when."""
        self.wrong: list[str] = []
        self._excused: set[str] = set()
        """They slept, and may not have heard yet that they are out."""

    def see(self, event: Event) -> None:
        if event.kind == "assigned":
            for partition in event.what:
                self.of[partition][event.member] = event.at
        elif event.kind in {"revoked", "given up", "lost"}:
            for partition in event.what:
                self._ends(event, partition)
        elif event.kind in {"killed", "closed"}:
            for holders in self.of.values():
                holders.pop(event.member, None)
        elif event.kind in {"paused", "closing"}:
            self._excused.add(event.member)

    def _ends(self, event: Event, partition: int) -> None:
        """Who gives up of its own will had it alone until then.

        Not so who lost it, slept, or cannot tell the one from the other.
        """
        since = self.of[partition].pop(event.member, None)
        if since is None or event.kind != "revoked" or event.member in self._excused:
            return
        for other, from_then in self.of[partition].items():
            if from_then > since:
                self.wrong.append(
                    f"G1: {partition} was given to {other} while {event.member} had it"
                )

    def is_shared(self, partitions: int, members: Collection[str]) -> bool:
        """G5: each partition has one owner, and each member has some, as there are enough."""
        assert partitions >= len(members)
        holders = [holder for one in range(partitions) for holder in self.of[one]]
        return all(self.of[one] for one in range(partitions)) and (
            len(holders) == partitions and set(holders) == set(members)
        )


def wrong_owners(events: Iterable[Event]) -> list[str]:
    owners = Owners()
    for event in by_time(events):
        owners.see(event)
    return owners.wrong


class Reads:
    """G3: who gets a partition goes on at a commit, and at none that is older than the newest
    acknowledged before; from there nothing is left out and nothing comes again."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self._acknowledged: dict[int, int] = defaultdict(int)
        self._asked: dict[int, set[int]] = defaultdict(lambda: {0})
        self._least: dict[tuple[str, int], int] = {}
        """By member and partition: what was acknowledged when it got it."""
        self._next: dict[tuple[str, int], int] = {}

    def see(self, event: Event) -> None:
        if event.kind == "assigned":
            for partition in event.what:
                self._least[event.member, partition] = self._acknowledged[partition]
                self._next.pop((event.member, partition), None)
        elif event.kind == "commit":
            for partition, offset in numbers(event.what).items():
                self._asked[partition].add(offset)
        elif event.kind == "committed":
            for partition, offset in numbers(event.what).items():
                self._acknowledged[partition] = max(self._acknowledged[partition], offset)
        elif event.kind == "read":
            self._read(event.member, *event.what)

    def _read(self, member: str, partition: int, first: int, end: int) -> None:
        place = f"{member} %s {first} of {partition}"
        before = self._next.get((member, partition))
        self._next[member, partition] = end
        if before is not None:
            if before != first:
                self.wrong.append(f"G3: {place % 'read'} after {before}")
            return
        least = self._least.get((member, partition), 0)
        if first not in self._asked[partition]:
            self.wrong.append(f"G3: {place % 'began at'}, which nobody committed")
        if first < least:
            self.wrong.append(f"G3: {place % 'began at'}, {least} was acknowledged")


def wrong_reads(events: Iterable[Event]) -> list[str]:
    reads = Reads()
    for event in by_time(events):
        reads.see(event)
    return reads.wrong


def unprocessed(events: Iterable[Event], committed: dict[int, int]) -> Iterator[str]:
    """At least once: everything below what is committed was processed by somebody."""
    runs = defaultdict[int, list[tuple[int, int]]](list)
    for event in events:
        if event.kind == "read":
            partition, first, end = event.what
            runs[partition].append((first, end))
    for partition, offset in committed.items():
        reached = 0
        for first, end in sorted(runs[partition]):
            if first <= reached:
                reached = max(reached, end)
        if reached < offset:
            yield f"{partition}: {offset} is committed, and {reached} was not processed"


# -- what the coordinator wrote


def log_of(group: str, log: bytes) -> list[codec.LoggedRecord]:
    """The records of one group, in the order in which they were decided."""
    found = []
    for _, batch in iterate_batches(memoryview(log)):
        for record in iterate_records(batch):
            assert record.key is not None
            value = None if record.value is None else bytes(record.value)
            stored = codec.read(bytes(record.key), value)
            if stored is not None and stored.group == group:
                found.append(stored)
    return found


def logged_of(group: str, log: bytes, *, changes: bool = False) -> "LoggedGroup":
    """All of it, replayed."""
    found = LoggedGroup(changes=changes)
    for record in log_of(group, log):
        found.replay(record)
    return found


def differing(logs: Sequence[bytes]) -> Iterator[str]:
    """Of the replicas of one partition."""
    if len(set(logs)) > 1:
        yield f"the replicas' bytes differ: {[len(log) for log in logs]} of them"


class LoggedGroup:
    """Replays what a coordinator wrote of a group, and tells what may not follow on what. One that
    changes its protocol takes its records back, and begins anew where it was."""

    def __init__(self, *, changes: bool = False) -> None:
        self._changes = changes
        self._has_changed = False
        self.wrong: list[str] = []
        self.committed: dict[int, int] = {}
        self.commits: set[tuple[str, int, int]] = set()
        """Member, partition, offset: of each that is in the log."""
        self.generations = 0
        self._generation = -1
        self._is_assigned = False
        self._has: dict[str, frozenset[int]] = {}
        """By member id."""
        self._names: dict[str, str] = {}
        """The names that members gave themselves, by id."""

    def replay(self, record: codec.LoggedRecord) -> None:
        if isinstance(record, OffsetRecord):
            self._commit(record)
        elif isinstance(record, GroupRecord):
            self._classic(record.value)
        else:
            self._consumer(record)

    def _commit(self, record: OffsetRecord) -> None:
        partition, value = record.partition, record.value
        if value is None:
            self.wrong.append(f"G3: the commit of {partition} was forgotten")
            return
        committer = value.metadata.rstrip("\0")  # confluent-kafka sends the end of a C string, too
        if self._generation < 0 and not committer:
            # No member did this: the test says where the group begins, before it has members.
            self.committed[partition] = value.offset
            return
        owners = {self._names[one] for one, has in self._has.items() if partition in has}
        if committer not in owners:
            self.wrong.append(
                f"G1: {committer} committed {partition} at {value.offset} in "
                f"{self._generation}, of {sorted(owners)}"
            )
        before = self.committed.get(partition, 0)
        if value.offset < before:
            self.wrong.append(f"G4: {partition} went back from {before} to {value.offset}")
        self.committed[partition] = value.offset
        self.commits.add((committer, partition, value.offset))

    def _rises(self, generation: int, *, may_stay: bool) -> None:
        may_stay, self._has_changed = may_stay or self._has_changed, False
        if generation < self._generation + (not may_stay):
            self.wrong.append(f"G2: {generation} after {self._generation}")
        self.generations += generation > self._generation
        self._generation = generation

    def _classic(self, state: GroupState | None) -> None:
        if state is None:
            self._forgotten()
            return
        names = {one.member_id: one.client_id for one in state.members}
        shares = {one.member_id: _assignment(one.assignment) for one in state.members}
        # A generation is written when its members are known, and again when each has its share.
        stays = not self._is_assigned and names.keys() == self._names.keys()
        self._rises(state.generation, may_stay=stays)
        self._names = names
        self._is_assigned = any(shares.values())
        if state.protocol == COOPERATIVE:
            # It hears in the new generation what it is to give up, and commits that first.
            given = frozenset[int]().union(*shares.values())
            for member, share in shares.items():
                shares[member] = share | (self._has.get(member, frozenset()) - given)
        self._has = shares
        self._alone()

    def _consumer(self, record: ConsumerRecord) -> None:
        key, value = record.key, record.value
        if isinstance(key, ConsumerGroupMetadataKey):
            if isinstance(value, ConsumerGroupMetadataValue):
                self._rises(value.epoch, may_stay=False)
            else:
                self._forgotten()
        elif isinstance(value, ConsumerGroupMemberMetadataValue):
            assert isinstance(key, ConsumerGroupMemberMetadataKey)
            self._names[key.member] = value.client_id
        elif isinstance(key, ConsumerGroupCurrentMemberAssignmentKey):
            if value is None:
                self._has.pop(key.member, None)
                return
            assert isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
            if value.member_epoch > self._generation:
                self.wrong.append(f"G2: a member of {value.member_epoch} in {self._generation}")
            has = (*value.assigned_partitions, *value.partitions_pending_revocation)
            self._has[key.member] = _partitions(has)
            self._alone()

    def _forgotten(self) -> None:
        """In the other protocol it writes anew what each of its members has. One who left in the
        generation that was about to end is not among them, and no record tells so."""
        self._has_changed = self._changes
        self._has.clear()
        if not self._changes:
            self.wrong.append(f"G2: the group was forgotten in {self._generation}")

    def _alone(self) -> None:
        owner: dict[int, str] = {}
        for member, has in self._has.items():
            for partition in has:
                other = owner.setdefault(partition, member)
                if other != member:
                    names = f"{self._names[other]} and {self._names[member]}"
                    self.wrong.append(f"G1: {partition} is of {names} in {self._generation}")


def _partitions(rows: Sequence[CurrentPartitions]) -> frozenset[int]:
    """There is one topic only."""
    return frozenset(one for row in rows for one in row.partitions)


def _assignment(said: bytes) -> frozenset[int]:
    """What clients give each other: a version, topics, partitions; there is one topic only."""
    if not said:
        return frozenset()
    _, topics = struct.unpack_from(">hi", said)
    if topics < 1:
        return frozenset()
    (name,) = struct.unpack_from(">h", said, 6)
    (count,) = struct.unpack_from(">i", said, 8 + name)
    return frozenset(struct.unpack_from(f">{count}i", said, 12 + name))


def missing_commits(events: Iterable[Event], log: LoggedGroup) -> Iterator[str]:
    """G3: what a member was told is committed is in the log."""
    for event in events:
        if event.kind == "committed":
            for partition, offset in numbers(event.what).items():
                if (event.member, partition, offset) not in log.commits:
                    yield f"G3: {event.member}'s commit {offset} of {partition} is not in the log"


def not_committed(log: LoggedGroup, sent: Sequence[int]) -> Iterator[str]:
    """G3: in the end everything that was produced is committed, and nothing else."""
    if log.committed != dict(enumerate(sent)):
        yield f"G3: {log.committed} is committed, {list(sent)} was produced"


def failures(events: Iterable[Event]) -> Iterator[str]:
    """What clients did not get over."""
    for event in events:
        if event.kind == "failed":
            yield f"{event.member}: {event.what}"
