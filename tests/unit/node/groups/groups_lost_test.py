"""A broker notes that it was given up when it sends an answer: its coordinators end right there."""

from typing import Any

from harness.simulation.cluster import A, B, C, SimulatedCluster
from tidelog.kernel.ids import ZERO_UUID
from tidelog.node.groups.placement import OFFSETS_TOPIC
from tidelog.node.groups.requests import (
    CommitOffsets,
    FetchOffsets,
    OffsetsFound,
    OffsetToCommit,
    Who,
)
from tidelog.node.runtime.shard_host import Refusal
from tidelog.wire.errors import ErrorCode

COMMIT = CommitOffsets("g", Who("", None, -1), (OffsetToCommit("t", ZERO_UUID, 0, 5, -1, ""),))
FETCH = FetchOffsets("g", None, -1, None, require_stable=False)


def test_who_still_waits_gets_an_answer_when_the_first_answer_shows_that_the_broker_is_out() -> (
    None
):
    cluster = SimulatedCluster()
    cluster.create(OFFSETS_TOPIC, A, B, C, partitions=1)
    cluster.until(lambda: cluster.leads(A, OFFSETS_TOPIC))
    life = cluster.lives[A]
    answers: list[Any] = []

    def ask(request: object) -> None:
        life.broker.groups.ask(cluster.now, "g", request, answers.append)

    def is_loaded() -> bool:
        ask(FETCH)
        return any(isinstance(one, OffsetsFound) for one in answers)

    cluster.until(is_loaded)
    answers.clear()

    def sent(answer: object) -> None:
        answers.append(answer)
        life.standing.given_up()

    groups = life.broker.groups
    groups.ask(cluster.now, "g", COMMIT, sent)
    ask(FETCH)  # answered together with the commit
    cluster.until(lambda: len(answers) == 2)
    assert answers[0] is None
    assert isinstance(answers[1], OffsetsFound)
    ask(FETCH)
    assert answers[2] == Refusal(ErrorCode.NOT_COORDINATOR)
