"""Apache Kafka itself holds what we ask of exactly once: the transformers and checks are right."""

import random
import sys
from pathlib import Path

import pytest

from harness.clients.exactly_once import SETTINGS, Run, Stream
from harness.clients.transformers import KINDS
from harness.kafka.node import kafka_node, logs_of
from harness.suite.need import need

pytestmark = pytest.mark.slow

COUNT = 100_000
KAFKA_SETTINGS = {
    **SETTINGS,
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


@pytest.mark.parametrize("client", KINDS)
def test_each_input_comes_out_once_though_transformers_die(
    tmp_path: Path, client: str, *, nightly: bool
) -> None:
    if not nightly:
        pytest.skip("checks the checks, in half a minute for each client")
    kind = KINDS[client]
    need(*kind.programs)
    seed = random.SystemRandom().randrange(1 << 32)
    sys.stdout.write(f"seed {seed}\n")
    with kafka_node(tmp_path, KAFKA_SETTINGS) as bootstrap:
        counts = None if kind.counts is None else f"tide{kind.counts}"
        stream = Stream(bootstrap, "tide", counts=counts)
        stream.create()
        run = Run(stream, kind.starts(1_000, tmp_path), tmp_path, random.Random(seed))
        try:
            run.through(COUNT, faults=10, kinds={})
        finally:
            sys.stdout.write("\n".join(run.history))
        logs = stream.logs(logs_of(tmp_path))
        assert run.wrong(COUNT, logs, bumps=kind.bumps) == []
