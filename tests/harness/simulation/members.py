"""Members of a classic group in a simulated cluster, and what they may not be told.

The rules are those of docs/groups.md. G1: a partition has one owner in a generation, and none of an
older one commits. G2: generations rise. G3: an acknowledged commit is read again. G4: it never goes
back. G5: in the end each partition has one owner.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

from harness.simulation.clients import Asked
from harness.simulation.cluster import SimulatedCluster
from tidelog.kernel.ids import NO_LEADER
from tidelog.node.groups.placement import OFFSETS_TOPIC, partition_of
from tidelog.wire.header import AnyApi
from tidelog.wire.messages import (
    k08_offset_commit,
    k09_offset_fetch,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
)

GROUP = "g"
SESSION_MS = 1_500
AGAIN_MS = 40.0
_WRONG_PLACE = {14, 15, 16}


class Truth:
    """What all members were told, and what of it cannot stand together."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.owners: dict[int, dict[int, str]] = {}
        """By generation and partition."""
        self.leaders: dict[int, tuple[str, frozenset[str]]] = {}
        self.newest = 0
        self.sent = [0] * partitions
        self.acknowledged = [-1] * partitions
        self.commits = 0

    def joined(self, asked_at: int, generation: int, leader: str, members: frozenset[str]) -> None:
        """`asked_at` is the newest generation known when the question was asked."""
        assert generation >= asked_at, f"G2: generation {generation} after {asked_at}"
        self.newest = max(self.newest, generation)
        if members:
            known = self.leaders.setdefault(generation, (leader, members))
            assert known == (leader, members), f"G2: generation {generation} was given twice"

    def assigned(self, generation: int, member: str, partitions: tuple[int, ...]) -> None:
        owners = self.owners.setdefault(generation, {})
        for partition in partitions:
            owner = owners.setdefault(partition, member)
            assert owner == member, f"G1: {partition} is {owner}'s and {member}'s"

    def committed(self, asked_at: int, generation: int, partition: int, offset: int) -> None:
        assert generation >= asked_at, f"G1: a commit of {generation} after {asked_at} began"
        self.acknowledged[partition] = max(self.acknowledged[partition], offset)
        self.commits += 1

    def fetched(self, known: int, partition: int, offset: int) -> None:
        """`known` was acknowledged when the question was asked."""
        assert offset >= known, f"G3, G4: {partition} is at {offset}, {known} was acknowledged"
        assert offset <= self.sent[partition], (partition, offset)


