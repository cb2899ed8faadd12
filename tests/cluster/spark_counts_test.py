"""What pipelines print as rows is what readers find, or they say what differs and exit with 5."""

from typing import Any

import pytest

from harness.processes.cluster import Cluster
from harness.spark.counts_program import CUT, OTHERS, ROWS
from harness.spark.shared import SharedSpark

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Said:
    """What the steps of the program have said."""

    def __init__(self, steps: dict[str, Any]) -> None:
        self._steps = steps

    def told(self, step: str, code: int = 0) -> dict[str, Any]:
        """Of a step that has ended with this code."""
        assert self._steps[step]["code"] == code, (step, self._steps[step])
        (found,) = self._steps[step]["told"]
        return dict(found)

    def counts(self, step: str, code: int = 0) -> tuple[int, int | None]:
        told = self.told(step, code)
        return told["rows"], told["found"]

    def refusal(self, step: str, code: int) -> str:
        said = self._steps[step]
        assert (said["code"], said["told"]) == (code, []), (step, said)
        return str(said["error"])

    def error(self, step: str) -> str:
        return str(self._steps[step]["error"])

    def difference(self, step: str, code: int) -> dict[str, int]:
        (found,) = self.told(step, code)["differences"]
        return {name: count for name, count in found.items() if name != "partition" and count}


@pytest.fixture(scope="module")
def said(
    cluster: Cluster, shared_spark: SharedSpark, tmp_path_factory: pytest.TempPathFactory
) -> Said:
    folder = tmp_path_factory.mktemp("counts")
    return Said(
        shared_spark.answers("counts_program", bootstrap=cluster.bootstrap, folder=str(folder))
    )


def a_load_is_found_by_readers_or_it_is_an_error(said: Said) -> None:
    for step in ("produce", "produce unconfirmed"):
        assert (said.told(step)["acknowledged"], said.told(step)["found"]) == (ROWS, ROWS)
    lies = said.told("produce lies", 5)
    assert (lies["acknowledged"], lies["found"]) == (ROWS + 1, ROWS)
    assert "of 301 rows that count as acknowledged" in said.error("produce lies")
    assert "choose another folder" in said.refusal("produce again", 1)


def a_mirror_counts_its_copy_also_beside_others(said: Said) -> None:
    assert said.counts("mirror") == (ROWS, ROWS)
    assert said.counts("mirror nothing") == (0, 0)
    assert said.counts("mirror beside others") == (ROWS, ROWS + OTHERS)
    assert said.difference("mirror beside others", 0) == {"of_others": OTHERS}


def a_mirror_whose_copy_differs_says_so_and_leaves_groups_alone(said: Said) -> None:
    assert said.counts("mirror drops", 5) == (2 * ROWS, 2 * ROWS - 1)
    assert said.difference("mirror drops", 5) == {"lost": 1}
    assert said.difference("mirror doubles", 5) == {"doubled": 1}
    assert "of 600 rows 1 are not there" in said.error("mirror drops")
    assert said.told("mirror drops", 5)["groups"] == {}


def what_retention_takes_from_a_copy_is_not_lost(said: Said) -> None:
    assert said.counts("mirror cut") == (ROWS, ROWS - CUT)
    assert said.difference("mirror cut", 0) == {"removed": CUT}


def a_mirror_goes_on_with_its_own_checkpoint_and_name_alone(said: Said) -> None:
    new = said.refusal("mirror of a new checkpoint", 1)
    assert "has written copy-tides in" in new
    assert "if it is lost, delete copy-tides there and mirror again" in new
    assert "leave --name out to go on with it" in said.refusal("mirror of another name", 2)
    assert "mirror mirror has written old-tides" in said.refusal("mirror elsewhere", 1)


def a_mirror_of_an_earlier_version_goes_on_under_its_name(said: Said) -> None:
    assert said.counts("mirror upgraded") == (ROWS, None)
    assert said.counts("mirror later") == (ROWS, ROWS)
    both = said._steps["upgraded"]
    assert both["copy"] == both["source"]


def an_export_counts_the_rows_in_its_files(said: Said) -> None:
    assert said.counts("export") == (ROWS, ROWS)
    for step in ("export drops", "export after that"):
        assert said.counts(step, 5) == (ROWS, ROWS - 1)
        assert "of 300 rows 1 are not there" in said.error(step)


def a_replay_counts_also_without_verify(said: Said) -> None:
    rows = 2 * ROWS - 1
    for step in ("replay", "replay job", "replay job again"):
        assert said.counts(step) == (rows, rows)
    assert said.difference("replay drops", 5) == {"lost": 1}
    assert said.difference("replay doubles", 5) == {"doubled": 1}
    assert "differs from the files in" in said.error("replay drops")


def only_what_compaction_or_retention_takes_is_excused(said: Said) -> None:
    found = said._steps["planted"]
    assert found == {
        "others": {"of_others": 2},
        "lost and others": {"lost": 1, "of_others": 1},
        "superseded": {"lost": 2},
        "superseded in a compacted topic": {"lost": 1, "removed": 1},
        "tombstone in a compacted topic": {"removed": 1},
        "oldest": {"lost": 2},
        "oldest where the log is cut": {"removed": 2},
        "newest where the log is cut": {"lost": 1, "removed": 1},
        "doubled": {"doubled": 1},
    }


def test_counts_are_true_or_the_difference_is_told(said: Said) -> None:
    """One test: else each worker that takes one of several starts a session of its own."""
    a_load_is_found_by_readers_or_it_is_an_error(said)
    a_mirror_counts_its_copy_also_beside_others(said)
    a_mirror_whose_copy_differs_says_so_and_leaves_groups_alone(said)
    what_retention_takes_from_a_copy_is_not_lost(said)
    a_mirror_goes_on_with_its_own_checkpoint_and_name_alone(said)
    a_mirror_of_an_earlier_version_goes_on_under_its_name(said)
    an_export_counts_the_rows_in_its_files(said)
    a_replay_counts_also_without_verify(said)
    only_what_compaction_or_retention_takes_is_excused(said)
