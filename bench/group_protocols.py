"""How soon members of groups have their partitions, by the classic and by the consumer protocol.

Three brokers, three replicas. `clients`: confluent-kafka with its own settings, from subscribing to
the first record, and to the even share of two that are started together. `rebalances`: members over
bare sockets that answer at once; from a leave to the answer that another member must do something
and to when it has all partitions; and a rebalance of many members, from the request that begins it
to the last member's new assignment, so that the client's own work is in it.
"""

import argparse
import itertools
import time
from collections.abc import Callable
from typing import NamedTuple

import confluent_kafka

from clusters import Tidelog, running
from group_clients import client_figures
from group_members import (
    Classic,
    Modern,
    commit_until_done,
    coordinator_of,
    form_classic,
    join_classic,
    settle_modern,
    share_of,
    sync_classic,
)
from measuring import Arguments, Figures, cpu_s, percentile, repeat, report, versions
from raw_client import RawClient
from tidelog.wire.errors import ErrorCode

GOALS = {
    "first_record_classic_s": 0.2,
    "first_record_consumer_s": 0.2,
    "shared_classic_s": 3.3,
    "shared_consumer_s": 1.0,
    "leave_classic_ms": 20.0,
    "leave_consumer_ms": 20.0,
    "rebalance_classic_s": 0.3,
    "rebalance_consumer_s": 0.3,
}
"""Two of the classic protocol: one heartbeat of librdkafka (3 s) and 0.3 s."""
_BROKERS = 3
_TOPIC = "read"
_OFFSETS = "__consumer_offsets"
_GATHERING = "group.initial.rebalance.delay.ms=500"
"""So that all members of bare sockets are in their group's first generation."""


def parser() -> Arguments:
    examples = ["group_protocols.py", "group_protocols.py --only rebalances --members 500"]
    asked = Arguments(str(__doc__), examples, runs=10)
    asked.add_argument("--only", choices=list(QUESTIONS), help="one of the questions")
    asked.add_argument("--members", type=int, default=100, help="of a rebalance (100)")
    asked.add_argument("--partitions", type=int, default=200, help="of a rebalance (200)")
    return asked


def ready_topic(client: RawClient, partitions: int) -> None:
    """With a record in each partition, and groups' coordinators there."""
    client.create_topic(_TOPIC, partitions, replication=_BROKERS)
    for index, address in client.leaders(_TOPIC).items():
        with RawClient(address) as leader:
            leader.produce_once(_TOPIC, b"x", index)
    coordinator_of(client, "any")
    client.leaders(_OFFSETS)


# -- unmodified clients


def ask_clients(cluster: Tidelog, asked: argparse.Namespace) -> list[Figures]:
    partitions = 6
    with RawClient(cluster.bootstrap) as client:
        ready_topic(client, partitions)
    numbers = itertools.count()

    def one() -> Figures:
        name = f"clients-{next(numbers)}"
        return client_figures(cluster.bootstrap, _TOPIC, name, partitions)

    return repeat(asked, one)


# -- rebalances


class Coordinated:
    """Groups whose coordinators answer, and the brokers that those are."""

    def __init__(self, cluster: Tidelog, client: RawClient) -> None:
        self._client = client
        self._pids = {broker: cluster.pid_of(broker) for broker in range(_BROKERS)}

    def place(self, group: str) -> tuple[str, int]:
        """Address and process of a group's coordinator."""
        broker, address = coordinator_of(self._client, group)
        with RawClient(address) as line:
            commit_until_done(line, group, _TOPIC, 0)
        return address, self._pids[broker]


def ask_rebalances(cluster: Tidelog, asked: argparse.Namespace) -> list[Figures]:
    numbers = itertools.count()
    with RawClient(cluster.bootstrap) as client:
        ready_topic(client, asked.partitions)
        coordinated = Coordinated(cluster, client)

        def one() -> Figures:
            name = f"rebalances-{next(numbers)}"
            return {
                **_leave_classic(coordinated, f"{name}-a", asked.partitions),
                **_leave_modern(coordinated, f"{name}-b", asked.partitions),
                **_many_classic(coordinated, f"{name}-c", asked),
                **_many_modern(coordinated, f"{name}-d", asked),
            }

        return repeat(asked, one)