class Member:
    """One client: it joins, assigns if it leads, beats, commits what it owns, and reads it back."""

    def __init__(self, cluster: SimulatedCluster, truth: Truth, seed: int) -> None:
        self.cluster = cluster
        self.truth = truth
        self.rng = Random(seed)
        self.member_id = ""
        self.generation = -1
        self.owned: tuple[int, ...] = ()
        self.is_dead = False
        self._again(0)

    # -- asking

    def _again(self, milliseconds: float = AGAIN_MS) -> None:
        self.cluster.timeline.after(milliseconds, self._turn)

    def _ask(self, api: AnyApi, version: int, message: object, then: Callable[[Any], None]) -> None:
        """Have the coordinator answer, as some broker knows it; else come again."""
        lives = [life for life in self.cluster.lives.values() if life.serving]
        image = self.rng.choice(lives).link.image if lives else None
        topic = None if image is None else image.names.get(OFFSETS_TOPIC)
        leader = NO_LEADER
        if topic is not None:
            leader = topic.partitions[partition_of(GROUP, len(topic.partitions))].leader
        if leader not in self.cluster.lives:
            self._again()
            return

        def over(asked: Asked) -> None:
            if self.is_dead:
                return
            if asked.answer is None:
                self._again()
            else:
                then(asked.answer)

        # It may be over before it has a name: what comes of it is taken at the next turn.
        box: list[Asked] = []
        timeline = self.cluster.timeline
        life = self.cluster.lives[leader]
        done = partial(timeline.after, 0, lambda: over(box[0]))
        box.append(Asked(life, api, version, message, done))

    def _turn(self) -> None:
        if self.is_dead:
            return
        if self.generation < 0:
            self._join()
            return
        draw = self.rng.random()
        if draw < 0.3 or not self.owned:
            self._beat()
        elif draw < 0.4:
            # A thread of it that slept through the rebalance.
            self._commit(self.rng.choice(self.owned), behind=1)
        elif draw < 0.8:
            self._commit(self.rng.choice(self.owned))
        else:
            self._fetch(self.rng.choice(self.owned))

    def _refused(self, code: int) -> None:
        """What a client makes of it."""
        if code in {22, 25, 27}:
            self.generation, self.owned = -1, ()
        if code == 25:
            self.member_id = ""
        assert code in {22, 25, 27} | _WRONG_PLACE, code
        self._again()

    # -- requests

    def _join(self) -> None:
        known = self.truth.newest
        request = k11_join_group.JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[k11_join_group.JoinGroupRequestProtocol(name="range", metadata=b"m")],
        )

        def then(answer: Any) -> None:
            if answer.error_code == 79:
                self.member_id = answer.member_id
                self._turn()
            elif answer.error_code:
                self._refused(answer.error_code)
            else:
                members = frozenset(one.member_id for one in answer.members)
                self.truth.joined(known, answer.generation_id, answer.leader, members)
                self._sync(answer)

        self._ask(k11_join_group.API, 9, request, then)

    def _sync(self, joined: Any) -> None:
        parts: dict[str, list[int]] = {one.member_id: [] for one in joined.members}
        for partition in range(self.truth.partitions if parts else 0):
            sorted(parts.items())[partition % len(parts)][1].append(partition)
        request = k14_sync_group.SyncGroupRequest(
            group_id=GROUP,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                # One byte more, so that nobody's assignment is empty.
                k14_sync_group.SyncGroupRequestAssignment(
                    member_id=name, assignment=bytes([255, *places])
                )
                for name, places in parts.items()
            ],
        )

        def then(answer: Any) -> None:
            if answer.error_code:
                self._refused(answer.error_code)
                self.generation = -1
                return
            self.generation = joined.generation_id
            self.owned = tuple(answer.assignment[1:])
            self.truth.assigned(self.generation, self.member_id, self.owned)
            self._again()

        self._ask(k14_sync_group.API, 5, request, then)

    def _beat(self) -> None:
        request = k12_heartbeat.HeartbeatRequest(
            group_id=GROUP, generation_id=self.generation, member_id=self.member_id
        )

        def then(answer: Any) -> None:
            if answer.error_code:
                self._refused(answer.error_code)
            else:
                self._again()

        self._ask(k12_heartbeat.API, 4, request, then)

    def _commit(self, partition: int, behind: int = 0) -> None:
        truth, generation = self.truth, self.generation - behind
        known = truth.newest
        truth.sent[partition] += 1
        offset = truth.sent[partition]
        row = k08_offset_commit.OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=""
        )
        request = k08_offset_commit.OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=generation,
            member_id=self.member_id,
            topics=[k08_offset_commit.OffsetCommitRequestTopic(name="t", partitions=[row])],
        )

        def then(answer: Any) -> None:
            code = answer.topics[0].partitions[0].error_code
            if code and behind:
                self._again()
            elif code:
                self._refused(code)
            else:
                truth.committed(known, generation, partition, offset)
                self._again()

        self._ask(k08_offset_commit.API, 8, request, then)

    def _fetch(self, partition: int) -> None:
        known = self.truth.acknowledged[partition]
        asked = k09_offset_fetch.OffsetFetchRequestTopic(name="t", partition_indexes=[partition])
        request = k09_offset_fetch.OffsetFetchRequest(group_id=GROUP, topics=[asked])

        def then(answer: Any) -> None:
            if answer.error_code:
                self._refused(answer.error_code)
            else:
                found = answer.topics[0].partitions[0].committed_offset
                self.truth.fetched(known, partition, found)
                self._again()

        self._ask(k09_offset_fetch.API, 7, request, then)

    # -- its end

    def die(self) -> None:
        """Without a word."""
        self.is_dead = True

    def leave(self) -> None:
        one = k13_leave_group.MemberIdentity(member_id=self.member_id)
        request = k13_leave_group.LeaveGroupRequest(group_id=GROUP, members=[one])
        self._ask(k13_leave_group.API, 5, request, lambda _: None)
        self.is_dead = True


class GroupLife:
    """Members that come and go, in a cluster that others break."""

    def __init__(self, cluster: SimulatedCluster, rng: Random, partitions: int) -> None:
        self.cluster = cluster
        self.rng = rng
        self.truth = Truth(partitions)
        self.members: list[Member] = []
        self.over = False

    def start(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            self._come()
        self._go_on()

    def _come(self) -> None:
        self.members.append(Member(self.cluster, self.truth, self.rng.randrange(1 << 30)))

    def _go_on(self) -> None:
        if self.over:
            return
        alive = [one for one in self.members if not one.is_dead]
        draw = self.rng.random()
        if draw < 0.4 and len(alive) < 6:
            self._come()
        elif draw < 0.7 and alive:
            self.rng.choice(alive).leave()
        elif alive:
            self.rng.choice(alive).die()
        self.cluster.timeline.after(self.rng.uniform(50, 1_500), self._go_on)

    def end(self) -> None:
        """Nobody comes or goes any more: each partition must get one owner."""
        self.over = True
        if all(one.is_dead for one in self.members):
            self._come()
        before = self.truth.commits
        self.cluster.until(lambda: self._is_shared() and self.truth.commits > before + 5)
        for one in self.members:
            one.die()

    def _is_shared(self) -> bool:
        """G5."""
        alive = [one for one in self.members if not one.is_dead]
        owned = sorted(place for one in alive for place in one.owned)
        same = {one.generation for one in alive} == {self.truth.newest}
        return same and owned == list(range(self.truth.partitions))
