"""Clients that take every descriptor they can leave enough for the files of those who are in."""

import contextlib
from pathlib import Path

import pytest

from harness.clients.fetch_raw import fetch_all
from harness.clients.produce_raw import batch_of, produce
from harness.clients.raw_socket import RawClient
from harness.processes.cluster import Cluster

pytestmark = pytest.mark.slow

DESCRIPTORS = 256
FEW_DESCRIPTORS = (
    "-c",
    (
        "import resource, sys; "
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({DESCRIPTORS}, {DESCRIPTORS})); "
        "from tidelog.tools.cli import main; sys.exit(main())"
    ),
)


def test_a_flood_of_connections_leaves_files_to_those_who_are_in(tmp_path: Path) -> None:
    partitions = 60
    with (
        Cluster(tmp_path, program=FEW_DESCRIPTORS) as cluster,
        RawClient(cluster.bootstrap) as raw,
    ):
        topic = cluster.create_topic(partitions=partitions)
        with contextlib.ExitStack() as stack:
            for _ in range(2 * DESCRIPTORS):
                with contextlib.suppress(OSError):
                    stack.enter_context(RawClient(cluster.bootstrap))
            for partition in range(partitions):
                row = produce(raw, topic, batch_of(b"x"), partition=partition)
                assert (row.error_code, row.base_offset) == (0, 0), row.error_message
            for partition in range(partitions):
                assert len(fetch_all(raw, topic, partition=partition)) == 1
        with RawClient(cluster.bootstrap) as later:
            assert produce(later, topic, batch_of(b"y")).base_offset == 1
