"""Two groups whose members and coordinators are broken by draw, and what must be true then."""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from harness.clients.librdkafka import LIVING
from harness.faults.chaos import BROKERS, Faults, drawn, log_bytes
from harness.processes.cluster import Cluster, until
from harness.processes.group_checks import (
    Event,
    Owners,
    differing,
    failures,
    logged_of,
    missing_commits,
    not_committed,
    numbers,
    unprocessed,
    wrong_owners,
    wrong_reads,
)
from harness.processes.group_feed import PARTITIONS, TOPIC, Feed
from harness.processes.group_member import SESSION_MS
from tidelog.node.groups.placement import OFFSETS_TOPIC, partition_of

OFFSETS_PARTITIONS: Final = 4
MEMBERS: Final = 5
"""In one process, which are killed together."""
CLASSIC: Final = (
    ("classic",) * 5,
    ("classic",) * 5,
    ("classic",) * 5,
    ("classic", "kafka-python", "kafka-python", "aiokafka", "aiokafka"),
)
CONSUMER: Final = (("consumer",) * 5,) * 4
"""What speaks for the members of each process: twenty in a group."""
MIXED: Final = (("classic", "classic", "consumer"), ("classic", "consumer", "consumer"))
"""And a few in a third one, that goes from one protocol to the other as its members are drawn."""
CHANGING: Final = "mixed"
SHARED_S: Final = 60.0
COMMITTED_S: Final = 60.0
SETTINGS: Final[Mapping[str, str]] = {
    "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "500",
}
NOT_YET: Final = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)


def commit_beginning(bootstrap: str, group: str) -> None:
    """Commit offset 0 of every partition for a group that has no members yet.

    A member that finds no committed offset asks for the first one. librdkafka may ask for it once
    more, long after it began to read, and then reads the partition from its start again
    (docs/clients.md). The checks could not tell that from a fault of the cluster.

    The first commit of a cluster also makes the topic that keeps it. The coordinator may hear of
    that a moment later than whoever names it; librdkafka's admin client does not ask again then.
    """
    admin, refused = AdminClient({"bootstrap.servers": bootstrap, **LIVING}), list[str]()

    def is_committed() -> bool:
        places = [TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)]
        asked = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])
        done = asked[group].result(COMMITTED_S).topic_partitions
        assert done is not None
        errors = [one.error for one in done if one.error is not None]
        refused[:] = [str(error) for error in errors if error.code() not in NOT_YET]
        return not errors or refused != []

    until(is_committed, f"the first offsets of {group} are committed")
    assert refused == [], refused


