"""A transaction of an unmodified client while real processes die by SIGKILL, at twelve moments of
its way that cover each step, each moment of a step, and each victim; with `--nightly`, at all.

Whoever died, the client hears the outcome it asked for, each partition holds that end once, and
nothing hangs. `unit/scenarios/cluster_transaction_kills_test.py` has the same table in a
simulated cluster.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product

import pytest

from harness.clients.java_transactional import Jvm
from harness.clients.transactional import MAKERS, TIMEOUT_MS, Transactional
from harness.faults.mortal_cluster import (
    FIRST,
    OFFSET,
    SECOND,
    MortalCluster,
    Scene,
    mortal_cluster,
)
from harness.faults.mortals import Trap, When
from tidelog.node.groups.placement import OFFSETS_TOPIC

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STEPS = (
    "AddPartitions",
    "AddOffsets",
    "TxnOffsetCommit",
    "Prepare",
    "marker first topic",
    "marker second topic",
    f"marker {OFFSETS_TOPIC}",
    "Complete",
)
MOMENTS = (When.SAID, When.BEFORE, When.APPENDED, When.COMMITTED)
VICTIMS = ("coordinator", "state leader", "data leader")
Make = Callable[[str, int], Transactional]
"""Takes a transactional id, and the time-out of a transaction."""
Cell = tuple[str, When, str, bool]
"""Step, moment, victim, and whether the client commits."""
TWELVE: tuple[Cell, ...] = (
    ("AddPartitions", When.SAID, "coordinator", True),
    ("AddPartitions", When.APPENDED, "state leader", False),
    ("AddOffsets", When.COMMITTED, "data leader", True),
    ("TxnOffsetCommit", When.BEFORE, "state leader", True),
    ("TxnOffsetCommit", When.APPENDED, "data leader", True),
    ("Prepare", When.APPENDED, "coordinator", True),
    ("Prepare", When.COMMITTED, "state leader", False),
    ("marker first topic", When.BEFORE, "data leader", True),
    ("marker first topic", When.COMMITTED, "coordinator", False),
    ("marker second topic", When.APPENDED, "data leader", True),
    (f"marker {OFFSETS_TOPIC}", When.COMMITTED, "data leader", False),
    ("Complete", When.APPENDED, "coordinator", True),
)
ALL: tuple[Cell, ...] = tuple(
    (*cell, bool(number % 2))
    for number, cell in enumerate(product(STEPS, MOMENTS, VICTIMS))
    if cell[:2] != ("TxnOffsetCommit", When.SAID)  # the coordinator is asked, and asks for nothing
)


@pytest.fixture(scope="module")
def mortals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MortalCluster]:
    with mortal_cluster(tmp_path_factory.mktemp("mortals")) as cluster:
        librdkafka(cluster)("the first", TIMEOUT_MS)  # makes the topic
        yield cluster
        hanging = cluster.done("txn", "hanging", "--max-timeout", "0s", "--json").document
        assert hanging["hanging"] == [], hanging
        assert "crashed" not in cluster.logs()


def test_the_twelve_cover_each_step_moment_and_victim() -> None:
    """Said and not yet written is before."""
    assert {cell[0] for cell in TWELVE} == set(STEPS)
    moments = {When.SAID: When.BEFORE}
    found = {(moments.get(when, when), victim) for _, when, victim, _ in TWELVE}
    assert found == set(product(MOMENTS[1:], VICTIMS))


@pytest.mark.parametrize(("step", "when", "victim", "commits"), TWELVE)
def test_the_outcome_is_what_was_asked_for_though_somebody_dies(
    mortals: MortalCluster, step: str, when: When, victim: str, *, commits: bool
) -> None:
    live_through(mortals, librdkafka(mortals), (step, when, victim, commits))


def test_so_it_is_in_every_cell_of_the_table(mortals: MortalCluster, *, nightly: bool) -> None:
    if not nightly:
        pytest.skip("the twelve of each run cover it")
    for cell in ALL:
        live_through(mortals, librdkafka(mortals), cell)


def test_so_it_is_with_the_java_client(mortals: MortalCluster, *, nightly: bool) -> None:
    """It speaks version 2 of transactions where the cluster has it."""
    if not nightly:
        pytest.skip("in each run there are twelve with another client")
    with Jvm(mortals.bootstrap) as jvm:
        for cell in ALL:
            live_through(mortals, jvm.make, cell)


def librdkafka(mortals: MortalCluster) -> Make:
    return partial(MAKERS["confluent-kafka"], mortals.bootstrap)


def live_through(mortals: MortalCluster, make: Make, cell: Cell) -> None:
    step, when, victim, commits = cell
    scene = Scene(mortals)
    first, second = scene.topics
    step = step.replace("first topic", first).replace("second topic", second)
    producer = make(scene.name, TIMEOUT_MS)
    dead = scene.set_trap(step, when, victim)
    write(producer, scene)
    producer.commit() if commits else producer.abort()
    write_again(producer, scene)
    scene.check_sprang(dead)
    scene.check(committed=commits)


def write(producer: Transactional, scene: Scene) -> None:
    first, second = scene.topics
    producer.begin()
    producer.produce(first, FIRST)
    producer.produce(second, FIRST)
    producer.send_offset(first, OFFSET, scene.group)


def write_again(producer: Transactional, scene: Scene) -> None:
    producer.begin()
    for topic in scene.topics:
        producer.produce(topic, SECOND)
    producer.commit()


def test_a_marker_that_gets_lost_is_missed_and_the_next_coordinator_sends_it(
    mortals: MortalCluster,
) -> None:
    """What is looked at in the end does see a transaction that hangs."""
    scene = Scene(mortals)
    first, _ = scene.topics
    producer = librdkafka(mortals)(scene.name, TIMEOUT_MS)
    mortals.set_trap(Trap(f"marker {first}", When.SAID, loses=True))
    write(producer, scene)
    producer.commit()
    assert mortals.all_sprang()
    with pytest.raises(AssertionError, match=f"nothing of {first} hangs"):
        scene.settle(within_s=0.5)
    mortals.done("txn-coordinator", "kill")
    write_again(producer, scene)
    scene.check(committed=True)
