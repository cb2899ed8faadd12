"""A broker with far more partitions than it may have files open."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.clients.fetch_raw import PARTITION_BYTES
from harness.clients.produce_raw import batch_of
from harness.clients.raw_socket import RawClient, request_bytes
from harness.processes.cluster import Cluster, open_files
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k00_produce, k01_fetch
from tidelog.wire.records import check_crc, iterate_batches, iterate_records

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
PARTITIONS = 600
TOPIC = "many"
VALUE = bytes(20_000)
"""So large that an answer with all of them does not fit into the buffers of a connection."""
FETCH_VERSION = 11


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Every partition has one record."""
    with Cluster(tmp_path_factory.mktemp("many"), program=FEW_DESCRIPTORS) as running:
        running.create_topic(TOPIC, partitions=PARTITIONS)
        with RawClient(running.bootstrap) as raw:
            write_all(raw, 0)
        yield running


def write_all(raw: RawClient, number: int) -> None:
    """One record into each; whose and which it is stands in front."""
    data = [
        k00_produce.PartitionProduceData(
            index=partition,
            records=memoryview(batch_of(b"%d %d " % (partition, number) + VALUE)),
        )
        for partition in range(PARTITIONS)
    ]
    topic = k00_produce.TopicProduceData(name=TOPIC, partition_data=data)
    request = k00_produce.ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])
    answer = raw.ask(k00_produce.API, 9, request)
    rows = answer.responses[0].partition_responses
    assert {row.error_code for row in rows} == {0}
    assert {row.base_offset for row in rows} == {number}


def fetch_all_at_once() -> bytes:
    """A request for the first record of each."""
    size = len(VALUE) * 3 // 2
    rows = [
        k01_fetch.FetchPartition(partition=one, fetch_offset=0, partition_max_bytes=size)
        for one in range(PARTITIONS)
    ]
    request = k01_fetch.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=PARTITION_BYTES,
        topics=[k01_fetch.FetchTopic(topic=TOPIC, partitions=rows)],
    )
    return bytes(request_bytes(k01_fetch.API, FETCH_VERSION, request))


def firsts(frame: bytes | memoryview) -> dict[int, bytes]:
    """What each partition's first record begins with."""
    _, answer = decode_response(k01_fetch.API, FETCH_VERSION, memoryview(frame))
    found = {}
    for row in answer.responses[0].partitions:
        assert row.error_code == 0
        assert isinstance(row.records, memoryview)
        _, batch = next(iter(iterate_batches(row.records)))
        assert check_crc(batch)
        value = next(iter(iterate_records(batch))).value or b""
        found[row.partition_index] = value[: -len(VALUE)]
    return found


def open_logs(cluster: Cluster) -> list[str]:
    """The log files the broker has open."""
    names = open_files(cluster.broker_pid(0))
    return [name for name in names if name.endswith(".log") and "/log0/" in name]


def test_an_answer_on_its_way_survives_that_its_files_are_closed(cluster: Cluster) -> None:
    with RawClient(cluster.bootstrap) as slow, RawClient(cluster.bootstrap) as busy:
        slow.send(fetch_all_at_once())
        write_all(busy, 1)
        found = firsts(slow.receive_frame())
    assert found == {one: b"%d 0 " % one for one in range(PARTITIONS)}
    assert 0 < len(open_logs(cluster)) <= DESCRIPTORS // 2


def test_a_start_after_a_clean_stop_opens_no_log(cluster: Cluster) -> None:
    cluster.stop()
    cluster.start()
    assert open_logs(cluster) == []
    counters = Path(f"/proc/{cluster.broker_pid(0)}/io").read_text().split()
    calls = dict(zip(counters[::2], map(int, counters[1::2]), strict=True))
    assert calls["syscr:"] + calls["syscw:"] < PARTITIONS // 2, "reads and writes of all kinds"
    with RawClient(cluster.bootstrap) as raw:
        raw.send(fetch_all_at_once())
        found = firsts(raw.receive_frame())
    assert found == {one: b"%d 0 " % one for one in range(PARTITIONS)}
    assert 0 < len(open_logs(cluster)) <= DESCRIPTORS // 2
