"""How fast a log of small records is compacted, and what a broker's loop feels of it.

Writes a log of 16 KiB batches with 100-byte values and random keys, then compacts all of it:
`alone` in this process, `thread` and `process` beside an event loop whose timers are watched; and,
unless --no-broker, in a real broker under a producer at a steady rate. The page cache is warm.
"""

import asyncio
import contextlib
import multiprocessing
import os
import random
import resource
import tempfile
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator

import confluent_kafka.admin as kafka
import msgspec
import uvloop
from confluent_kafka import Producer

from clusters import Tidelog, running
from log_filling import NOW_MS, new_log
from measuring import (
    MB,
    Arguments,
    Figures,
    Meter,
    middle,
    percentile,
    repeat,
    report,
    tree,
    versions,
)
from raw_client import RawClient
from tidelog.kernel.instant import Instant
from tidelog.kernel.limits import MIB
from tidelog.node.log.cleaner import candidate, job_for
from tidelog.node.log.cleaning import Finished, Job, clean
from tidelog.node.log.settings import LogSettings
from tidelog.node.log.validation import rules_of, validate_produced
from tidelog.node.runtime.disk import open_disk
from tidelog.wire.records import Record, build_batch

SETTINGS = LogSettings(compact=True, segment_bytes=128 * MIB)
RECORDS_PER_BATCH = 130
TEMPLATES = 2_000
MAP_BYTES = 128 * MIB
TIMER_S = 0.001
_NAMES = ("mb_per_s", "quiet_p50_ms", "quiet_p99_ms", "busy_p50_ms", "busy_p99_ms")
GOALS = {"mb_per_s": 80, "busy_p99_ms by quiet_p99_ms": 2}
_LOADED_TEMPLATES = 2_000
_WARM_S = 2.0
_LOOK_S = 0.05
_PATIENCE_S = 120.0
_SEGMENTS = 32
TOPIC = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1.0"}


def parser() -> Arguments:
    asked = Arguments(str(__doc__), ["compaction.py", "compaction.py --mib 256 --vary"], runs=1)
    asked.add_argument("--mib", type=int, default=1024, help="size of the log (1024)")
    asked.add_argument("--keys", type=int, default=500_000, help="distinct keys (500000)")
    asked.add_argument("--vary", action="store_true", help="values of 50 to 150 bytes, not of 100")
    asked.add_argument("--loop-seconds", type=float, default=3.0, help="of each loop's timers (3)")
    asked.add_argument("--broker-mib", type=int, default=1024, help="for the real broker (1024)")
    asked.add_argument("--no-broker", action="store_true", help="leave the real broker out")
    asked.add_argument("--broker-seconds", type=float, default=5.0, help="of each part (5)")
    asked.add_argument("--rate", type=int, default=200, help="produced records a second (200)")
    return asked


def template(rng: random.Random, keys: int, *, vary: bool) -> bytearray:
    return build_batch(
        [
            Record(
                at,
                NOW_MS + at // 10,
                b"key-%012d" % rng.randrange(keys),
                rng.randbytes(rng.randint(50, 150) if vary else 100),
            )
            for at in range(RECORDS_PER_BATCH)
        ]
    )


