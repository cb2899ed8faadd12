"""Groups in clusters under drawn faults: what their members are told can all be true.

A failure names its seed: `GroupHistory(seed).run()` is the same history again, step by step.
"""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from harness.faults.planting import Plant, Planting
from harness.simulation.histories import History
from harness.simulation.members import SESSION_MS, GroupLife
from harness.suite.budgets import Histories
from tidelog.kernel.instant import Instant
from tidelog.node.groups import loading
from tidelog.node.groups.classic import ClassicGroup
from tidelog.node.groups.hosts import Groups, Hosted
from tidelog.node.groups.placement import OFFSETS_TOPIC
from tidelog.node.runtime.shard_host import LogCommitted

FAULTS = ("kill", "kill", "pause", "cut", "one_way", "slow", "coordinator", "stop", "clog", "lose")


class GroupHistory(History):
    """As any history, of a cluster that has a group; of disks nothing is lost."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, group_min_session_timeout_ms="100")
        rng = Random(seed + 2)
        self.kinds = rng.sample(FAULTS, rng.randint(1, len(FAULTS)))
        replicas = rng.sample(sorted(self.cluster.disks), 3)
        self.cluster.create(
            OFFSETS_TOPIC,
            *replicas,
            partitions=1,
            cleanup_policy="compact",
            min_insync_replicas="2",
        )
        self.life = GroupLife(self.cluster, rng, self.partitions)

    def run(self) -> None:
        self.life.start()
        super().run()

    def heal(self) -> None:
        super().heal()
        self.life.end()
        self.cluster.run(2 * SESSION_MS)  # the coordinator notes that all are gone
        self.cluster.until(self._is_group_level)

    def _is_group_level(self) -> bool:
        view = self.cluster.view(OFFSETS_TOPIC)
        replicas = [self.cluster.replica(one, OFFSETS_TOPIC, 0) for one in view.replicas]
        return set(view.isr) == set(view.replicas) and len({one.log.end for one in replicas}) == 1


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_whatever_happens_a_group_tells_its_members_what_can_be_true(
    histories: Histories,
) -> None:
    histories.run(lambda seed: GroupHistory(seed).run())


def _takes_commits_of_an_old_generation(patch: pytest.MonkeyPatch) -> None:
    def lax(self: ClassicGroup, who: Any) -> Any:
        return self.members.named(who)

    patch.setattr(ClassicGroup, "_member", lax)


def _gives_a_generation_twice(patch: pytest.MonkeyPatch) -> None:
    original = ClassicGroup._finish

    def forgetful(self: ClassicGroup, now: Instant, joined: Any, absent: Any, draft: Any) -> None:
        original(self, now, joined, absent, draft)
        for record in draft.records:
            if joined:
                self.replay(record.value)
        draft.records.clear()  # as Kafka, which writes a generation only when it is assigned

    patch.setattr(ClassicGroup, "_finish", forgetful)


def _answers_before_the_replicas_have_it(patch: pytest.MonkeyPatch) -> None:
    original = Groups._rest

    def hasty(self: Groups, now: Instant, hosted: Hosted) -> None:
        if hosted.appended > hosted.committed:
            hosted.committed = hosted.appended
            self._drive(now, hosted, LogCommitted(hosted.appended))
        else:
            original(self, now, hosted)

    patch.setattr(Groups, "_rest", hasty)


def _does_not_load_the_end_of_the_log(patch: pytest.MonkeyPatch) -> None:
    original = loading.Loading.go_on

    def short(self: loading.Loading) -> bool:
        self.end = (
            type(self.end)(max(self._log.start, self.end - 1)) if not self.has_read else self.end
        )
        return original(self)

    patch.setattr(loading.Loading, "go_on", short)


PLANTS: Mapping[Plant, str] = {
    _takes_commits_of_an_old_generation: "G1",
    _gives_a_generation_twice: "given twice",
    _answers_before_the_replicas_have_it: "G3",
    _does_not_load_the_end_of_the_log: "G3",
}
"""Each with the rule by which it must be found."""


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("plant", PLANTS, ids=lambda one: one.__name__)
def test_a_planted_fault_is_found(plant: Plant, planting: Planting) -> None:
    planting.is_found(plant, lambda seed: GroupHistory(seed).run(), match=PLANTS[plant])