class Band:
    """One process with members, and a file of what befell them."""

    def __init__(self, cluster: Cluster, group: str, number: int, kinds: Sequence[str]) -> None:
        self.members: dict[str, str] = {}
        """Those that shall be there, and their kinds."""
        self._cluster = cluster
        self._group = group
        self.kinds = kinds
        """What shall be there."""
        self._number = number
        self._made = 0
        self._path = cluster.folder / f"{group}-{number}.jsonl"
        self._read = 0
        self._rest = b""
        self._start()

    def _start(self) -> None:
        words = (self._cluster.bootstrap, self._group, TOPIC, str(self._path))
        with (self._cluster.folder / f"{self._group}-{self._number}.err").open("ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "harness.processes.group_member", *words],
                env=self._cluster.variables(),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        self.fill()

    def fill(self) -> None:
        """As many as there shall be, of each kind."""
        for kind in (Counter(self.kinds) - Counter(self.members.values())).elements():
            self._made += 1
            name = f"{self._group}-{self._number}-{self._made}"
            self.members[name] = kind
            self._say(f"join {name} {kind}")

    def leave(self, name: str) -> None:
        del self.members[name]
        self._say(f"leave {name}")

    def _say(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self._process.pid, number)

    def kill(self) -> list[str]:
        """All that are in it, at one moment; their names."""
        self.close()
        names = list(self.members)
        self.members.clear()
        return names

    def start_again(self) -> None:
        self._start()

    def end(self) -> None:
        """All leave."""
        self._say("end")

    def wait(self) -> None:
        assert self._process.wait(60) == 0, "a process of members failed"

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.kill()
        self._process.wait(10)
        self._process.stdin.close()

    def news(self) -> list[Event]:
        """What was written since it was asked last."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._read)
            found = file.read()
        self._read += len(found)
        *lines, self._rest = (self._rest + found).split(b"\n")
        return [Event(*json.loads(line)) for line in lines]


class Group:
    """Twenty members in four processes, and everything that is known of them."""

    def __init__(self, cluster: Cluster, name: str, kinds: Sequence[Sequence[str]]) -> None:
        self.name = name
        commit_beginning(cluster.bootstrap, name)
        self.bands = [Band(cluster, name, number, of) for number, of in enumerate(kinds)]
        self.events: list[Event] = []
        self._owners = Owners()
        self._committed = [0] * PARTITIONS

    def tell(self, kind: str, members: Sequence[str]) -> None:
        """What the test did to them, after all that they have told so far."""
        self.look()
        self._take([Event(time.monotonic(), one, kind) for one in members])

    def look(self) -> None:
        self._take([event for band in self.bands for event in band.news()])

    def _take(self, events: list[Event]) -> None:
        for event in sorted(events):
            self._owners.see(event)
            if event.kind == "committed":
                for partition, offset in numbers(event.what).items():
                    self._committed[partition] = max(self._committed[partition], offset)
        self.events += events

    @property
    def committed(self) -> list[int]:
        """How far, as its members were told."""
        return list(self._committed)

    def look_far(self) -> list[int]:
        self.look()
        return self.committed

    def is_shared(self) -> bool:
        self.look()
        there = [name for band in self.bands for name in band.members]
        return self._owners.is_shared(PARTITIONS, there)

    def has_read(self, sent: Sequence[int]) -> bool:
        return self.look_far() == list(sent)

    def story(self) -> str:
        """Who had what in the end."""
        rows = {one: sorted(has) for one, has in sorted(self._owners.of.items())}
        return f"{self.name}: owners {rows}, committed {self._committed}"


class GroupSoak:
    """What is done to the groups, and when: the history is printed where something is wrong."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self.history: list[str] = []
        self.done = Counter[str]()
        self._cluster = cluster
        self._rng = Random(seed)
        self._began = time.monotonic()
        self._admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **LIVING})
        self._faults = Faults(cluster, self._rng)
        self._groups: list[Group] = []
        coordinators = ("kill", "pause", "stop")
        self._steps: Mapping[str, Callable[[Group], None]] = {
            "come": self._come,
            "leave": self._leave,
            "kill members": self._kill,
            "pause members": self._pause,
            "change": lambda _: self._change(),
            "kill the cluster's coordinator": lambda _: self._faults.kinds["kill coordinator"](0),
            **{f"{one} the group's broker": partial(self._break, one) for one in coordinators},
        }

    def run(self, seconds: float) -> list[str]:
        """What was wrong in the end."""
        words = ("--partitions", str(PARTITIONS), "--replication-factor", "3")
        self._cluster.done("topic", "create", TOPIC, *words, "-c", "min.insync.replicas=2")
        self._cluster.until_heard()  # librdkafka commits once, also if the topic is not known yet
        feed = Feed(self._cluster.bootstrap)
        feed.start()
        try:
            for name, kinds in (("classic", CLASSIC), ("consumer", CONSUMER), (CHANGING, MIXED)):
                self._groups.append(Group(self._cluster, name, kinds))
            self._are_shared()
            for kind in drawn(self._rng, self._steps, seconds):
                group = self._rng.choice(self._groups)
                self._tell(f"{kind}: {group.name}")
                self._steps[kind](group)
                self.done[kind] += 1
                self._last(0.1, 1.0)
            for band in self._bands():
                band.fill()
            self._are_shared()
            feed.finish()
            self._have_read(feed.sent)
            self._are_shared()
            for band in self._bands():
                band.end()
            for band in self._bands():
                band.wait()
        finally:
            feed.finish()
            self._faults.close()
            for band in self._bands():
                band.close()
        return [*feed.failed, *self._wrong_at_rest(feed.sent)]

    # -- what is done

    def _bands(self) -> list[Band]:
        return [band for group in self._groups for band in group.bands]

    def _tell(self, what: str) -> None:
        self.history.append(f"{time.monotonic() - self._began:6.1f} {what}")

    def _last(self, least_s: float, most_s: float) -> None:
        """How long things stay as they are is drawn: there is nothing to wait for."""
        time.sleep(self._rng.uniform(least_s, most_s))

    def _come(self, group: Group) -> None:
        for band in group.bands:
            band.fill()

    def _leave(self, group: Group) -> None:
        band = self._rng.choice(group.bands)
        going = self._rng.randint(0, len(band.members))
        for name in self._rng.sample(sorted(band.members), going):
            self._tell(f"  {name}")
            band.leave(name)

    def _change(self) -> None:
        """One process of the third group has members of other kinds from now on."""
        band = self._rng.choice(self._groups[-1].bands)
        band.kinds = self._rng.choices(("classic", "consumer"), k=len(band.kinds))
        self._tell(f"  {list(band.kinds)}")
        for name, kind in list(band.members.items()):
            if kind not in band.kinds or self._rng.random() < 0.5:
                band.leave(name)
        for kind in (Counter(band.members.values()) - Counter(band.kinds)).elements():
            band.leave(next(name for name, its in band.members.items() if its == kind))
        band.fill()

    def _kill(self, group: Group) -> None:
        band = self._rng.choice(group.bands)
        names = band.kill()
        group.tell("killed", names)
        self._tell(f"  {names}")
        self._last(0.1, 2.0)
        band.start_again()

    def _pause(self, group: Group) -> None:
        """For less than a session, or more."""
        band = self._rng.choice(group.bands)
        group.tell("paused", list(band.members))
        self._tell(f"  {list(band.members)}")
        band.signal(signal.SIGSTOP)
        try:
            self._last(0.2, SESSION_MS / 1000 + 3.0)
        finally:
            band.signal(signal.SIGCONT)

    def _break(self, fault: str, group: Group) -> None:
        broker = self._leader_of(group)
        self._tell(f"  broker {broker}")
        self._faults.kinds[fault](broker)

    def _leader_of(self, group: Group) -> int:
        """The broker that keeps the group, or another where nobody does now."""
        topics = self._admin.list_topics(OFFSETS_TOPIC, timeout=10).topics
        place = partition_of(group.name, OFFSETS_PARTITIONS)
        leader = int(topics[OFFSETS_TOPIC].partitions[place].leader)
        return leader if leader >= 0 else self._rng.randrange(BROKERS)

    # -- what must be true

    def _are_shared(self) -> None:
        for group in self._groups:
            self._tell(f"G5: every partition of {group.name} gets one owner")
            self._until(group.is_shared, group)

    def _have_read(self, sent: Sequence[int]) -> None:
        for group in self._groups:
            self._tell(f"{group.name} commits all")
            self._until(partial(group.has_read, sent), group)

    def _until(self, condition: Callable[[], bool], group: Group) -> None:
        try:
            until(condition, self.history[-1], SHARED_S)
        finally:
            self._tell(f"  {group.story()}")

    def _wrong_at_rest(self, sent: Sequence[int]) -> list[str]:
        """Everyone stops, and what was told is held against what was written."""
        self._cluster.done("wait", "isr", OFFSETS_TOPIC, "--timeout", "60")
        self._cluster.stop()
        wrong = []
        for group in self._groups:
            group.look()
            found = [*self._wrong_in(group, sent)]
            wrong += [f"{group.name}: {line}" for line in found]
        return wrong

    def _wrong_in(self, group: Group, sent: Sequence[int]) -> list[str]:
        place = partition_of(group.name, OFFSETS_PARTITIONS)
        logs = [log_bytes(self._cluster, broker, OFFSETS_TOPIC, place) for broker in range(BROKERS)]
        logged = logged_of(group.name, logs[0], changes=group.name == CHANGING)
        self._tell(f"{group.name}: {len(logged.commits)} commits, {logged.generations} generations")
        return [
            *differing(logs),
            *not_committed(logged, sent),
            *failures(group.events),
            *logged.wrong,
            *wrong_owners(group.events),
            *wrong_reads(group.events),
            *missing_commits(group.events, logged),
            *unprocessed(group.events, logged.committed),
        ]
