"""Three brokers under faults that are drawn: nothing acknowledged is lost, replicas are equal.

Each of the same faults is drawn in every run, among what operators do: in
`operations_soak_test.py`.
"""

import random
import sys
from pathlib import Path

import pytest

from harness.faults.chaos import Faults, Load, log_bytes, wrong_in_the_end
from harness.processes.cluster import Cluster

TOPIC = "tides"
PARTITIONS = 4
SECONDS = 1_800.0


@pytest.mark.slow
def test_no_draw_of_faults_loses_what_was_acknowledged(tmp_path: Path, *, nightly: bool) -> None:
    if not nightly:
        pytest.skip("takes half an hour")
    seed = random.SystemRandom().randrange(1 << 32)
    sys.stdout.write(f"seed {seed}\n")
    with Cluster(tmp_path, brokers=3) as cluster:
        words = ("--partitions", str(PARTITIONS), "--replication-factor", "3")
        cluster.done("topic", "create", TOPIC, *words, "--config", "min.insync.replicas=2")
        loads = [
            Load(cluster.bootstrap, TOPIC, PARTITIONS, f"load-{n}", flat_out=True) for n in range(2)
        ]
        for load in loads:
            load.start()
        faults = Faults(cluster, random.Random(seed))
        try:
            faults.run(SECONDS)
        finally:
            faults.close()
            for load in loads:
                load.finish()
        cluster.done("wait", "isr", TOPIC, "--timeout", "60")
        acked = sum(len(load.acked) for load in loads)
        sys.stdout.write(f"{dict(faults.done)}, {acked} acknowledged\n")
        cluster.stop()
        assert all(load.acked for load in loads)
        assert wrong_in_the_end(cluster, TOPIC, PARTITIONS, loads) == []


def test_the_check_finds_what_is_lost_twice_there_or_different(tmp_path: Path) -> None:
    with Cluster(tmp_path, brokers=3) as cluster:
        cluster.done("topic", "create", TOPIC, "--partitions", "1", "--replication-factor", "3")
        load = Load(cluster.bootstrap, TOPIC, 1, "load")
        load.start()
        load.finish()
        cluster.done("produce", TOPIC, "--acks", "all", text="one\none\n")
        cluster.done("wait", "isr", TOPIC)
        cluster.stop()
        load.acked[b"never written"] = (0, 99)
        wrong = wrong_in_the_end(cluster, TOPIC, 1, [load])
        assert sum("lost b'never written'" in line for line in wrong) == 3
        assert sum("b'one' is there at" in line for line in wrong) == 3
        last = max((cluster.data / "broker-1/log0/tides-0").glob("*.log"))
        content = bytearray(log_bytes(cluster, 1, TOPIC, 0))
        content[20] ^= 1
        last.write_bytes(content)
        assert "partition 0: the replicas' bytes differ" in wrong_in_the_end(
            cluster, TOPIC, 1, [load]
        )
