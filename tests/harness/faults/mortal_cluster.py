"""Three brokers, two topics and a group, around one transactional id: who dies at which moment of a
transaction, and what must be true of it in the end.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from harness.clients.facts import fresh_topic
from harness.clients.raw_socket import RawClient
from harness.clients.transaction_raw import (
    committed_offset,
    coordinator,
    end_of,
    leader,
    until_known,
)
from harness.clients.transactional import confluent_reads
from harness.faults.mortals import TRAPS, Trap, When
from harness.processes.cluster import WAIT_S, Cluster, until
from harness.processes.transaction_checks import Told, told_by, wrong_transactions
from tidelog.node.groups.placement import OFFSETS_TOPIC, partition_of
from tidelog.tools.supervisor import proc
from tidelog.wire.messages import k19_create_topics as k19

FIRST, SECOND = b"first", b"second"
"""What the two transactions of a scene write."""
OFFSET: Final = 5
"""What the first one commits of the group, in the first topic."""
PROGRAM: Final = ("-m", "harness.faults.mortals")
BROKERS: Final = 3
SETTINGS: Final = {
    "transaction.state.log.num.partitions": "3",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}


class MortalCluster(Cluster):
    """Whoever dies is started again at once."""

    @property
    def traps(self) -> Path:
        return self.folder / "traps"

    def set_trap(self, trap: Trap) -> None:
        """Whoever comes to that moment finds it."""
        name = re.sub(r"\W", "-", f"{trap.step}-{trap.when}")
        scratch = self.traps / f"{name}.scratch"
        scratch.write_bytes(msgspec.json.encode(trap))
        scratch.rename(self.traps / f"{name}.json")

    def clear_traps(self) -> None:
        """What an earlier test has left."""
        for path in self.traps.glob("*.json"):
            path.unlink(missing_ok=True)

    def all_sprang(self) -> bool:
        return not list(self.traps.glob("*.json"))

    def coordinator_pid(self) -> int:
        pids: list[int] = []

        def is_there() -> bool:
            pid = self.process("transaction-coordinator")["pid"]
            pids[:] = [] if pid is None else [pid]
            return bool(pids)

        until(is_there, "a transaction coordinator")
        return pids[0]

    def pid_at(self, address: str) -> int:
        """Of the broker there."""
        return self.broker_pid(self.broker_at(address))

    def broker_at(self, address: str) -> int:
        return self.bootstrap.split(",").index(address)


@contextmanager
def mortal_cluster(
    folder: Path, settings: Mapping[str, str] | None = None
) -> Iterator[MortalCluster]:
    traps = folder / "traps"
    traps.mkdir(parents=True)
    with MortalCluster(
        folder,
        brokers=BROKERS,
        settings={**SETTINGS, **(settings or {})},
        options=("--restart",),
        program=PROGRAM,
        environment={TRAPS: str(traps)},
    ) as cluster:
        yield cluster


def placed_topic(bootstrap: str, *replicas: int) -> str:
    """A topic of one partition, led by the first of these brokers; its name."""
    name = fresh_topic()
    place = k19.CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
    topic = k19.CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        assignments=[place],
        configs=[k19.CreatableTopicConfig(name="min.insync.replicas", value="1")],
    )
    with RawClient(bootstrap) as client:
        request = k19.CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        (answer,) = client.ask(k19.API, 7, request).topics
    assert answer.error_code == 0, answer
    until_known(bootstrap, name)
    return name


@dataclass
class Scene:
    """A transactional id, two topics of one partition and a group, each led by another broker than
    the partition of `__transaction_state` that keeps the id.
    """

    cluster: MortalCluster
    name: str = field(default_factory=lambda: fresh_topic("id"))
    topics: Sequence[str] = ()
    group: str = ""

    def __post_init__(self) -> None:
        cluster = self.cluster
        cluster.clear_traps()
        cluster.done("wait", "ready")  # who died of the last one may still be starting
        state = cluster.broker_at(coordinator(cluster.bootstrap, self.name))
        self.group = self._group_elsewhere(state)
        offsets = cluster.broker_at(coordinator(cluster.bootstrap, self.group, kind=0))
        (other,) = {*range(BROKERS)} - {state, offsets}
        # What the first one holds is committed by its leader and the state's alone.
        self.topics = (
            placed_topic(cluster.bootstrap, other, state),
            placed_topic(cluster.bootstrap, offsets, other, state),
        )

    def _group_elsewhere(self, state: int) -> str:
        for number in range(100):
            group = f"{self.name}-group-{number}"
            found = coordinator(self.cluster.bootstrap, group, kind=0)
            if self.cluster.broker_at(found) != state:
                return group
        raise AssertionError("one broker leads all groups")

    # -- who is who

    def pid_of(self, victim: str, step: str = "") -> int:
        """Of the coordinator, of the leader of the state partition, or of a data partition: that of
        the step, if it has one.
        """
        if victim == "coordinator":
            return self.cluster.coordinator_pid()
        bootstrap = self.cluster.bootstrap
        if victim == "state leader":
            return self.cluster.pid_at(coordinator(bootstrap, self.name))
        assert victim == "data leader"
        topic = step.removeprefix("marker ")
        if step in {"TxnOffsetCommit", "AddOffsets"} or topic == OFFSETS_TOPIC:
            return self.cluster.pid_at(coordinator(bootstrap, self.group, kind=0))
        topic = topic if topic in self.topics else self.topics[0]
        return self.cluster.pid_at(leader(bootstrap, topic))

    def set_trap(self, step: str, when: When, victim: str) -> int:
        """That one dies when the step comes to that moment; its process id."""
        pid = self.pid_of(victim, step)
        self.cluster.set_trap(Trap(step, when, (pid,)))
        return pid

    def check_sprang(self, pid: int) -> None:
        assert self.cluster.all_sprang(), "the moment never came"
        assert proc.is_gone(pid)

    # -- what must be true

    @property
    def group_partition(self) -> str:
        partition = partition_of(self.group, int(SETTINGS["offsets.topic.num.partitions"]))
        return f"{OFFSETS_TOPIC}-{partition}"

    def settle(self, within_s: float = WAIT_S) -> None:
        """Readers of committed records come to the end of each topic; replicas are level."""
        for topic in self.topics:
            until(partial(self._is_stable, topic), f"nothing of {topic} hangs", within_s)
        for place in self.places():
            until(partial(self._is_level, place), f"{place} is level", within_s)

    def _is_level(self, place: str) -> bool:
        return len(set(self._copies(place))) == 1

    def _is_stable(self, topic: str) -> bool:
        try:
            return end_of(self.cluster.bootstrap, topic) == end_of(
                self.cluster.bootstrap, topic, isolation=0
            )
        except (AssertionError, OSError, EOFError, KeyError):
            return False  # its leader is not there yet

    def places(self) -> list[str]:
        """The topics' partitions, and the group's."""
        return [*(f"{topic}-0" for topic in self.topics), self.group_partition]

    def _copies(self, place: str) -> list[bytes]:
        found = []
        for broker in range(BROKERS):
            files = sorted((self.cluster.data / f"broker-{broker}/log0" / place).glob("*.log"))
            if files:
                found.append(b"".join(file.read_bytes() for file in files))
        assert found, place
        return found

    def told(self) -> dict[str, Told]:
        """What the logs say, by TOPIC-PARTITION."""
        logs = {place: self._copies(place)[0] for place in self.places()}
        return {one.name: one for one in told_by(logs)}

    def ends(self, told: Mapping[str, Told]) -> dict[str, list[bool]]:
        """The outcomes of the transactions that wrote to the topics, in each partition."""
        ours = {
            marker.producer_id for topic in self.topics for marker in told[f"{topic}-0"].markers
        }
        return {
            place: [one.committed for one in told[place].markers if one.producer_id in ours]
            for place in self.places()
        }

    def check(self, *, committed: bool) -> None:
        """One transaction with that outcome that wrote to all, and one of the topics behind it that
        was committed: each has one end in each partition, and nothing hangs.
        """
        self.settle()
        told = self.told()
        assert wrong_transactions(list(told.values()), bumps=False) == []
        both = [committed, True]
        assert self.ends(told) == dict(zip(self.places(), (both, both, [committed]), strict=True))
        values = [FIRST, SECOND] if committed else [SECOND]
        for topic in self.topics:
            assert [one.value for one in told[f"{topic}-0"].committed] == values
            assert confluent_reads(self.cluster.bootstrap, topic, len(values)) == values
        offset = OFFSET if committed else -1
        found = committed_offset(self.cluster.bootstrap, self.group, self.topics[0])
        assert found == offset
