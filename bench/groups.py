"""What groups of the classic protocol cost: the first record, a leave, a rebalance of many members,
commits under load, and the time without a coordinator when its broker is killed.

Three brokers, three replicas of the offsets, two of them needed in sync.
"""

import argparse
import time
from collections.abc import Callable, Iterator

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from clusters import Cluster, running
from measuring import Arguments, Figures, middle, percentile, repeat, report, versions
from raw_client import RawClient
from tidelog.node.groups.placement import OFFSETS_TOPIC, partition_of
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response, encode_request, joined
from tidelog.wire.messages import (
    k03_metadata,
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
)

GOALS = {
    "first_record_s": 0.2,
    "leave_ms": 20.0,
    "rebalance_s": 0.3,
    "commits_per_s": 2_000.0,
    "commit_p99_ms": 50.0,
    "failover_s": 1.0,
}
_BROKERS = 3
_PARTITIONS = 200
_PATIENCE_S = 30.0


def parser() -> Arguments:
    asked = Arguments(str(__doc__), ["groups.py", "groups.py --groups 1000 --members 20"], runs=3)
    asked.add_argument("--members", type=int, default=100, help="of the large group (100)")
    asked.add_argument("--commits", type=int, default=5_000, help="of one client (5000)")
    asked.add_argument("--in-flight", type=int, default=100, help="commits not answered (100)")
    asked.add_argument("--groups", type=int, default=10_000, help="with an offset each (10000)")
    return asked


class Member:
    """One member on a connection of its own."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.group = group
        self.client = RawClient(coordinator(bootstrap, group))
        self.member_id = ""
        self.generation = -1
        self.member_id = self.client.ask(k11_join_group.API, 9, self._join()).member_id

    def _join(self) -> k11_join_group.JoinGroupRequest:
        protocol = k11_join_group.JoinGroupRequestProtocol(name="range", metadata=bytes(50))
        return k11_join_group.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=45_000,
            rebalance_timeout_ms=60_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )

    def send_join(self) -> None:
        frame = encode_request(k11_join_group.API, 9, 0, "bench", self._join())
        self.client.sock.sendall(joined(frame))

    def take_join(self) -> list[str]:
        """The members, if it leads them."""
        _, answer = decode_response(k11_join_group.API, 9, self.client.receive())
        assert not answer.error_code, ErrorCode(answer.error_code)
        self.generation = answer.generation_id
        return [one.member_id for one in answer.members]

    def send_sync(self, members: list[str]) -> None:
        share = bytes(8 * _PARTITIONS // max(1, len(members)))
        request = k14_sync_group.SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[
                k14_sync_group.SyncGroupRequestAssignment(member_id=name, assignment=share)
                for name in members
            ],
        )
        self.client.sock.sendall(joined(encode_request(k14_sync_group.API, 5, 0, "b", request)))

    def take_sync(self) -> None:
        _, answer = decode_response(k14_sync_group.API, 5, self.client.receive())
        assert not answer.error_code, ErrorCode(answer.error_code)

    def beat(self) -> int:
        request = k12_heartbeat.HeartbeatRequest(
            group_id=self.group, generation_id=self.generation, member_id=self.member_id
        )
        return int(self.client.ask(k12_heartbeat.API, 4, request).error_code)

    def leave(self) -> None:
        one = k13_leave_group.MemberIdentity(member_id=self.member_id)
        request = k13_leave_group.LeaveGroupRequest(group_id=self.group, members=[one])
        self.client.ask(k13_leave_group.API, 5, request)
        self.client.sock.close()


def coordinator(bootstrap: str, group: str) -> str:
    """Its address, as soon as it answers for the group."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        with RawClient(bootstrap) as client:
            request = k10_find_coordinator.FindCoordinatorRequest(coordinator_keys=[group])
            (row,) = client.ask(k10_find_coordinator.API, 4, request).coordinators
            if not row.error_code:
                return f"{row.host}:{row.port}"
        time.sleep(0.01)
    raise SystemExit(f"no coordinator of {group} for {_PATIENCE_S} s")


def form(members: list[Member]) -> float:
    """One generation of them; from the last JoinGroup to the last answer, but for the clients'
    own time between."""
    for member in members:
        member.send_join()
    began = time.monotonic()
    told = [member.take_join() for member in members]
    joined_s = time.monotonic() - began
    for member, names in zip(members, told, strict=True):
        member.send_sync(names)
    began = time.monotonic()
    for member in members:
        member.take_sync()
    return joined_s + time.monotonic() - began


def first_record(cluster: Cluster, topic: str, run: int) -> float:
    began = time.monotonic()
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"first-{run}",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    consumer.subscribe([topic])
    while consumer.poll(0.1) is None:
        pass
    took = time.monotonic() - began
    consumer.close()
    return took


def leave(cluster: Cluster, run: int) -> float:
    """From a leave to the answer that gives the partitions to who is left, which asks at once."""
    members = [Member(cluster.bootstrap, f"leave-{run}") for _ in range(2)]
    form(members)
    stays, goes = members
    began = time.monotonic()
    goes.leave()
    while stays.beat() != ErrorCode.REBALANCE_IN_PROGRESS:
        pass
    form([stays])
    took = time.monotonic() - began
    stays.leave()
    return took


def rebalance(cluster: Cluster, run: int, count: int) -> float:
    """Of a group that was whole, and whose members all join anew."""
    members = [Member(cluster.bootstrap, f"large-{run}") for _ in range(count)]
    form(members)
    took = form(members)
    for member in members:
        member.leave()
    return took


