"""What operators do and what befalls machines, drawn together under load: nothing acknowledged is
lost, replicas are equal byte for byte, and every image is what a replay of the metadata log gives.
"""

import random
import re
import sys
from pathlib import Path

import pytest

from harness.faults.chaos import BROKERS, Load, acked_in
from harness.processes.cluster import Cluster
from harness.processes.operations import PARTITIONS, SWELL, TIDES, Operations, Reader
from harness.processes.soak import Soak, wrong_images, wrong_places, wrong_reads, wrong_replicas
from tidelog.tools.log_files.data_folder import open_folder

SECONDS = 30.0
"""At least: each kind of operation and fault happens once, however long that takes."""
NIGHTLY_SECONDS = 1_200.0


@pytest.mark.slow
@pytest.mark.timeout(2_400)
def test_no_draw_of_operations_and_faults_loses_or_forgets(
    tmp_path: Path, *, nightly: bool
) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    sys.stdout.write(f"seed {seed}\n")
    options = ["--standby-coordinators", "1"]
    with Cluster(tmp_path, brokers=BROKERS, options=options) as cluster:
        soak = Soak(cluster, seed)
        try:
            wrong = soak.run(NIGHTLY_SECONDS if nightly else SECONDS, flat_out=nightly)
        finally:
            sys.stdout.write("\n".join((*soak.history, f"{dict(soak.done)}\n")))
        assert wrong == []


def test_the_checks_find_what_is_lost_different_left_behind_or_not_in_the_log(
    tmp_path: Path,
) -> None:
    with Cluster(tmp_path, brokers=BROKERS) as cluster:
        Operations(cluster, random.Random(1), BROKERS).begin()
        load, reader = (
            Load(cluster.bootstrap, TIDES, PARTITIONS, "load"),
            Reader(cluster.bootstrap, TIDES, PARTITIONS),
        )
        reader.start()
        with load:
            load.wait_for_more(100)
        acked = acked_in(PARTITIONS, [load])
        reader.finish([len(offsets) for offsets in acked])
        cluster.stop()
        folder = open_folder(Path(cluster.data))
        assert list(wrong_reads(reader, acked)) == []
        assert list(wrong_replicas(cluster, folder, [load])) == []
        assert list(wrong_places(folder)) == []
        assert list(wrong_images(cluster)) == []

        acked[1][b"never written"] = 7
        (lost,) = wrong_reads(reader, acked)
        assert "partition 1: 1 not read, one is b'never written'" in lost

        places = {broker: only for broker, (only,) in folder.brokers.items()}
        moved, deleted = places[0] / f"{SWELL}-7", places[1] / "gone-0"
        for left in (moved, deleted):
            left.mkdir()
        assert list(wrong_places(folder)) == [
            f"broker 0 still has {SWELL}-7",
            "broker 1 still has gone-0",
        ]

        log = max((places[2] / f"{TIDES}-0").glob("*.log"))
        log.write_bytes(log.read_bytes()[:-1])
        (cut, *_) = wrong_replicas(cluster, folder, [])
        assert cut.startswith(f"{TIDES}-0: the replicas' bytes differ")

        said = max((cluster.data / "logs").glob("coordinator*.log"))
        said.write_text(re.sub('"digest": "[0-9a-f]', '"digest": "x', said.read_text()))
        wrong = list(wrong_images(cluster))
        assert [line.partition(" of ")[0] for line in wrong] == ["the controller", "the feed"]
