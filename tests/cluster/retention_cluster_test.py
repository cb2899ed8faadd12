"""Retention in real processes: old records go, and stay gone over a kill."""

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from harness.clients.fetch_raw import FetchRefusedError, fetch_all, fetch_once, offset_at
from harness.clients.produce_raw import VERSION, produce_request
from harness.clients.raw_socket import RawClient
from harness.processes.cluster import Cluster, until
from tidelog.tools.supervisor.leftovers import remove_run
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages import k00_produce
from tidelog.wire.records import Record, build_batch

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

BROKER = {"log.retention.check.interval.ms": "100", "log.initial.task.delay.ms": "0"}
SMALL = {"segment.bytes": "20000", "file.delete.delay.ms": "500"}


def write(client: RawClient, topic: str, batches: int, *, timestamp_ms: int) -> None:
    for number in range(batches):
        records = [Record(at, timestamp_ms, b"k", b"%d" % number + bytes(90)) for at in range(50)]
        answer = client.ask(
            k00_produce.API, VERSION, produce_request(topic, build_batch(records), acks=-1)
        )
        assert answer.responses[0].partition_responses[0].error_code == 0


def start_of(cluster: Cluster, topic: str) -> int:
    with RawClient(cluster.bootstrap) as client:
        return offset_at(client, topic, -2)


def files(cluster: Cluster, topic: str, suffix: str) -> list[Path]:
    return sorted((cluster.data / "broker-0/log0" / f"{topic}-0").glob(f"*{suffix}"))


def test_a_log_is_kept_to_its_size_and_its_start_outlives_a_kill(tmp_path: Path) -> None:
    with Cluster(tmp_path, settings=BROKER) as cluster:
        topic = cluster.create_topic(configs={**SMALL, "retention.bytes": "50000"})
        with RawClient(cluster.bootstrap) as client:
            write(client, topic, 60, timestamp_ms=int(time.time() * 1000))
        until(lambda: start_of(cluster, topic) >= 2_000, "old segments are gone")
        start = start_of(cluster, topic)
        for pid in cluster.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not cluster.pids(), "all processes are dead")
        cluster.start()
        assert start_of(cluster, topic) >= start
        with RawClient(cluster.bootstrap) as client:
            rows = fetch_all(client, topic, start=start_of(cluster, topic))
            assert rows[-1].offset == 2_999
            with pytest.raises(FetchRefusedError) as refused:
                fetch_once(client, topic, 0)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        until(lambda: len(files(cluster, topic, ".log")) <= 5, "no more than its size is left")
        until(lambda: not files(cluster, topic, ".deleted"), "their files are removed")
        remove_run(cluster.runs[0].run_id)


def test_old_records_go_though_nothing_is_written_any_more(tmp_path: Path) -> None:
    """Also those of the active segment, which is rolled for that."""
    with Cluster(tmp_path, settings=BROKER) as cluster:
        topic = cluster.create_topic(configs={**SMALL, "retention.ms": "2000"})
        kept = cluster.create_topic(configs={**SMALL, "retention.ms": "-1"})
        with RawClient(cluster.bootstrap) as client:
            for name in (topic, kept):
                write(client, name, 10, timestamp_ms=int(time.time() * 1000))
        until(lambda: start_of(cluster, topic) == 500, "everything old is gone")
        assert start_of(cluster, kept) == 0
        until(lambda: not files(cluster, topic, ".deleted"), "their files are removed")
        with RawClient(cluster.bootstrap) as client:
            # Of a minute from now: none of them gets old while it is read.
            write(client, topic, 1, timestamp_ms=int((time.time() + 60) * 1000))
            assert [row.offset for row in fetch_all(client, topic, start=500)] == list(
                range(500, 550)
            )


def test_compact_and_delete_do_both(tmp_path: Path) -> None:
    with Cluster(tmp_path, settings={**BROKER, "log.cleaner.backoff.ms": "100"}) as cluster:
        policy = {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.01"}
        topic = cluster.create_topic(configs={**SMALL, **policy, "retention.ms": "6000"})
        with RawClient(cluster.bootstrap) as client:
            write(client, topic, 40, timestamp_ms=int(time.time() * 1000))
        until(lambda: len(files(cluster, topic, ".log")) <= 3, "compacted into a few segments")
        until(lambda: start_of(cluster, topic) == 2_000, "and then deleted")
