"""Loading a coordinator's log while compaction passes over it: the same groups come out.

Groups are made, deleted and made again under the same names, so that what a pass takes out of the
middle of a load makes a group seem to go back.
"""

import random

import pytest

from harness.logs.compaction import append
from harness.machines.consumer_groups import TopicsInMemory, topic_id
from harness.suite.budgets import Histories
from property.groups_any_log_test import SHARD_SETTINGS
from tidelog.kernel.instant import Instant, ms
from tidelog.node.groups import codec, loading
from tidelog.node.groups.classic import ClassicGroup
from tidelog.node.groups.consumer import ConsumerGroup
from tidelog.node.groups.consumer_log import (
    LoggedGroup,
    current_record,
    epoch_record,
    group_tombstones,
    member_record,
)
from tidelog.node.groups.consumer_member import Member
from tidelog.node.groups.group import Around
from tidelog.node.groups.records import (
    CommittedOffset,
    GroupMember,
    GroupRecord,
    GroupState,
    OffsetRecord,
)
from tidelog.node.groups.records_consumer import ConsumerRecord
from tidelog.node.groups.shard import GroupShard
from unit.node.log.log_cleaner_test import Place

STEPS = 25
Rows = list[codec.LoggedRecord]


@pytest.fixture(autouse=True)
def _one_batch_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "CHUNK_BYTES", 1)


def shard() -> GroupShard:
    topics = TopicsInMemory(t=1)
    return GroupShard(Around(SHARD_SETTINGS, topics, lambda now: now // ms(1), lambda _told: None))


def classic(generation: int) -> GroupRecord:
    member = GroupMember("m", "i", "", "", 1_000, 1_000, b"", b"share")
    state = GroupState("consumer", generation, "range", "m", 5, (member,) if generation % 2 else ())
    return GroupRecord("g", state)


def sealed(place: Place, *batches: Rows) -> None:
    for rows in batches:
        append(place.log, [codec.pair(row) for row in rows])
    place.seal()


def loaded(place: Place, passes: set[int]) -> GroupShard:
    """The coordinator, where compaction passes before these chunks."""
    made = shard()
    load = loading.Loading(made, place.log, "x")
    chunk = 0
    while load.go_on():
        chunk += 1
        if chunk in passes:
            place.compact()
    made.loaded(Instant(0))
    return made


KINDS: dict[str, tuple[Rows, Rows, Rows]] = {
    "classic": ([classic(51)], [GroupRecord("g", None)], [classic(1)]),
    "consumer": (
        [epoch_record("g", 50, 0)],
        [*group_tombstones(LoggedGroup("g"))],
        [epoch_record("g", 1, 0)],
    ),
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_group_made_again_is_loaded_though_its_deletion_is_compacted_away(kind: str) -> None:
    place = Place()
    for rows in KINDS[kind]:
        sealed(place, rows)
    append(place.log, [codec.pair(GroupRecord("other", None))])
    (group,) = loaded(place, passes={1})._groups.values()
    assert (group.log.epoch if isinstance(group, ConsumerGroup) else group.generation) == 1  # type: ignore[attr-defined]  # a classic one


def test_loading_goes_on_behind_records_that_are_deleted_meanwhile() -> None:
    place = Place()
    for generation in (1, 3, 5, 7):
        append(place.log, [codec.pair(classic(generation))])
    made = shard()
    load = loading.Loading(made, place.log, "x")
    assert load.go_on()
    place.log.advance_start(3)
    while load.go_on():
        pass
    made.loaded(Instant(0))
    (group,) = made._groups.values()
    assert group.generation == 7  # type: ignore[attr-defined]  # a classic one


class Log:
    """What a coordinator with two names for groups, of both kinds, may have written."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.place = Place()
        self.groups: dict[str, LoggedGroup | int] = {}
        """By name: what it is, or its generation where it is classic."""
        for _ in range(STEPS):
            name = self.random.choice("gh")
            rows = self._deleted(name) if self.random.random() < 0.3 else self._changed(name)
            if rows:
                append(self.place.log, [codec.pair(row) for row in rows])
            if self.random.random() < 0.4:
                self.place.seal()

    def _deleted(self, name: str) -> Rows:
        group = self.groups.pop(name, None)
        offset = OffsetRecord(name, "t", 0, None)
        if group is None:
            return []
        if isinstance(group, LoggedGroup):
            return [offset, *group_tombstones(group)]
        return [offset, GroupRecord(name, None)]

    def _changed(self, name: str) -> Rows:
        group = self.groups.get(name)
        value = CommittedOffset(self.random.randrange(99), -1, "", 0, -1, topic_id("t"))
        if group is None and self.random.random() < 0.5:
            group = LoggedGroup(name)
        if isinstance(group, LoggedGroup):
            rows: Rows = [*self._epoch_of(group)]
            for row in rows:
                assert isinstance(row, ConsumerRecord)
                group.replay(row)
        else:
            generation = (group or 0) + self.random.randint(1, 2)
            group, rows = generation, [GroupRecord(name, classic(generation).value)]
        self.groups[name] = group
        return [*rows, OffsetRecord(name, "t", 0, value)]

    def _epoch_of(self, group: LoggedGroup) -> Rows:
        epoch = group.epoch + 1
        held = {topic_id("t"): {0: epoch}} if self.random.random() < 0.5 else {}
        member = Member("m", topics=("t",), instance_id="i", epoch=epoch, assigned=held)
        return [
            member_record(group.group, member),
            epoch_record(group.group, epoch, 0),
            current_record(group.group, member),
        ]


def known(of: GroupShard) -> dict[str, object]:
    """All that a client could be told."""
    told: dict[str, object] = {}
    for name, group in of._groups.items():
        if isinstance(group, ConsumerGroup):
            log = group.log
            told[name] = (log.epoch, log.members, log.holders, log.instances, log.target)
        else:
            assert isinstance(group, ClassicGroup)
            told[name] = (group.generation, group.state, [one.id for one in group.members])
    offsets = {name: dict(of._offsets.of(name)) for name in "gh"}
    return {"groups": told, "offsets": offsets}


def test_a_log_compacted_while_it_is_loaded_gives_the_same_groups(histories: Histories) -> None:
    def load(seed: int) -> None:
        log = Log(seed)
        batches = max(1, sum(1 for _ in log.place.rows()))
        passes = {log.random.randrange(1, batches + 1) for _ in range(2)}
        expected = known(loaded(log.place, passes=set()))
        assert known(loaded(log.place, passes)) == expected, passes

    histories.run(load)
