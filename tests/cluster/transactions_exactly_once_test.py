"""Numbers pass through transactions of each client while transformers, brokers and coordinators
die: each comes out exactly once. With `--nightly` so do 100,000, a client after the other.
"""

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.exactly_once import SETTINGS, Run, Stream
from harness.clients.raw_socket import RawClient
from harness.clients.transformers import KINDS
from harness.faults.breaking import Breaking, level_logs
from harness.processes.cluster import Cluster
from harness.suite.need import need
from tidelog.wire.messages import k18_api_versions as k18

pytestmark = pytest.mark.slow

COUNT, FAULTS, BATCH = 2_000, 4, 20
NIGHTLY_COUNT, NIGHTLY_FAULTS, NIGHTLY_BATCH = 100_000, 20, 500


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("exactly-once")
    with Cluster(folder, brokers=3, settings=SETTINGS) as cluster:
        yield cluster
        assert "crashed" not in cluster.logs()


@pytest.mark.parametrize("client", KINDS)
def test_each_input_comes_out_once_whichever_client_passes_it_on(
    three: Cluster, tmp_path: Path, client: str, *, nightly: bool
) -> None:
    kind = KINDS[client]
    need(*kind.programs)
    seed = random.SystemRandom().randrange(1 << 32)
    sys.stdout.write(f"seed {seed}\n")
    rng = random.Random(seed)
    count, faults, batch = (
        (NIGHTLY_COUNT, NIGHTLY_FAULTS, NIGHTLY_BATCH) if nightly else (COUNT, FAULTS, BATCH)
    )
    name = f"tide-{client}"
    counts = None if kind.counts is None else name + kind.counts
    stream = Stream(three.bootstrap, name, replicas=3, counts=counts)
    stream.create()
    run = Run(stream, kind.starts(batch, tmp_path), tmp_path, rng)
    try:
        run.through(count, faults, Breaking(three, rng).kinds())
    finally:
        sys.stdout.write("\n".join(run.history))
    bumps = kind.bumps and ends_raise_epochs(three)
    assert run.wrong(count, level_logs(three, stream), bumps=bumps) == []


def ends_raise_epochs(three: Cluster) -> bool:
    """Whether the cluster has version 2 of transactions."""
    with RawClient(three.bootstrap) as client:
        request = k18.ApiVersionsRequest(client_software_name="tests", client_software_version="1")
        answer = client.ask(k18.API, 4, request)
    levels = {one.name: one.max_version_level for one in answer.finalized_features}
    return bool(levels.get("transaction.version", 0) >= 2)
