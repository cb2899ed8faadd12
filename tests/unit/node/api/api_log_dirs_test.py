"""Several log directories as clients see them: DescribeLogDirs and AlterReplicaLogDirs."""

from pathlib import Path

import pytest

from harness.machines.brokers import FakeStorage, HandlerBench
from tidelog.kernel.ids import Partition
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k34_alter_replica_log_dirs as k34
from tidelog.wire.messages import k35_describe_log_dirs as k35

NEAR, FAR = "/data/broker-0", "/far/broker-0"


@pytest.fixture
def bench(tmp_path: Path) -> HandlerBench:
    """Partition 0 lies near, 1 and 2 lie far."""
    bench = HandlerBench(tmp_path / "log0")
    bench.topic("t", partitions=3)
    far = FakeStorage(FAR)
    far.held = {("t", Partition(1)), ("t", Partition(2))}
    bench.storage.held = {("t", Partition(0))}
    bench.storage.others.append(far)
    return bench


def told(bench: HandlerBench) -> dict[str, tuple[int, list[int]]]:
    answer = bench.ask(k35.API, 4, k35.DescribeLogDirsRequest(topics=None))
    return {
        one.log_dir: (
            one.error_code,
            [row.partition_index for topic in one.topics for row in topic.partitions],
        )
        for one in answer.results
    }


def test_each_directory_tells_what_lies_in_it(bench: HandlerBench) -> None:
    assert told(bench) == {NEAR: (0, [0]), FAR: (0, [1, 2])}


def test_a_directory_that_failed_is_told_with_its_error_beside_the_others(
    bench: HandlerBench,
) -> None:
    bench.storage.others[0].failure = OSError(5, "input/output error")
    assert told(bench) == {NEAR: (0, [0]), FAR: (ErrorCode.KAFKA_STORAGE_ERROR, [])}


@pytest.mark.parametrize("version", range(1, 3))
def test_a_replica_does_not_move_and_the_error_says_why(bench: HandlerBench, version: int) -> None:
    def wanted(path: str, *partitions: int) -> k34.AlterReplicaLogDir:
        topic = k34.AlterReplicaLogDirTopic(name="t", partitions=list(partitions))
        return k34.AlterReplicaLogDir(path=path, topics=[topic])

    broken = FakeStorage("/broken")
    broken.failure = OSError(5, "input/output error")
    bench.storage.others.append(broken)
    directories = [wanted(NEAR, 0, 1, 9), wanted("/nowhere", 2), wanted("/broken", 2)]
    answer = bench.ask(k34.API, version, k34.AlterReplicaLogDirsRequest(dirs=directories))
    (topic,) = answer.results
    assert [(row.partition_index, row.error_code) for row in topic.partitions] == [
        (0, ErrorCode.NONE),  # it is there already
        (1, ErrorCode.INVALID_REQUEST),
        (9, ErrorCode.REPLICA_NOT_AVAILABLE),
        (2, ErrorCode.LOG_DIR_NOT_FOUND),
        (2, ErrorCode.KAFKA_STORAGE_ERROR),
    ]
    assert told(bench)[FAR] == (0, [1, 2])
