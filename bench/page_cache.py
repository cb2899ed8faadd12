"""What the page-cache policies do, and what they cost: one broker, each policy in turn.

Catching up: one consumer reads a topic that is on the disk alone; what it leaves in memory, and how
fast it is, with `cache.read.behind` and the ways of `cache.read`. A bound: how much is in memory
while a producer writes as fast as it can, and what that costs it. Writeback: how long one record
waits for its flush while another topic is written beside it, and how long the flushes of a topic
take that is written to all the time.
"""

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic

from clusters import Tidelog
from log_filling import batch_of
from measuring import MB, Arguments, Figures, Meter, middle, percentile, repeat, report, versions
from raw_client import FETCH_VERSION, RawClient, fetch_request
from tidelog.kernel.limits import MIB
from tidelog.node.runtime.page_cache import evict, look
from tidelog.tools.disk_look import Wanted
from tidelog.tools.disk_look import look as look_at_disk
from tidelog.tools.log_files.data_folder import open_folder
from tidelog.wire.messages import k01_fetch
from tidelog.wire.records import iterate_batches
from workloads import drop_topic

_BATCH_BYTES = 256 * 1024
_FETCH_BYTES = MIB
_SEGMENT_BYTES = 32 * MIB
_BOUND = 16 * MIB
_PAUSE_S = 0.01
_READS = {
    "keep": {},
    "drop": {"cache.read.behind": "drop"},
    "pread": {"cache.read": "pread"},
    "mmap": {"cache.read": "mmap"},
    "sequential": {"cache.readahead": "sequential"},
    "random": {"cache.readahead": "random"},
    "willneed": {"cache.readahead": "willneed"},
}
_BOUNDS = {"all": {}, "tail": {"cache.keep": "tail", "cache.max.bytes": str(_BOUND)}}
_EVERY_SECOND = {"flush.policy": "interval", "flush.ms": "1000"}
_FLUSH_WAIT_S = 1.5
_WRITEBACKS = {"kernel": {}, "smooth": {"cache.writeback.bytes": str(MIB)}}


def parser() -> Arguments:
    asked = Arguments(str(__doc__), ["page_cache.py", "page_cache.py --mib 512 --seconds 6"])
    asked.add_argument("--mib", type=int, default=128, help="to catch up with, in MiB (128)")
    asked.add_argument("--seconds", type=float, default=3.0, help="of each producing (3)")
    asked.add_argument("--mb-per-s", type=float, default=80.0, help="beside the flushes (80)")
    return asked