def commit_request(group: str, offset: int) -> k08_offset_commit.OffsetCommitRequest:
    row = k08_offset_commit.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=""
    )
    topic = k08_offset_commit.OffsetCommitRequestTopic(name="groups", partitions=[row])
    return k08_offset_commit.OffsetCommitRequest(group_id=group, topics=[topic])


def pumped(
    client: RawClient, groups: Iterator[tuple[str, int]], in_flight: int
) -> tuple[float, list[float]]:
    """Commit for each, so many at a time: how long all took, and each."""
    sent: list[float] = []
    took: list[float] = []
    began = time.monotonic()
    more = True
    while more or len(took) < len(sent):
        while more and len(sent) - len(took) < in_flight:
            found = next(groups, None)
            more = found is not None
            if found is not None:
                frame = encode_request(k08_offset_commit.API, 8, 0, "b", commit_request(*found))
                sent.append(time.monotonic())
                client.sock.sendall(joined(frame))
        if len(took) < len(sent):
            _, answer = decode_response(k08_offset_commit.API, 8, client.receive())
            code = answer.topics[0].partitions[0].error_code
            assert not code, ErrorCode(code)
            took.append(time.monotonic() - sent[len(took)])
    return time.monotonic() - began, took


def fill(cluster: Cluster, count: int) -> None:
    """An offset for each of so many groups."""
    by_address: dict[str, list[str]] = {}
    places = partition_leaders(cluster)
    for name in map("group-{}".format, range(count)):
        by_address.setdefault(places[partition_of(name, len(places))][1], []).append(name)
    for address, names in by_address.items():
        with RawClient(address) as client:
            pumped(client, ((name, 1) for name in names), 100)


def partition_leaders(cluster: Cluster) -> dict[int, tuple[int, str]]:
    """Of the offsets' topic: who leads each partition, and its address."""
    addresses = cluster.bootstrap.split(",")
    topic = k03_metadata.MetadataRequestTopic(name=OFFSETS_TOPIC, topic_id=bytes(16))  # type: ignore[arg-type]  # no id
    request = k03_metadata.MetadataRequest(topics=[topic])
    with RawClient(cluster.bootstrap) as client:
        rows = client.ask(k03_metadata.API, 12, request).topics[0].partitions
    return {row.partition_index: (row.leader_id, addresses[row.leader_id]) for row in rows}


def failover(cluster: Cluster, count: int) -> float:
    """From the kill of a broker until every group that it coordinated is answered elsewhere."""
    places = partition_leaders(cluster)
    victim = _BROKERS - 1
    asked: dict[int, str] = {}
    for name in map("group-{}".format, range(count)):
        place = partition_of(name, len(places))
        if places[place][0] == victim:
            asked.setdefault(place, name)
    rest = ",".join(cluster.bootstrap.split(",")[:victim])
    began = time.monotonic()
    kill(cluster, victim)
    for name in asked.values():
        until(lambda name=name: fetched(rest, name), name)  # type: ignore[misc]  # bound now
    took = time.monotonic() - began
    cluster.start_again(victim)
    time.sleep(2)
    return took


def kill(cluster: Cluster, broker: int) -> None:
    import os  # noqa: PLC0415 -- here alone
    import signal  # noqa: PLC0415 -- here alone

    os.kill(cluster.pid_of(broker), signal.SIGKILL)


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"{what} has no answer for {_PATIENCE_S} s")
        time.sleep(0.002)


def fetched(bootstrap: str, group: str) -> bool:
    topic = k09_offset_fetch.OffsetFetchRequestTopic(name="groups", partition_indexes=[0])
    request = k09_offset_fetch.OffsetFetchRequest(group_id=group, topics=[topic])
    try:
        with RawClient(coordinator(bootstrap, group)) as client:
            answer = client.ask(k09_offset_fetch.API, 7, request)
    except OSError:
        return False
    if answer.error_code:
        return False
    assert answer.topics[0].partitions[0].committed_offset == 1, group
    return True


def one_run(asked: argparse.Namespace, cluster: Cluster, run: int) -> Figures:
    name = f"commits-{run}"
    with RawClient(coordinator(cluster.bootstrap, name)) as client:
        requests = ((name, offset) for offset in range(asked.commits))
        took, each = pumped(client, requests, asked.in_flight)
    return {
        "first_record_s": first_record(cluster, "groups", run),
        "leave_ms": 1_000 * leave(cluster, run),
        "rebalance_s": rebalance(cluster, run, asked.members),
        "commits_per_s": asked.commits / took,
        "commit_p99_ms": 1_000 * percentile(each, 0.99),
        "failover_s": failover(cluster, asked.groups),
    }


def run(asked: argparse.Namespace) -> None:
    with running(brokers=_BROKERS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("groups", 1, 3)])["groups"].result()
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        producer.produce("groups", b"one")
        producer.flush()
        coordinator(cluster.bootstrap, "any")
        fill(cluster, asked.groups)
        numbers = iter(range(1_000))
        runs = repeat(asked, lambda: one_run(asked, cluster, next(numbers)))
    settings = {
        "brokers": _BROKERS,
        "members": asked.members,
        "commits": asked.commits,
        "in_flight": asked.in_flight,
        "groups": asked.groups,
        "versions": versions("confluent-kafka"),
    }
    figures = {name: middle(runs, name, 4) for name in GOALS}
    report("groups", settings, {**figures, "goals": GOALS}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
