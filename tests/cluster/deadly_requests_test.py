"""A request that ends each coordinator that gets it: the cluster survives it, and so do others'."""

from pathlib import Path

import pytest

from harness.clients.raw_socket import RawClient
from harness.faults.fuzz_plant import DEADLY
from harness.processes.cluster import Cluster, until
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k19_create_topics as k19

pytestmark = pytest.mark.slow


def creation(name: str) -> k19.CreateTopicsRequest:
    topic = k19.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return k19.CreateTopicsRequest(topics=[topic], timeout_ms=20_000)


def test_a_request_that_ends_coordinators_ends_two_and_is_answered(tmp_path: Path) -> None:
    with (
        Cluster(tmp_path, program=("-m", "harness.faults.fuzz_plant")) as cluster,
        RawClient(cluster.bootstrap) as client,
    ):
        answer = client.ask(k19.API, 7, creation(DEADLY))
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        logs = cluster.logs()
        assert logs.count('"process_died", "of": "coordinator"') == 2
        assert logs.count("request_suspected") == 1

        def is_made() -> bool:
            made = client.ask(k19.API, 7, creation("harmless")).topics[0]
            return made.error_code in {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}

        until(is_made, "the coordinator is there again")
        assert cluster.logs().count('"process_died", "of": "coordinator"') == 2
