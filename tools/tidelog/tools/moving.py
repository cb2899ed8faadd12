"""Replicas moved by the cluster, and waited for: what growing and shrinking need.

Nothing is remembered here: what is under way the cluster knows, so who was interrupted asks again.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Final

from tidelog.clients.admin.reassignments import alter_reassignments, list_reassignments
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import PartitionView, refresh
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.tools.output import UNREACHABLE, counted, fail
from tidelog.tools.placing import TooFewError, raised, without
from tidelog.wire.errors import ErrorCode

AT_ONCE_MAX: Final = 500
"""Partitions that are moved at a time: more would only wait for each other."""
_LOOK_EVERY_S: Final = 0.05
_FINE: Final = frozenset({ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
_Targets = Mapping[TopicPartition, Sequence[int]]


class Moves:
    """Asks for other replicas and looks until they are there, or nothing moves for so long."""

    def __init__(self, client: Client, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s

    def count_on(self, broker: int) -> int:
        """How many partitions have a replica there."""
        return len(self._on(broker))

    def check(self, gone: int, stay: Sequence[int]) -> None:
        """The command ends where what that broker holds has no other place."""
        self._away(gone, stay)

    def move_away(self, gone: int, stay: Sequence[int], told: Callable[[int], None]) -> None:
        """Until the broker holds nothing; `told` hears how many partitions it still has."""
        while True:
            targets = dict(islice(self._away(gone, stay).items(), AT_ONCE_MAX))
            self._ask(targets)
            wanted = set(targets) or self._on(gone)
            if not wanted:
                return
            self._wait(partial(self._still_on, gone, wanted, told))

    def _still_on(
        self, broker: int, places: set[TopicPartition], told: Callable[[int], None]
    ) -> set[TopicPartition]:
        there = self._on(broker)
        told(len(there))
        return places & there

    def raise_internal(self, brokers: Sequence[int]) -> int:
        """How many partitions of internal topics get more replicas, as there are more brokers."""
        replicas = self._replicas()
        targets = raised(replicas, self._internal(), brokers, self._client.view.racks)
        self._ask(targets)
        self._wait(lambda: targets.keys() & self._under_way())
        return len(targets)

    def _away(self, gone: int, stay: Sequence[int]) -> dict[TopicPartition, tuple[int, ...]]:
        try:
            replicas = self._replicas()
            targets = without(replicas, self._internal(), gone, stay, self._client.view.racks)
        except TooFewError as few:
            name, number = few.partition
            left = counted(len(stay), "broker")
            fail(
                f"{name}-{number} has {few.replicas} replicas, and {left} would be "
                "left for them: add a broker first (tidelog broker add), or give the topic fewer "
                "replicas (tidelog partition reassign)"
            )
        for (name, number), partition in self._partitions().items():
            if (name, number) in targets and partition.leader not in self._client.view.brokers:
                fail(
                    f"{name}-{number} has no leader, so nobody can copy it: start the broker that "
                    "has it first (tidelog broker start)"
                )
        return targets

    def _partitions(self) -> dict[TopicPartition, PartitionView]:
        return {
            (topic.name, Partition(number)): partition
            for topic in self._client.view.topics.values()
            for number, partition in topic.partitions.items()
        }

    def _internal(self) -> set[TopicPartition]:
        topics = self._client.view.topics
        return {place for place in self._partitions() if topics[place[0]].internal}

    def _replicas(self) -> dict[TopicPartition, tuple[int, ...]]:
        """Of every partition, as they are, or as they will be where they are under way."""
        self._client.run(refresh(self._client.view, None))
        ongoing = self._client.run(list_reassignments(self._client.view))
        return {
            place: ongoing[place].target if place in ongoing else partition.replicas
            for place, partition in self._partitions().items()
        }

    def _on(self, broker: int) -> set[TopicPartition]:
        """What has a replica there now, be it on its way elsewhere."""
        self._client.run(refresh(self._client.view, None))
        return {place for place, one in self._partitions().items() if broker in one.replicas}

    def _under_way(self) -> set[TopicPartition]:
        return set(self._client.run(list_reassignments(self._client.view)))

    def _ask(self, targets: _Targets) -> None:
        if not targets:
            return
        for one in self._client.run(alter_reassignments(self._client.view, targets)):
            if one.code not in _FINE:  # one that was deleted meanwhile need not move
                name, number = one.partition
                fail(f"{name}-{number} cannot be moved: {one.detail or one.code.name}")

    def _wait(self, left_now: Callable[[], Collection[TopicPartition]]) -> None:
        """Until nothing is left; the command ends where nothing more arrives in time."""
        left = left_now()
        deadline = time.monotonic() + self._timeout_s
        while left:
            time.sleep(_LOOK_EVERY_S)
            before, left = left, left_now()
            if len(left) < len(before):
                deadline = time.monotonic() + self._timeout_s
            if left and time.monotonic() >= deadline:
                name, number = min(left)
                fail(
                    f"{name}-{number} and {len(left) - 1} others are still on their way: ask again "
                    "to go on, or see tidelog partition reassign status",
                    UNREACHABLE,
                )
