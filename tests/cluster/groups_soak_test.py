"""Two groups of twenty unmodified clients, one of each protocol, while members and coordinators
come, go, die and sleep by draw: what each was told, and what the log says, can all be true.
"""

import random
import sys
from pathlib import Path

import pytest

from harness.faults.chaos import BROKERS
from harness.processes.cluster import Cluster
from harness.processes.group_soak import SETTINGS, GroupSoak

SECONDS = 30.0
"""At least: each kind of thing happens once, however long that takes."""
SECONDS_NIGHTLY = 1_200.0


@pytest.mark.slow
@pytest.mark.timeout(2_400)
def test_no_draw_of_lives_and_faults_makes_two_groups_err(tmp_path: Path, *, nightly: bool) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    sys.stdout.write(f"seed {seed}\n")
    with Cluster(tmp_path, brokers=BROKERS, settings=SETTINGS) as cluster:
        soak = GroupSoak(cluster, seed)
        try:
            wrong = soak.run(SECONDS_NIGHTLY if nightly else SECONDS)
        finally:
            sys.stdout.write("\n".join((*soak.history, f"{dict(soak.done)}\n")))
        assert wrong == []
