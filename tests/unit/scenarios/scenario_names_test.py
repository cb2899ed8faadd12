"""Where each named scenario of sick disks is played: simulated, and with real brokers."""

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[2]
SCENARIOS = {
    "corrupt_leader_batch": (
        "unit/scenarios/scenario_damage_test.py",
        "cluster/scenarios_damage_test.py",
    ),
    "corrupt_tail_vs_crash_tail": (
        "unit/scenarios/scenario_damage_test.py",
        "cluster/scenarios_damage_test.py",
    ),
    "checkpoint_lost": ("unit/scenarios/scenario_more_test.py", "cluster/scenarios_files_test.py"),
    "fsync_eio_leader": (
        "unit/scenarios/scenario_disk_test.py",
        "cluster/scenarios_damage_test.py",
    ),
    "disk_full_roll": ("unit/scenarios/scenario_disk_test.py", "cluster/sick_disks_test.py"),
}


def plays(file: str, scenario: str) -> bool:
    content = (TESTS / file).read_text(encoding="utf-8")
    return re.search(rf"^def test_{scenario}(_\w+)?\(", content, re.MULTILINE) is not None


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_it_is_played_in_both_worlds(scenario: str) -> None:
    simulated, real = SCENARIOS[scenario]
    assert (simulated.startswith("unit/"), real.startswith("cluster/")) == (True, True)
    assert plays(simulated, scenario)
    assert plays(real, scenario)


def test_a_scenario_that_nobody_plays_is_told() -> None:
    assert not plays("unit/scenarios/scenario_disk_test.py", "disk_full_of_bees")
