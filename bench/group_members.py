"""Members of groups over bare sockets, a request at a time: the least that members can cost."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from raw_client import RawClient
from tidelog.wire.errors import ErrorCode
from tidelog.wire.frame import decode_response, encode_request, joined
from tidelog.wire.header import AnyApi
from tidelog.wire.messages import (
    k08_offset_commit,
    k10_find_coordinator,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
    k68_consumer_group_heartbeat,
)

if TYPE_CHECKING:
    from tidelog.kernel.ids import Uuid

COMMIT_VERSION = 9
_FIND_VERSION = 6
_JOIN_VERSION = 9
_SYNC_VERSION = 5
_BEAT_VERSION = 4
_LEAVE_VERSION = 5
_CONSUMER_VERSION = 1
_SESSION_MS = 60_000
_PROTOCOL = "range"
_TYPE = "consumer"
_PATIENCE_S = 60.0


class Line(RawClient):
    """A connection whose answers may be taken later, in the order of the requests."""

    def send(self, api: AnyApi, version: int, message: object) -> None:
        self.sock.sendall(joined(encode_request(api, version, 0, "bench", message)))

    def take(self, api: AnyApi, version: int) -> Any:  # noqa: ANN401 -- by API
        return decode_response(api, version, self.receive())[1]


def coordinator_of(client: RawClient, group: str) -> tuple[int, str]:
    """Id and address of the broker that coordinates a group, once there is one."""
    request = k10_find_coordinator.FindCoordinatorRequest(coordinator_keys=[group])
    found: list[Any] = []

    def attempt() -> int:
        (said,) = client.ask(k10_find_coordinator.API, _FIND_VERSION, request).coordinators
        found.append(said)
        return int(said.error_code)

    client.until_done(attempt)
    return int(found[-1].node_id), f"{found[-1].host}:{found[-1].port}"


def commit_of(
    group: str, topic: str, partition: int, offset: int
) -> k08_offset_commit.OffsetCommitRequest:
    """By nobody who is in the group."""
    row = k08_offset_commit.OffsetCommitRequestPartition(
        partition_index=partition, committed_offset=offset, committed_metadata=""
    )
    topics = [k08_offset_commit.OffsetCommitRequestTopic(name=topic, partitions=[row])]
    return k08_offset_commit.OffsetCommitRequest(group_id=group, member_id="", topics=topics)


def commit_until_done(line: RawClient, group: str, topic: str, offset: int) -> None:
    """The first one of a group: its coordinator may still read its log."""
    request = commit_of(group, topic, 0, offset)

    def attempt() -> int:
        said = line.ask(k08_offset_commit.API, COMMIT_VERSION, request)
        return int(said.topics[0].partitions[0].error_code)

    line.until_done(attempt)


class Classic:
    """One member of the classic protocol, on a connection of its own."""

    def __init__(self, address: str, group: str, topic: str) -> None:
        self.line = Line(address)
        self.member_id = ""
        self.generation = -1
        self.leads = False
        self.others: list[str] = []
        """All members, where it leads."""
        self._group = group
        name = topic.encode()
        self._wants = b"\0\0\0\0\0\1" + len(name).to_bytes(2, "big") + name + b"\xff" * 4

    def send_join(self) -> None:
        protocol = k11_join_group.JoinGroupRequestProtocol(name=_PROTOCOL, metadata=self._wants)
        request = k11_join_group.JoinGroupRequest(
            group_id=self._group,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_SESSION_MS,
            member_id=self.member_id,
            protocol_type=_TYPE,
            protocols=[protocol],
        )
        self.line.send(k11_join_group.API, _JOIN_VERSION, request)

    def take_join(self) -> None:
        said = self.line.take(k11_join_group.API, _JOIN_VERSION)
        assert said.error_code in {0, ErrorCode.MEMBER_ID_REQUIRED}, said.error_code
        self.member_id, self.generation = said.member_id, said.generation_id
        self.leads = said.leader == said.member_id
        self.others = [one.member_id for one in said.members]

    def send_sync(self, share: bytes) -> None:
        """The leader gives everybody a share of that size."""
        assigned = [
            k14_sync_group.SyncGroupRequestAssignment(member_id=name, assignment=share)
            for name in (self.others if self.leads else ())
        ]
        request = k14_sync_group.SyncGroupRequest(
            group_id=self._group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type=_TYPE,
            protocol_name=_PROTOCOL,
            assignments=assigned,
        )
        self.line.send(k14_sync_group.API, _SYNC_VERSION, request)

    def take_sync(self) -> bytes:
        said = self.line.take(k14_sync_group.API, _SYNC_VERSION)
        assert not said.error_code, said.error_code
        return bytes(said.assignment)

    def beat(self) -> int:
        request = k12_heartbeat.HeartbeatRequest(
            group_id=self._group, generation_id=self.generation, member_id=self.member_id
        )
        return int(self.line.ask(k12_heartbeat.API, _BEAT_VERSION, request).error_code)

    def leave(self) -> None:
        one = k13_leave_group.MemberIdentity(member_id=self.member_id)
        request = k13_leave_group.LeaveGroupRequest(group_id=self._group, members=[one])
        said = self.line.ask(k13_leave_group.API, _LEAVE_VERSION, request)
        assert not said.error_code, said.error_code
        assert not said.members[0].error_code, said.members[0].error_code


def share_of(partitions: Sequence[int], topic: str) -> bytes:
    """An assignment as consumers embed it."""
    name = topic.encode()
    numbers = b"".join(one.to_bytes(4, "big") for one in partitions)
    head = b"\0\0\0\0\0\1" + len(name).to_bytes(2, "big") + name
    return head + len(partitions).to_bytes(4, "big") + numbers + b"\xff" * 4


def join_classic(members: Sequence[Classic]) -> None:
    """All into one generation; each that has no id yet is given one first."""
    fresh = [one for one in members if not one.member_id]
    for step in (fresh, members):
        for one in step:
            one.send_join()
        for one in step:
            one.take_join()


def sync_classic(members: Sequence[Classic], share: bytes) -> None:
    """Everybody gets the leader's share."""
    for one in sorted(members, key=lambda one: not one.leads):
        one.send_sync(share)
    assert all(one.take_sync() == share for one in members)


