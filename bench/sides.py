"""tidelog and Apache Kafka on one machine at the same time, asked in turn."""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping

from clusters import Cluster
from comparison import SIDES, Runs
from measuring import CPUS, Figures, cpu_s, wait_quiet


class Sides:
    """One cluster of each kind that is launched; `clusters` are those that take clients now."""

    def __init__(self, launches: Mapping[str, Callable[[], Cluster]], quiet_wait: float) -> None:
        self.clusters: tuple[Cluster, ...] = ()
        self._launches = launches
        self._quiet_wait = quiet_wait

    @contextlib.contextmanager
    def up(self) -> Iterator[None]:
        """All of them, taking clients."""
        with contextlib.ExitStack() as undo:
            clusters = []
            for launch in self._launches.values():
                cluster = launch()
                undo.callback(cluster.stop)
                clusters.append(cluster)
            for cluster in clusters:
                cluster.wait_ready()
            self.clusters = tuple(clusters)
            yield

    def in_turn(self, question: str, one: Callable[[Cluster], Figures], *, runs: int) -> Runs:
        """One side after the other, each so often."""
        found: Runs = {name: [] for name in SIDES}
        known = [pid for cluster in self.clusters for pid in cluster.pids]
        for _ in range(runs):
            for cluster in self.clusters:
                wait_quiet(self._quiet_wait, known=known)
                figures = self._beside_the_idle(cluster, one)
                print(question, cluster.name, json.dumps(figures), file=sys.stderr, flush=True)
                found[cluster.name].append(figures)
        return found

    def _beside_the_idle(self, cluster: Cluster, one: Callable[[Cluster], Figures]) -> Figures:
        """What the other side used meanwhile is told apart from what the machine was used for."""
        idle = [pid for other in self.clusters if other is not cluster for pid in other.pids]
        began, spent = time.monotonic(), cpu_s(idle)
        figures = one(cluster)
        share = (cpu_s(idle) - spent) / ((time.monotonic() - began) * CPUS)
        if "other_share" not in figures:
            return figures
        others = max(0.0, figures["other_share"] - share)
        return {**figures, "other_share": round(others, 3), "idle_side_share": round(share, 4)}