class _Bench:
    """A broker, and its files."""

    def __init__(self, data: Path, cluster: Tidelog) -> None:
        self.data = data
        self.cluster = cluster
        self._topics = 0

    @contextmanager
    def topic(self, configs: dict[str, str], size: int = 0) -> Iterator[str]:
        """For a while: the next one shall have the same disk."""
        self._topics += 1
        name = f"bench-{self._topics}"
        configs = {"segment.bytes": str(_SEGMENT_BYTES), "file.delete.delay.ms": "0", **configs}
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap, "log_level": 4})
        admin.create_topics([NewTopic(name, 1, 1, config=configs)])[name].result(60)
        batch = batch_of(_BATCH_BYTES)
        with RawClient(self.cluster.bootstrap) as client:
            client.leaders(name)
            for _ in range(size // len(batch)):
                client.produce_batch(name, batch)
        yield name
        drop_topic(self.cluster.bootstrap, name)

    def files(self, topic: str) -> list[Path]:
        return sorted((self.data / "broker-0" / "log0" / f"{topic}-0").glob("*.log"))

    def forget(self, topic: str) -> None:
        """Its files are on the disk alone."""
        for path in self.files(topic):
            fd = os.open(path, os.O_RDONLY)
            os.fdatasync(fd)
            evict(fd, 0, 0)
            os.close(fd)

    def flushes(self, topic: str) -> dict[float, float]:
        """How long the last one of each segment took, by when it was over, about."""
        (broker,) = look_at_disk(open_folder(self.data), Wanted(topic=topic))
        flushes = [one.last_flush for log in broker.replicas for one in log.segments]
        now = time.monotonic()
        return {
            round(now - one.age_ms / 1000, 1): one.took_ms for one in flushes if one is not None
        }

    def cached_mb(self, topic: str) -> tuple[float, float]:
        """In memory, and of that what is on the disk too."""
        seen = [look(path, path.stat().st_size) for path in self.files(topic)]
        known = [one for one in seen if one is not None]
        cached = sum(one.cached for one in known)
        return cached / MB, (cached - sum(one.dirty or 0 for one in known)) / MB


@contextmanager
def _bench() -> Iterator[_Bench]:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        cluster = Tidelog(data=Path(folder, "data"))
        try:
            cluster.wait_ready()
            yield _Bench(Path(folder, "data"), cluster)
        finally:
            cluster.stop()


def one(bench: _Bench, asked: argparse.Namespace) -> Figures:
    meter = Meter([])
    found: Figures = {}
    for name, configs in _READS.items():
        found |= _named(name, _caught_up(bench, asked, configs))
    for name, configs in _BOUNDS.items():
        found |= _named(name, _filled(bench, asked, configs))
    for name, configs in _WRITEBACKS.items():
        found |= _named(name, _beside(bench, asked, configs))
        found |= _named(name, _flushed(bench, asked, configs))
    return {**found, "other_share": meter.stop()["other_share"]}


def _named(name: str, figures: Figures) -> Figures:
    return {f"{name}_{figure}": value for figure, value in figures.items()}


def _caught_up(bench: _Bench, asked: argparse.Namespace, configs: dict[str, str]) -> Figures:
    size = asked.mib * MIB
    with bench.topic(configs, size) as topic:
        bench.forget(topic)
        meter = Meter(bench.cluster.pids)
        with RawClient(bench.cluster.bootstrap) as client:
            seen = _read(client, topic, size // _BATCH_BYTES)
            figures = meter.stop()
            before, _ = bench.cached_mb(topic)
        time.sleep(_PAUSE_S)  # who has left takes the last answer's pages along
        return {
            "catch_up_mb_per_s": round(seen / MB / figures["wall_s"], 1),
            "catch_up_cpu_s_per_gb": round(1000 * figures["brokers_cpu_s"] / (seen / MB), 3),
            "left_mb": round(min(before, bench.cached_mb(topic)[0]), 1),
        }


def _read(client: RawClient, topic: str, batches: int) -> int:
    """All of it, in order; how many bytes."""
    offset = found = size = 0
    while found < batches:
        request = fetch_request(topic, {0: offset}, partition_bytes=_FETCH_BYTES)
        answer: Any = client.ask(k01_fetch.API, FETCH_VERSION, request)
        records = answer.responses[0].partitions[0].records
        size += len(records)
        for header, _ in iterate_batches(records):
            offset = header.next_offset
            found += 1
    return size


def _filled(bench: _Bench, asked: argparse.Namespace, configs: dict[str, str]) -> Figures:
    batch = batch_of(_BATCH_BYTES)
    with bench.topic(configs) as topic, RawClient(bench.cluster.bootstrap) as client:
        meter = Meter(bench.cluster.pids)
        seen, count, until = [(0.0, 0.0)], 0, time.monotonic() + asked.seconds
        while time.monotonic() < until:
            client.produce_batch(topic, batch)
            count += 1
            if not count % 8:
                seen.append(bench.cached_mb(topic))
        figures = meter.stop()
        mb = count * len(batch) / MB
        return {
            "produce_mb_per_s": round(mb / figures["wall_s"], 1),
            "produce_cpu_s_per_gb": round(1000 * figures["brokers_cpu_s"] / mb, 3),
            "produce_most_cached_mb": round(max(cached for cached, _ in seen), 1),
            "produce_most_clean_mb": round(max(clean for _, clean in seen), 1),
        }


def _beside(bench: _Bench, asked: argparse.Namespace, configs: dict[str, str]) -> Figures:
    """One record after the other, each flushed, while much is written beside them."""
    stop = threading.Event()
    with bench.topic(configs) as large, bench.topic({"flush.policy": "commit"}) as small:
        writer = threading.Thread(target=_write, args=(bench, large, asked.mb_per_s, stop))
        writer.start()
        took, until = [], time.monotonic() + 2 * asked.seconds
        with RawClient(bench.cluster.bootstrap) as client:
            while time.monotonic() < until:
                begun = time.perf_counter()
                client.produce_once(small, b"record")
                took.append(1e3 * (time.perf_counter() - begun))
                time.sleep(_PAUSE_S)
        stop.set()
        writer.join()
    return {
        "commit_p50_ms": round(percentile(took, 0.50), 2),
        "commit_p99_ms": round(percentile(took, 0.99), 2),
        "commit_max_ms": round(max(took), 2),
    }


def _flushed(bench: _Bench, asked: argparse.Namespace, configs: dict[str, str]) -> Figures:
    """What the disk takes for each flush, one a second, of what came meanwhile."""
    stop, took = threading.Event(), dict[float, float]()
    with bench.topic({**configs, **_EVERY_SECOND}) as topic:
        writer = threading.Thread(target=_write, args=(bench, topic, asked.mb_per_s, stop))
        writer.start()
        until = time.monotonic() + max(2 * asked.seconds, _FLUSH_WAIT_S)
        while time.monotonic() < until:
            time.sleep(_PAUSE_S)
            took |= bench.flushes(topic)
        stop.set()
        writer.join()
    found = list(took.values()) or [0.0]
    return {
        "flush_p50_ms": round(percentile(found, 0.50), 2),
        "flush_max_ms": round(max(found), 2),
    }


def _write(bench: _Bench, topic: str, mb_per_s: float, stop: threading.Event) -> None:
    batch = batch_of(_BATCH_BYTES)
    every, due = len(batch) / MB / mb_per_s, time.monotonic()
    with RawClient(bench.cluster.bootstrap) as client:
        while not stop.is_set():
            client.produce_batch(topic, batch)
            due += every
            stop.wait(max(due - time.monotonic(), 0))


def run(asked: argparse.Namespace) -> None:
    with _bench() as bench:
        runs = repeat(asked, lambda: one(bench, asked))
    settings = {
        "mib": asked.mib,
        "seconds": asked.seconds,
        "mb_per_s": asked.mb_per_s,
        "bound": _BOUND,
        "versions": versions("uvloop", "confluent-kafka"),
    }
    names = [name for name in runs[0] if name not in {"other_share", "noisy"}]
    report("page_cache", settings, {name: middle(runs, name) for name in names}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
