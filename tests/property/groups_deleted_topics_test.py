"""Committed offsets while topics are deleted and made again under their old names.

Drawn histories of one broker whose coordinators are elected again and load, lose their leader, or
have too few replicas in sync to write. After each step: a group that is asked for a topic gets what
was committed of the topic that has the name now, and nothing of one that had it before.
"""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from harness.machines.brokers import ME
from harness.machines.group_bench import GroupBench, commit, fetch_offsets
from harness.machines.transactions import end_in_group, pend
from harness.suite.budgets import Histories
from tidelog.kernel.ids import BrokerId, Epoch, Partition, Uuid
from tidelog.node.groups.placement import OFFSETS_TOPIC
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k09_offset_fetch
from tidelog.wire.metadata_records import (
    ConfigChanged,
    PartitionChanged,
    PartitionCreated,
    PartitionView,
    ResourceKind,
    TopicCreated,
)

STEPS = 60
GROUPS = ("g", "h")
TOPICS = ("t", "u")
PRODUCERS = (7, 8)
AWAY = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR}
LACKING = {ErrorCode.COORDINATOR_NOT_AVAILABLE}

Where = tuple[str, str]
"""Group and topic; each topic has one partition."""


class History:
    """What was committed of the topics that there are, and a broker that should know it."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.bench = GroupBench(directory, partitions=0)
        self.view = PartitionView(
            leader=ME,
            leader_epoch=Epoch(0),
            partition_epoch=Epoch(0),
            replicas=(ME, BrokerId(1)),
            isr=(ME,),
        )
        self.offsets_topic = Uuid(b"the groups' own!")
        self.bench.replay(
            TopicCreated(self.offsets_topic, OFFSETS_TOPIC),
            PartitionCreated(self.offsets_topic, Partition(0), self.view),
        )
        self.ids: dict[str, Uuid] = {}
        self.committed: dict[Where, int] = {}
        self.pending: dict[int, dict[Where, tuple[Uuid, int]]] = {}
        """By producer: of which topic, and what."""
        self.written: dict[Where, int] = {}
        """When each was committed last, counted in steps."""
        self.next = 0
        self.steps: tuple[Callable[[], None], ...] = (
            *(self.commit,) * 4,
            *(self.pend,) * 3,
            *(self.end,) * 2,
            *(self.delete,) * 2,
            *(self.make,) * 4,
            self.elect_again,
            self.lose_leader,
            *(self.load,) * 2,
            self.lack_replicas,
            self.have_replicas,
        )

    def run(self) -> None:
        for _ in range(STEPS):
            self.random.choice(self.steps)()
            self.check()
        for producer_id in list(self.pending):
            self.elect_again()
            self.load()
            self.have_replicas()
            self._end(producer_id, committed=self.random.random() < 0.5)
            self.check()
        self.elect_again()
        self.have_replicas()
        self.load()
        self.check()
        self.check_log()
        self.bench.close()

    # -- what happens

    def commit(self) -> None:
        group, topic = self._somewhere()
        self.next += 1
        (code,) = commit(self.bench, group, {topic: [self.next]})
        if code == ErrorCode.NONE:
            self.committed[group, topic] = self.next
            for pending in self.pending.values():
                pending.pop((group, topic), None)  # it was committed before this
        elif topic not in self.ids:
            assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            assert code in AWAY | LACKING

    def pend(self) -> None:
        group, topic = self._somewhere()
        if topic not in self.ids:
            return
        self.next += 1
        producer_id = self.random.choice(PRODUCERS)
        said = pend(self.bench, group, self.next, producer_id=producer_id, topic=topic)
        if said is None:
            mine = self.pending.setdefault(producer_id, {})
            mine[group, topic] = self.ids[topic], self.next
        else:
            assert said.code in AWAY | LACKING

    def end(self) -> None:
        if self.pending and self.bench.broker.replicas.leading() and not self._is_loading():
            producer_id = self.random.choice(list(self.pending))
            self._end(producer_id, committed=self.random.random() < 0.7)

    def _end(self, producer_id: int, *, committed: bool) -> None:
        if self._is_led():
            marked = end_in_group(self.bench, "g", producer_id, committed=committed)
            if marked.outcomes == (ErrorCode.NOT_ENOUGH_REPLICAS,):
                return  # the transaction coordinator sends the marker again
            for where, (topic, offset) in self.pending.pop(producer_id).items():
                if committed and self.ids.get(where[1]) == topic:
                    self.committed[where] = max(offset, self.committed.get(where, -1))

    def delete(self) -> None:
        if self.ids:
            topic = self.random.choice(sorted(self.ids))
            self.bench.delete(self.ids.pop(topic))
            self.committed = {
                where: at for where, at in self.committed.items() if where[1] != topic
            }

    def make(self) -> None:
        gone = [name for name in TOPICS if name not in self.ids]
        if gone:
            topic = self.random.choice(gone)
            self.ids[topic] = self.bench.topic(topic)

    def elect_again(self) -> None:
        self._become(leader=ME, leader_epoch=Epoch(self.view.leader_epoch + 1))

    def lose_leader(self) -> None:
        self._become(leader=BrokerId(-1), leader_epoch=Epoch(self.view.leader_epoch + 1))

    def load(self) -> None:
        self.bench.load()

    def lack_replicas(self) -> None:
        self._ask_for_replicas("2")

    def have_replicas(self) -> None:
        self._ask_for_replicas("1")

    def _ask_for_replicas(self, count: str) -> None:
        topic = ResourceKind.TOPIC
        self.bench.replay(ConfigChanged(topic, OFFSETS_TOPIC, "min.insync.replicas", count))

    def _become(self, **fields: Any) -> None:
        epoch = Epoch(self.view.partition_epoch + 1)
        self.view = replace(self.view, partition_epoch=epoch, **fields)
        self.bench.replay(PartitionChanged(self.offsets_topic, Partition(0), self.view))

    def _somewhere(self) -> Where:
        return self.random.choice(GROUPS), self.random.choice(TOPICS)

    def _is_led(self) -> bool:
        return self.view.leader == ME

    def _is_loading(self) -> bool:
        return self.bench.broker.groups.is_loading

    # -- what is true after each step

    def check(self) -> None:
        for group in GROUPS:
            by_name = fetch_offsets(self.bench, group, **dict.fromkeys(TOPICS, 1))
            if ("", -1) in by_name:
                assert by_name["", -1] in AWAY
            else:
                self._check_group(group, by_name)

    def _check_group(self, group: str, by_name: dict[tuple[str, int], int]) -> None:
        expected = {topic: self.committed.get((group, topic), -1) for topic in TOPICS}
        assert by_name == {(topic, 0): at for topic, at in expected.items()}
        there = {topic: at for topic, at in expected.items() if at != -1}
        assert fetch_offsets(self.bench, group) == {(t, 0): at for t, at in there.items()}
        assert self._by_id(group) == {self.ids[topic]: at for topic, at in there.items()}

    def _by_id(self, group: str) -> dict[Uuid, int]:
        asked = k09_offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=None)
        request = k09_offset_fetch.OffsetFetchRequest(groups=[asked])
        (found,) = self.bench.ask(k09_offset_fetch.API, 10, request).groups
        return {one.topic_id: one.partitions[0].committed_offset for one in found.topics}

    def check_log(self) -> None:
        """Nothing of a deleted topic is kept."""
        hosted = self.bench.broker.groups._hosted[Partition(0)]
        offsets = hosted.shard._offsets
        kept = {(group, t): v for group in GROUPS for (t, _), v in offsets.of(group).items()}
        assert {where: value.topic_id for where, value in kept.items()} == {
            where: self.ids[where[1]] for where in self.committed
        }


def test_no_offset_passes_from_a_deleted_topic_to_the_next_of_its_name(
    tmp_path: Path, histories: Histories
) -> None:
    histories.run(lambda seed: History(tmp_path / f"log{seed}", seed).run())
