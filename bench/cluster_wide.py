"""What concerns a cluster as a whole: its first record, its cost idle, what each broker knows."""

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Self

from clusters import Cluster
from measuring import Figures, cpu_s, pss_mb
from raw_client import RawClient
from tidelog.kernel.ids import Uuid
from tidelog.wire.messages import k03_metadata, k19_create_topics

REPLICAS_MAX = 3
_METADATA_VERSION = 9
_CREATE_VERSION = 5
_PATIENCE_S = 120.0
_LOOK_S = 0.001


def first_record(cluster: Cluster, *, replication: int = 1) -> float:
    """Seconds from the launch until a new topic's first record is acknowledged by all replicas."""
    with RawClient(cluster.bootstrap, while_refused=cluster.check_alive) as client:
        client.create_topic("first", 1, replication=replication)
        (address,) = client.leaders("first").values()
    with RawClient(address) as leader:
        leader.produce_once("first", b"hello")
    return time.monotonic() - cluster.launched


def idle_cost(cluster: Cluster, seconds: float, *, settle: float) -> Figures:
    """Memory and processor of all processes when nobody asks them for anything."""
    time.sleep(settle)
    memory = pss_mb(cluster.pids)
    began, spent = time.monotonic(), cpu_s(cluster.pids)
    time.sleep(seconds)
    spent = cpu_s(cluster.pids) - spent
    return {
        "idle_pss_mb": memory["all"],
        "idle_pss_mb_each": memory,
        "idle_cpu_percent": round(100 * spent / (time.monotonic() - began), 2),
    }


class Views:
    """A connection to each broker, to be told what that one knows."""

    def __init__(self, addresses: Iterable[str]) -> None:
        with contextlib.ExitStack() as undo:
            self._clients = [undo.enter_context(RawClient(address)) for address in addresses]
            self._undo = undo.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()

    def create(
        self, name: str, partitions: int, *, replication: int = 1, first: Sequence[int] = ()
    ) -> None:
        """By the first broker; with `first`, on these brokers, the first of which is to lead."""
        topic = k19_create_topics.CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replication
        )
        if first:
            topic.num_partitions = topic.replication_factor = -1
            topic.assignments = [
                k19_create_topics.CreatableReplicaAssignment(
                    partition_index=number, broker_ids=list(first)
                )
                for number in range(partitions)
            ]
        request = k19_create_topics.CreateTopicsRequest(topics=[topic])
        client = self._clients[0]
        client.until_done(
            lambda: client.ask(k19_create_topics.API, _CREATE_VERSION, request).topics[0].error_code
        )

    def wait_led(self, name: str, partitions: int, *, but_by: int | None = None) -> None:
        """Until every broker names a leader of every partition, and never the one that is gone."""

        def led(rows: Sequence[k03_metadata.MetadataResponsePartition]) -> bool:
            return all(row.leader_id not in {-1, but_by} and not row.error_code for row in rows)

        if not self._wait(name, partitions, led):
            raise SystemExit(f"{name} has no new leaders within {_PATIENCE_S:.0f} s")

    def wait_in_sync(
        self,
        name: str,
        partitions: int,
        replicas: int,
        *,
        look_s: float = _LOOK_S,
        patience_s: float = _PATIENCE_S,
    ) -> bool:
        """Until every broker says that so many replicas of every partition are in sync."""

        def in_sync(rows: Sequence[k03_metadata.MetadataResponsePartition]) -> bool:
            return all(len(row.isr_nodes) == replicas for row in rows)

        return self._wait(name, partitions, in_sync, look_s, patience_s)

    def _wait(
        self,
        name: str,
        partitions: int,
        true: Callable[[Sequence[k03_metadata.MetadataResponsePartition]], bool],
        look_s: float = _LOOK_S,
        patience_s: float = _PATIENCE_S,
    ) -> bool:
        deadline = time.monotonic() + patience_s
        for client in self._clients:
            while True:
                rows = partitions_said(client, name)
                if len(rows) == partitions and true(rows):
                    break
                if time.monotonic() > deadline:
                    return False
                time.sleep(look_s)
        return True


def partitions_said(
    client: RawClient, name: str
) -> Sequence[k03_metadata.MetadataResponsePartition]:
    """What one broker says of the topic's partitions; nothing where it does not know the topic."""
    topic = k03_metadata.MetadataRequestTopic(name=name, topic_id=Uuid(bytes(16)))
    request = k03_metadata.MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
    (said,) = client.ask(k03_metadata.API, _METADATA_VERSION, request).topics
    rows: Sequence[k03_metadata.MetadataResponsePartition] = (
        () if said.error_code else said.partitions
    )
    return rows
