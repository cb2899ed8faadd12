"""How long a killed follower needs to be in sync again while producing goes on at full rate.

Three replicas on three brokers, two of them needed in sync; prebuilt requests of 1 MB, always five
under way for each of six partitions, none of which the follower is to lead. Throughput is given
with all in sync, while the follower is away, while it catches up, and after. One that does not
catch up in `--patience` has no time: the figures say how fast it was and how far behind it stayed.
"""

import argparse
import os
import signal
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from cluster_wide import REPLICAS_MAX, Views
from clusters import Cluster, Tidelog
from measuring import GB, MB, Arguments, Figures, Meter, middle, repeat, report, versions
from pipelines import Pipeline, open_pipelines, pump
from workloads import PARTITIONS

_NAMES = (
    "in_sync_s",
    "behind_gb",
    "behind_gb_after",
    "follower_mb_per_s",
    "mb_per_s_before",
    "mb_per_s_away",
    "mb_per_s_during",
    "mb_per_s_after",
)
_TOPIC = "catch-up"
_LEADER = 0
_FOLLOWER = 2
_IN_FLIGHT = 5
_BATCH_BYTES = 1_000_000
_LOOK_S = 0.02
_SETTINGS = ("min.insync.replicas=2",)


def parser() -> Arguments:
    examples = ["catch_up.py", "catch_up.py --mib 8192 --runs 1"]
    asked = Arguments(str(__doc__), examples)
    asked.add_argument("--mib", type=int, default=2048, help="written while it is away (2048)")
    asked.add_argument(
        "--seconds", type=float, default=3.0, help="of producing before it goes, and after (3)"
    )
    asked.add_argument(
        "--patience",
        type=float,
        default=15.0,
        metavar="S",
        help="it may take so long (15); all that is written meanwhile must fit on the disk",
    )
    return asked


class Pumping:
    """Producers that never rest, in a thread; what they were answered so far."""

    def __init__(self, pipelines: Sequence[Pipeline]) -> None:
        self._pipelines = pipelines
        self._enough = threading.Event()
        self._broken: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            pump(self._pipelines, in_flight=_IN_FLIGHT, enough=self._enough.is_set)
        except BaseException as error:
            self._broken.append(error)
            raise

    @property
    def value_bytes(self) -> int:
        if self._broken:
            raise SystemExit(f"producing ended: {self._broken[0]}")
        return sum(one.answered * one.value_bytes for one in self._pipelines)

    def finish(self) -> None:
        self._enough.set()
        self._thread.join()


class Phases:
    """From one mark to the next: seconds, what was acknowledged, what the follower has written."""

    def __init__(self, pumping: Pumping, data: Path) -> None:
        self._pumping = pumping
        self.data = data
        self._mark = self._now()

    def end(self) -> tuple[float, float, float]:
        """Seconds and both rates since the last mark; now is the next."""
        before, self._mark = self._mark, self._now()
        seconds, acked, written = (now - then for now, then in zip(self._mark, before, strict=True))
        return seconds, acked / MB / seconds, written / MB / seconds

    def _now(self) -> tuple[float, int, int]:
        return (
            time.monotonic(),
            self._pumping.value_bytes,
            written_bytes(self.data, _FOLLOWER),
        )


def written_bytes(data: Path, broker: int) -> int:
    """Of its logs; sparse tails and indexes are not in it."""
    return sum(path.stat().st_size for path in data.glob(f"broker-{broker}/*/*/*.log"))


def behind_gb(data: Path) -> float:
    return (written_bytes(data, _LEADER) - written_bytes(data, _FOLLOWER)) / GB


def one(asked: argparse.Namespace) -> Figures:
    """On a cluster of its own: what others left would be read along."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        data = Path(folder) / "data"
        cluster = Tidelog(*_SETTINGS, brokers=REPLICAS_MAX, data=data)
        try:
            cluster.wait_ready()
            with Views([cluster.bootstrap.split(",", maxsplit=1)[0]]) as view:
                view.create(_TOPIC, PARTITIONS, first=range(REPLICAS_MAX))
                view.wait_led(_TOPIC, PARTITIONS)
                return under_load(cluster, view, data, asked)
        finally:
            cluster.stop()


def under_load(cluster: Cluster, view: Views, data: Path, asked: argparse.Namespace) -> Figures:
    with open_pipelines(cluster, _TOPIC, batch_bytes=_BATCH_BYTES) as pipelines:
        pumping = Pumping(pipelines)
        try:
            return measured(cluster, view, Phases(pumping, data), pumping, asked)
        finally:
            pumping.finish()


def measured(
    cluster: Cluster, view: Views, phases: Phases, pumping: Pumping, asked: argparse.Namespace
) -> Figures:
    """The follower is asked to come back at the moment the third phase begins."""
    time.sleep(asked.seconds / 3)
    meter = Meter(cluster.pids)
    phases.end()
    time.sleep(asked.seconds)
    _, before, _ = phases.end()
    os.kill(cluster.pid_of(_FOLLOWER), signal.SIGKILL)
    begun = pumping.value_bytes
    while pumping.value_bytes - begun < asked.mib << 20:
        time.sleep(_LOOK_S)
    _, away, _ = phases.end()
    behind = behind_gb(phases.data)
    cluster.start_again(_FOLLOWER)
    in_sync = view.wait_in_sync(
        _TOPIC, PARTITIONS, REPLICAS_MAX, look_s=_LOOK_S, patience_s=asked.patience
    )
    took, during, written = phases.end()
    behind_after = behind_gb(phases.data)
    time.sleep(asked.seconds)
    _, after, _ = phases.end()
    used = meter.stop()
    return {
        "in_sync_s": round(took, 3) if in_sync else None,
        "behind_gb": round(behind, 3),
        "behind_gb_after": round(behind_after, 3),
        "follower_mb_per_s": round(written, 1),
        "mb_per_s_before": round(before, 1),
        "mb_per_s_away": round(away, 1),
        "mb_per_s_during": round(during, 1),
        "mb_per_s_after": round(after, 1),
        "other_share": used["other_share"],
        "machine_share": used["machine_share"],
    }


def run(asked: argparse.Namespace) -> None:
    runs = repeat(asked, lambda: one(asked))
    settings = {
        "brokers": REPLICAS_MAX,
        "partitions": PARTITIONS,
        "away_mib": asked.mib,
        "patience_s": asked.patience,
        "request_bytes": _BATCH_BYTES,
        "in_flight": _IN_FLIGHT,
        "versions": versions("uvloop", "pyzmq"),
    }
    report("catch_up", settings, {name: middle(runs, name) for name in _NAMES}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