def fill(path: str, asked: Namespace) -> Job:
    """A sealed log of that size, flushed; what a worker would be told about it."""
    rng = random.Random(1)
    made = max(TEMPLATES, asked.keys * 2 // RECORDS_PER_BATCH)
    batches = [template(rng, asked.keys, vary=asked.vary) for _ in range(made)]
    log = new_log(path, SETTINGS)
    rules = rules_of(SETTINGS)
    while log.size_bytes < asked.mib * MIB:
        view = memoryview(bytearray(rng.choice(batches)))
        header = validate_produced(view, rules, NOW_MS)
        log.append_as_leader(Instant(0), NOW_MS, view, header, 0)
    log.roll(NOW_MS)
    for file in log.dirty_files(log.end):
        file.sync()
    log.flushed(log.end)
    found = candidate(log, None, log.end, NOW_MS)
    assert found is not None
    return job_for(found, map_bytes_max=MAP_BYTES, now_ms=NOW_MS)


def work(path: str, job: Job) -> Figures:
    """Passes until all is clean; the files that would be swapped in are left as they are."""
    began, cpu = time.perf_counter(), time.process_time()
    rounds, read, written, dirty = 0, 0, 0, job.dirty_start
    end = job.segments[-1].end
    while dirty < end:
        rounds += 1
        job = msgspec.structs.replace(job, dirty_start=dirty)
        for done in clean(open_disk(path), job):
            if isinstance(done, Finished):
                dirty, read, written = (
                    done.end,
                    read + done.bytes_read,
                    written + done.bytes_written,
                )
    seconds = time.perf_counter() - began
    size = sum(segment.size for segment in job.segments)
    return {
        "seconds": round(seconds, 2),
        "mb_per_s": round(size / MB / seconds, 1),
        "cpu_s": round(time.process_time() - cpu, 2),
        "rounds": rounds,
        "bytes": size,
        "bytes_read": read,
        "bytes_written": written,
        "rss_max_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1),
    }


def beside_a_loop(start: Callable[[], Callable[[], bool]], seconds: float) -> Figures:
    """How late one-millisecond timers of an event loop are while something goes on."""
    late: list[float] = []

    async def watch() -> None:
        is_going_on = start()
        began = time.perf_counter()
        while is_going_on() or time.perf_counter() - began < seconds:
            before = time.perf_counter()
            await asyncio.sleep(TIMER_S)
            late.append(time.perf_counter() - before - TIMER_S)

    uvloop.run(watch())
    return {
        "late_p50_ms": round(1000 * percentile(late, 0.5), 2),
        "late_p99_ms": round(1000 * percentile(late, 0.99), 2),
        "late_max_ms": round(1000 * max(late), 2),
    }


def nicely(path: str, job: Job) -> None:
    """As the broker's worker does it."""
    os.nice(10)
    work(path, job)


def in_thread(path: str, job: Job) -> Callable[[], bool]:
    thread = threading.Thread(target=work, args=(path, job), daemon=True)
    thread.start()
    return thread.is_alive


def in_process(path: str, job: Job) -> Callable[[], bool]:
    process = multiprocessing.get_context("spawn").Process(target=nicely, args=(path, job))
    process.start()
    return process.is_alive


def in_broker(asked: Namespace) -> Figures:
    """A steady producer's latencies before compaction begins, and while it goes on."""
    with running("log.cleaner.backoff.ms=100") as cluster:
        admin = kafka.AdminClient({"bootstrap.servers": cluster.bootstrap})
        segment_bytes = max(MIB, asked.broker_mib * MIB // _SEGMENTS)
        config = {**TOPIC, "segment.bytes": str(segment_bytes)}
        topics = [kafka.NewTopic("big", 1, 1, config=config), kafka.NewTopic("latency", 1, 1)]
        for future in admin.create_topics(topics).values():
            future.result()
        size = _load(cluster.bootstrap, asked)
        with _producing(cluster, asked) as waits:
            time.sleep(_WARM_S)
            waits.clear()
            time.sleep(asked.broker_seconds)
            quiet = waits.copy()
            processes = len(tree(cluster.pids))
            _begin(admin)
            _until(lambda: len(tree(cluster.pids)) > processes)
            waits.clear()
            began = time.monotonic()
            meter = Meter(cluster.pids)
            _until(lambda: len(tree(cluster.pids)) == processes)
            seconds = time.monotonic() - began
            busy = waits.copy()
            used = meter.stop()
    return {
        "mb_per_s": round(size / MB / seconds, 1),
        "seconds": round(seconds, 2),
        "other_share": used["other_share"],
        **_spread("quiet", quiet),
        **_spread("busy", busy),
    }


def _load(bootstrap: str, asked: Namespace) -> int:
    """Batches made beforehand, until there is so much; the bytes of it."""
    rng = random.Random(2)
    batches = [template(rng, asked.keys, vary=asked.vary) for _ in range(_LOADED_TEMPLATES)]
    sent = 0
    with RawClient(bootstrap) as client:
        client.leaders("big")
        while sent < asked.broker_mib * MIB:
            batch = rng.choice(batches)
            client.produce_batch("big", batch)
            sent += len(batch)
    return sent


def _until(is_so: Callable[[], bool]) -> None:
    """Looks again and again; gives up where compaction takes a hundred times what it should."""
    end = time.monotonic() + _PATIENCE_S
    while not is_so():
        if time.monotonic() > end:
            raise SystemExit(f"compaction was not begun, or not over, within {_PATIENCE_S:.0f} s")
        time.sleep(_LOOK_S)


def _begin(admin: kafka.AdminClient) -> None:
    entry = kafka.ConfigEntry("min.cleanable.dirty.ratio", "0.01")
    entry.incremental_operation = kafka.AlterConfigOpType.SET
    resource_ = kafka.ConfigResource(kafka.ResourceType.TOPIC, "big", incremental_configs=[entry])
    for future in admin.incremental_alter_configs([resource_]).values():
        future.result()


@contextlib.contextmanager
def _producing(cluster: Tidelog, asked: Namespace) -> Iterator[list[float]]:
    """A producer in a thread at a steady rate; the list grows by the wait for each answer."""
    waits: list[float] = []
    over = threading.Event()
    thread = threading.Thread(target=_produce, args=(cluster.bootstrap, asked.rate, waits, over))
    thread.start()
    try:
        yield waits
    finally:
        over.set()
        thread.join()


def _produce(bootstrap: str, rate: int, waits: list[float], over: threading.Event) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    value = bytes(1024)

    def note(sent: float) -> Callable[[object, object], None]:
        return lambda _error, _message: waits.append(time.perf_counter() - sent)

    began = time.perf_counter()
    number = 0
    while not over.is_set():
        due = began + number / rate
        while (left := due - time.perf_counter()) > 0:
            producer.poll(left)
        producer.produce("latency", value, on_delivery=note(time.perf_counter()))
        number += 1
    assert not producer.flush(30)


def _spread(name: str, waits: list[float]) -> Figures:
    return {
        f"{name}_p50_ms": round(1000 * percentile(waits, 0.5), 2),
        f"{name}_p99_ms": round(1000 * percentile(waits, 0.99), 2),
    }


def one(asked: Namespace) -> Figures:
    meter = Meter([])
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        path = f"{folder}/log0"
        job = fill(path, asked)
        place = f"{path}/bench-0"
        figures: Figures = {
            "alone": work(place, job),
            "idle_loop": beside_a_loop(lambda: bool, asked.loop_seconds),
            "thread": beside_a_loop(lambda: in_thread(place, job), asked.loop_seconds),
            "process": beside_a_loop(lambda: in_process(place, job), asked.loop_seconds),
        }
    if not asked.no_broker:
        figures["broker"] = in_broker(asked)
        return {**figures, "other_share": figures["broker"]["other_share"]}
    return {**figures, "other_share": meter.stop()["other_share"]}


def run(asked: Namespace) -> None:
    runs = repeat(asked, lambda: one(asked))
    names = ("mib", "keys", "vary", "broker_mib", "rate")
    settings = {name: getattr(asked, name) for name in names}
    best = max(run["alone"]["mb_per_s"] for run in runs)
    figures: Figures = {"mb_per_s": best}
    if not asked.no_broker:
        figures["broker"] = {name: middle([run["broker"] for run in runs], name) for name in _NAMES}
    report("compaction", settings | versions("uvloop"), {**figures, "goals": GOALS}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
