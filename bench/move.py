"""How fast partitions move to other brokers, and how well a throttle keeps them from it.

Six partitions on brokers 0 and 1 move to 2 and 3, while a producer at a steady rate waits for all
in sync. First held to `--rate` by Kafka's throttle: the most that was written on the new brokers in
any 5 s, as a share of what the rate allows (1.2 is the most that may be). Then, another topic of
the same size, as fast as it goes. Acknowledgements are given second by second: the middle one while
it is held, and the worst, when leaders move. Four times `--mib` lie on the disk in the end.
"""

import argparse
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from catch_up import written_bytes
from cluster_wide import Views, partitions_said
from clusters import Tidelog
from measuring import MB, Arguments, Figures, Meter, middle, repeat, report, versions
from raw_client import RawClient
from tidelog.wire.messages import k45_alter_partition_reassignments as k45
from workloads import PARTITIONS, Pace, latency_run, write

GOALS = {"over_5s_worst": 1.2}
_NAMES = (
    "held_s",
    "held_mb_per_s",
    "over_5s",
    "free_s",
    "free_mb_per_s",
    "ack_p99_ms_before",
    "ack_p99_ms_held",
    "ack_p99_ms_worst",
)
_BROKERS = 4
_FROM, _TO = (0, 1), (2, 3)
_WINDOW_S = 5.0
_LOOK_S = 0.02
_PATIENCE_S = 120.0
_VALUE_BYTES = 1_000
_NAMED = "leader.replication.throttled.replicas"


def parser() -> Arguments:
    asked = Arguments(str(__doc__), ["move.py", "move.py --mib 128 --rate 20 --runs 1"])
    asked.add_argument("--mib", type=int, default=64, help="how large the topic is (64)")
    asked.add_argument("--rate", type=float, default=10.0, help="MB a second, throttled (10)")
    asked.add_argument("--seconds", type=float, default=3.0, help="of acknowledgements before (3)")
    return asked


@dataclass
class Watch:
    """What was written on the new brokers, and when, until it is told to stop."""

    data: Path
    seen: list[tuple[float, int]] = field(default_factory=list)
    _enough: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._enough.wait(_LOOK_S):
            size = sum(written_bytes(self.data, broker) for broker in _TO)
            self.seen.append((time.monotonic(), size))

    def stop(self) -> None:
        self._enough.set()
        if self._thread is not None:
            self._thread.join()

    def most_per_s(self) -> float:
        """In the fullest window; a shorter one only where all took no longer."""
        seen, most, first = self.seen, 0.0, 0
        for now, size in seen:
            while now - seen[first][0] > _WINDOW_S:
                first += 1
            most = max(most, size - seen[first][1])
        return most / min(_WINDOW_S, seen[-1][0] - seen[0][0])

    def took(self) -> tuple[float, float]:
        """From the first byte to the last: seconds, and bytes a second."""
        grew = [one for before, one in pairwise(self.seen) if one[1] > before[1]]
        seconds = max(_LOOK_S, grew[-1][0] - grew[0][0])
        return seconds, (grew[-1][1] - self.seen[0][1]) / seconds


def move(client: RawClient, topic: str) -> None:
    rows = [
        k45.ReassignablePartition(partition_index=number, replicas=[*_TO])
        for number in range(PARTITIONS)
    ]
    request = k45.AlterPartitionReassignmentsRequest(
        topics=[k45.ReassignableTopic(name=topic, partitions=rows)]
    )
    answer = client.ask(k45.API, 1, request)
    codes = {answer.error_code, *(p.error_code for t in answer.responses for p in t.partitions)}
    if codes != {0}:
        raise SystemExit(f"the brokers refuse to move {topic}: {codes}")


def wait_moved(client: RawClient, topic: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while any({*row.replica_nodes} != {*_TO} for row in partitions_said(client, topic)):
        if time.monotonic() > deadline:
            raise SystemExit(f"{topic} has not moved within {_PATIENCE_S:.0f} s")
        time.sleep(_LOOK_S)


def moved(cluster: Tidelog, client: RawClient, data: Path, topic: str) -> tuple[Watch, list[float]]:
    """How it went, and the slowest hundredth of acknowledgements of each second, in ms."""
    watch, waits = Watch(data), list[float]()
    done = threading.Event()

    def produce() -> None:
        while not done.is_set():
            waits.append(latency_run(cluster, topic, Pace(seconds=1.0))["p99_ms"])

    producing = threading.Thread(target=produce)
    watch.start()
    producing.start()
    try:
        time.sleep(5 * _LOOK_S)
        move(client, topic)
        wait_moved(client, topic)
    finally:
        done.set()
        watch.stop()
        producing.join()
    return watch, waits


def hold(cluster: Tidelog, topic: str) -> None:
    """Hold to the rate what the leaders of this topic send."""
    entry = ConfigEntry(_NAMED, "*", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 4})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(60)


def one(asked: argparse.Namespace) -> Figures:
    rate = int(asked.rate * MB)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        data = Path(folder) / "data"
        cluster = Tidelog(f"leader.replication.throttled.rate={rate}", brokers=_BROKERS, data=data)
        try:
            cluster.wait_ready()
            address = cluster.bootstrap.split(",", maxsplit=1)[0]
            with Views([address]) as views, RawClient(address) as client:
                for topic in ("held", "free"):
                    views.create(topic, PARTITIONS, first=_FROM)
                    views.wait_led(topic, PARTITIONS)
                return measured(cluster, client, data, asked)
        finally:
            cluster.stop()


def measured(cluster: Tidelog, client: RawClient, data: Path, asked: argparse.Namespace) -> Figures:
    records = (asked.mib << 20) // _VALUE_BYTES
    for topic in ("held", "free"):
        write(cluster.bootstrap, topic, size=_VALUE_BYTES, records=records)
    hold(cluster, "held")
    before = latency_run(cluster, "held", Pace(seconds=asked.seconds))["p99_ms"]
    meter = Meter(cluster.pids)
    held, waits = moved(cluster, client, data, "held")
    free, _ = moved(cluster, client, data, "free")
    used = meter.stop()
    held_s, held_per_s = held.took()
    free_s, free_per_s = free.took()
    return {
        "held_s": round(held_s, 3),
        "held_mb_per_s": round(held_per_s / MB, 2),
        "over_5s": round(held.most_per_s() / MB / asked.rate, 3),
        "free_s": round(free_s, 3),
        "free_mb_per_s": round(free_per_s / MB, 1),
        "ack_p99_ms_before": before,
        "ack_p99_ms_held": statistics.median(waits),
        "ack_p99_ms_worst": max(waits),
        "other_share": used["other_share"],
        "machine_share": used["machine_share"],
    }


def worst(runs: Sequence[Figures], name: str) -> float:
    return float(max(one[name] for one in runs))


def run(asked: argparse.Namespace) -> None:
    runs = repeat(asked, lambda: one(asked))
    settings = {
        "brokers": _BROKERS,
        "partitions": PARTITIONS,
        "mib": asked.mib,
        "rate_mb_per_s": asked.rate,
        "versions": versions("confluent-kafka", "uvloop", "pyzmq"),
    }
    figures = {name: middle(runs, name) for name in _NAMES}
    figures["over_5s_worst"] = worst(runs, "over_5s")
    report("move", settings, {**figures, "goals": GOALS}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
