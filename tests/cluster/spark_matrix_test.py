"""Whatever ends the work of a sink of Spark at whatever moment: after recovery each row is there.

The table of cells is `harness/spark_matrix.py`, which prints it. A failure names its cells.
"""

import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from harness.cluster import Cluster
from harness.kafka_node import TRANSACTIONS, kafka_node
from harness.spark_matrix import (
    ALL,
    CORE,
    HOWS,
    IN_EVERY_RUN,
    POSSIBLE,
    Cell,
    Delivery,
    What,
    When,
    documented,
    impossible,
    reasons,
    table,
)
from harness.spark_matrix_run import Matrix, Sessions
from harness.tidy_checks import ROOT

A_NIGHT_S = 12 * 3_600
PLANTED = [cell for cell in POSSIBLE if cell.how.delivery is Delivery.ONCE]
"""Where there is a transaction that a task could commit too early."""
FINDS_THE_PLANT = Cell(What.FUNCTION, When.LAST, HOWS[0])


def wrong(matrix: Matrix, cells: Collection[Cell]) -> dict[str, str]:
    """Run them and print the table; what is wrong with which."""
    found = matrix.run(cells)
    sys.stdout.write(f"\n{matrix.label}\n\n{table(cells, found)}\n")
    return {cell.name: why for cell, why in found.items() if why}


@pytest.fixture
def sessions(tmp_path: Path) -> Iterator[Sessions]:
    with Sessions(tmp_path / "sessions") as found:
        yield found


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[str]:
    with kafka_node(tmp_path, TRANSACTIONS) as bootstrap:
        yield bootstrap


def test_each_cell_of_the_table_is_run_or_cannot_exist() -> None:
    assert len({cell.name for cell in ALL}) == len(What) * len(When) * len(HOWS)
    assert len(POSSIBLE) + sum(1 for cell in ALL if impossible(cell)) == len(ALL)
    assert {*IN_EVERY_RUN, *CORE, FINDS_THE_PLANT} <= {*POSSIBLE}


def test_every_run_has_a_cell_before_at_and_after_the_end_of_the_input() -> None:
    assert {When.MIDDLE, When.LAST, When.BETWEEN} <= {cell.when for cell in IN_EVERY_RUN}
    assert {Delivery.ONCE, Delivery.ATOMIC} == {cell.how.delivery for cell in IN_EVERY_RUN}
    assert not any(cell.kills_driver for cell in IN_EVERY_RUN)


def test_the_page_has_as_many_cells_as_are_run() -> None:
    page = (ROOT / "docs/spark.md").read_text()
    assert f"{len(ALL)} cells, of which {len(POSSIBLE)} can exist" in page
    assert f"{len(CORE)} of them on Apache Kafka" in page
    assert documented() in page


@pytest.mark.slow
@pytest.mark.timeout(A_NIGHT_S)
def test_each_row_is_there_once_after_whatever_ended_the_work(
    cluster: Cluster, sessions: Sessions, *, nightly: bool
) -> None:
    """And a sink that commits when its input ends is found."""
    ours = Matrix(cluster.bootstrap, sessions, "tidelog")
    assert wrong(ours, POSSIBLE if nightly else IN_EVERY_RUN) == {}
    for reason in reasons():
        sys.stdout.write(f"cannot exist: {reason}\n")
    planted = Matrix(cluster.bootstrap, sessions, "planted", planted=True)
    found = wrong(planted, PLANTED if nightly else [FINDS_THE_PLANT])
    sys.stdout.write(f"{len(found)} cells find a sink that commits when its input ends\n")
    assert FINDS_THE_PLANT.name in found


@pytest.mark.slow
@pytest.mark.timeout(A_NIGHT_S)
def test_each_row_is_there_once_on_apache_kafka_too(
    request: pytest.FixtureRequest, sessions: Sessions, *, nightly: bool
) -> None:
    if not nightly:
        pytest.skip("the core of the matrix runs on Apache Kafka with --nightly")
    apache = Matrix(request.getfixturevalue("kafka"), sessions, "kafka")
    assert wrong(apache, CORE) == {}