def form_classic(members: Sequence[Classic], share: bytes) -> None:
    """One stable generation of all of them. The first one of a group gathers who comes in time."""
    join_classic(members)
    if len({one.generation for one in members}) > 1:
        raise SystemExit("not all members came while the group gathered")
    sync_classic(members, share)


class Modern:
    """One member of the consumer protocol, on a connection of its own.

    It gives up at once what it shall not have, and says so with its next heartbeat.
    """

    def __init__(self, address: str, group: str, topic: str) -> None:
        self.line = Line(address)
        self.member_id = str(uuid4())
        self.epoch = 0
        self.owned: dict[Uuid, list[int]] = {}
        self._group = group
        self._topic = topic
        self._said: dict[Uuid, list[int]] | None = None
        """What it last told that it owns."""

    def send(self) -> None:
        is_first = self.epoch == 0
        tells = is_first or self._said != self.owned
        owned = [
            k68_consumer_group_heartbeat.TopicPartitions(topic_id=topic, partitions=partitions)
            for topic, partitions in self.owned.items()
        ]
        request = k68_consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(
            group_id=self._group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=_SESSION_MS if is_first else -1,
            subscribed_topic_names=[self._topic] if is_first else None,
            topic_partitions=owned if tells else None,
        )
        self._said = dict(self.owned)
        self.line.send(k68_consumer_group_heartbeat.API, _CONSUMER_VERSION, request)

    def take(self) -> None:
        said = self.line.take(k68_consumer_group_heartbeat.API, _CONSUMER_VERSION)
        assert not said.error_code, (said.error_code, said.error_message)
        self.epoch = said.member_epoch
        if said.assignment is not None:
            rows = said.assignment.topic_partitions
            self.owned = {row.topic_id: list(row.partitions) for row in rows}

    def beat(self) -> None:
        self.send()
        self.take()

    def leave(self) -> None:
        self.epoch = -1
        self.send()
        self.take()

    @property
    def owns(self) -> list[int]:
        return [one for partitions in self.owned.values() for one in partitions]


def beat_all(members: Sequence[Modern]) -> None:
    for one in members:
        one.send()
    for one in members:
        one.take()


def settle_modern(members: Sequence[Modern], partitions: int) -> int:
    """Heartbeats of all, round after round, until all is shared evenly; how many rounds."""
    deadline = time.monotonic() + _PATIENCE_S
    rounds = 0
    while not rounds or not _is_settled(members, partitions):
        if time.monotonic() > deadline:
            raise SystemExit(f"not settled within {_PATIENCE_S} s")
        beat_all(members)
        rounds += 1
    return rounds


def _is_settled(members: Sequence[Modern], partitions: int) -> bool:
    few, rest = divmod(partitions, len(members))
    owned = sorted(one for member in members for one in member.owns)
    is_even = all(few <= len(member.owns) <= few + bool(rest) for member in members)
    is_one_epoch = len({member.epoch for member in members}) == 1
    return is_even and is_one_epoch and owned == list(range(partitions))