def _leave_classic(coordinated: Coordinated, group: str, partitions: int) -> Figures:
    address, _ = coordinated.place(group)
    going, staying = (Classic(address, group, _TOPIC) for _ in range(2))
    with going.line, staying.line:
        form_classic([going, staying], share_of(range(partitions // 2), _TOPIC))
        began = time.monotonic()
        going.leave()
        code = staying.beat()
        decided = time.monotonic() - began
        assert code == ErrorCode.REBALANCE_IN_PROGRESS, code
        join_classic([staying])
        sync_classic([staying], share_of(range(partitions), _TOPIC))
        moved = time.monotonic() - began
        staying.leave()
    return {"leave_classic_ms": _ms(decided), "leave_classic_moved_ms": _ms(moved)}


def _leave_modern(coordinated: Coordinated, group: str, partitions: int) -> Figures:
    address, _ = coordinated.place(group)
    going, staying = (Modern(address, group, _TOPIC) for _ in range(2))
    with going.line, staying.line:
        settle_modern([going, staying], partitions)
        began = time.monotonic()
        going.leave()
        decided = time.monotonic() - began
        settle_modern([staying], partitions)
        moved = time.monotonic() - began
        staying.leave()
    return {"leave_consumer_ms": _ms(decided), "leave_consumer_moved_ms": _ms(moved)}


def _many_classic(coordinated: Coordinated, group: str, asked: argparse.Namespace) -> Figures:
    """The leader joins again, as one does that found more partitions: all others have to."""
    address, pid = coordinated.place(group)
    members = [Classic(address, group, _TOPIC) for _ in range(asked.members)]
    share = share_of(range(asked.partitions // asked.members), _TOPIC)
    form_classic(members, share)
    members.sort(key=lambda one: not one.leads)
    before, began = cpu_s([pid]), time.monotonic()
    join_classic(members)
    joined_s = time.monotonic() - began
    sync_classic(members, share)
    took, cpu = time.monotonic() - began, cpu_s([pid]) - before
    for one in members:
        one.line.sock.close()
    return {
        "rebalance_classic_s": round(took, 4),
        "rebalance_classic_joined_s": round(joined_s, 4),
        "rebalance_classic_broker_cpu_s": round(cpu, 4),
    }


def _many_modern(coordinated: Coordinated, group: str, asked: argparse.Namespace) -> Figures:
    """The last one of them comes: those who have more than their share give up."""
    address, pid = coordinated.place(group)
    members = [Modern(address, group, _TOPIC) for _ in range(asked.members)]
    settle_modern(members[:-1], asked.partitions)
    before, began = cpu_s([pid]), time.monotonic()
    members[-1].beat()
    rounds = settle_modern(members, asked.partitions)
    took, cpu = time.monotonic() - began, cpu_s([pid]) - before
    for one in members:
        one.line.sock.close()
    return {
        "rebalance_consumer_s": round(took, 4),
        "rebalance_consumer_rounds": rounds,
        "rebalance_consumer_broker_cpu_s": round(cpu, 4),
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


class Question(NamedTuple):
    ask: Callable[[Tidelog, argparse.Namespace], list[Figures]]
    settings: tuple[str, ...] = ()


QUESTIONS = {
    "clients": Question(ask_clients),
    "rebalances": Question(ask_rebalances, (_GATHERING,)),
}
"""In a cluster of its own each."""


def run(asked: argparse.Namespace) -> None:
    every: list[Figures] = []
    figures: Figures = {}
    for name in [asked.only] if asked.only else QUESTIONS:
        question = QUESTIONS[name]
        with running(*question.settings, brokers=_BROKERS) as cluster:
            runs = question.ask(cluster, asked)
        every += runs
        for key in runs[0].keys() - {"noisy"}:
            values = [one[key] for one in runs]
            figures[key] = percentile(values, 0.5)
            figures[f"{key}_worst"] = max(values)
    settings = {
        **{name: value for name, value in vars(asked).items() if name != "only"},
        "brokers": _BROKERS,
        "librdkafka": confluent_kafka.libversion()[0],
        "versions": versions("confluent-kafka", "uvloop", "pyzmq"),
    }
    goals = {name: goal for name, goal in GOALS.items() if name in figures}
    report("group_protocols", settings, {**figures, "goals": goals}, every)


if __name__ == "__main__":
    run(parser().parse_args())
