"""What dies beside the transformers of `exactly_once.py`, on a cluster of ours."""

from collections.abc import Callable, Mapping
from random import Random

from harness.clients.exactly_once import Stream
from harness.processes.cluster import Cluster, until


class Breaking:
    """At most one broker is down at a time."""

    def __init__(self, cluster: Cluster, rng: Random) -> None:
        self._cluster = cluster
        self._rng = rng

    def kinds(self) -> Mapping[str, Callable[[], None]]:
        return {
            "kill the transaction coordinator": self._kill_coordinator,
            "pause the transaction coordinator": self._pause_coordinator,
            "kill a broker": self._kill_broker,
            "kill the controller": self._kill_controller,
        }

    def _kill_coordinator(self) -> None:
        self._cluster.command("txn-coordinator", "kill")  # there may be none just now

    def _pause_coordinator(self) -> None:
        """It stands still until it is killed for that, unless it does already."""
        self._cluster.command("txn-coordinator", "pause")

    def _kill_broker(self) -> None:
        broker = str(self._rng.randrange(self._cluster.brokers))
        self._cluster.done("broker", "kill", broker)
        self._cluster.done("broker", "start", broker)

    def _kill_controller(self) -> None:
        self._cluster.command("coordinator", "kill")  # as above


def level_logs(cluster: Cluster, stream: Stream) -> dict[str, bytes]:
    """All that transactions wrote to, once each replica holds all there is."""
    found: list[dict[str, bytes]] = []

    def are_level() -> bool:
        folders = [cluster.data / f"broker-{one}" / "log0" for one in range(cluster.brokers)]
        found[:] = [stream.logs(folder) for folder in folders]
        return all(one == found[0] for one in found)

    until(are_level, "all replicas are level")
    return found[0]
