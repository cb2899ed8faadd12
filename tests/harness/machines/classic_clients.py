"""Members of classic groups, as a client speaks for them: a request at a time, a few words each."""

import struct
from typing import Any

from harness.machines.group_bench import Asked, GroupBench
from tidelog.wire.messages import (
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
    k15_describe_groups,
    k16_list_groups,
)

SESSION_MS = 10_000
REBALANCE_MS = 30_000


def subscription(*topics: str, owned: dict[str, list[int]] | None = None) -> bytes:
    """As consumers embed it: a version, the topics, no data of the user's; from version 1 on what
    the member has."""
    said = b"".join(map(_text, topics))
    said = len(topics).to_bytes(4, "big") + said + b"\xff" * 4
    if owned is None:
        return b"\x00\x00" + said
    rows = b"".join(
        _text(topic) + struct.pack(f">i{len(has)}i", len(has), *has) for topic, has in owned.items()
    )
    return b"\x00\x01" + said + len(owned).to_bytes(4, "big") + rows


def _text(text: str) -> bytes:
    return len(text).to_bytes(2, "big") + text.encode()


class Client:
    """One member of one group. `asked` is its JoinGroup or SyncGroup, which may wait."""

    def __init__(
        self,
        bench: GroupBench,
        group: str = "g",
        *,
        protocols: dict[str, bytes] | None = None,
        instance: str | None = None,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        protocol_type: str = "consumer",
    ) -> None:
        self.bench = bench
        self.group = group
        self.protocols = protocols or {"range": subscription("t")}
        self.instance = instance
        self.session_ms = session_ms
        self.rebalance_ms = rebalance_ms
        self.protocol_type = protocol_type
        self.member_id = ""
        self.generation = -1
        self.leads = False
        self.members: list[str] = []

    def start_joining(self, version: int = 9, reason: str | None = None) -> Asked:
        request = k11_join_group.JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=self.session_ms,
            rebalance_timeout_ms=self.rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocols=[
                k11_join_group.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in self.protocols.items()
            ],
            reason=reason,
        )
        return self.bench.start_asking(k11_join_group.API, version, request)

    def take(self, answer: Any) -> int:
        """Remember what a JoinGroup was answered; its code."""
        self.member_id = answer.member_id
        if not answer.error_code:
            self.generation = answer.generation_id
            self.leads = answer.leader == answer.member_id
            self.members = [one.member_id for one in answer.members]
        return int(answer.error_code)

    def get_id(self) -> None:
        """Learn the id that the coordinator gives to members it does not know."""
        assert self.take(self.start_joining().answer()) == 79

    def start_syncing(self, assignments: dict[str, bytes] | None = None) -> Asked:
        request = k14_sync_group.SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
            protocol_type=self.protocol_type,
            protocol_name=next(iter(self.protocols)),
            assignments=[
                k14_sync_group.SyncGroupRequestAssignment(member_id=name, assignment=assigned)
                for name, assigned in (assignments or {}).items()
            ],
        )
        return self.bench.start_asking(k14_sync_group.API, 5, request)

    def beat(self) -> int:
        request = k12_heartbeat.HeartbeatRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance,
        )
        return int(self.bench.ask(k12_heartbeat.API, 4, request).error_code)

    def leave(self) -> int:
        one = k13_leave_group.MemberIdentity(
            member_id=self.member_id, group_instance_id=self.instance, reason="enough"
        )
        request = k13_leave_group.LeaveGroupRequest(group_id=self.group, members=[one])
        answer = self.bench.ask(k13_leave_group.API, 5, request)
        return int(answer.error_code or answer.members[0].error_code)


def form(bench: GroupBench, *clients: Client) -> dict[str, bytes]:
    """Have them join, or join again, and share what there is; who was assigned what."""
    join_all(bench, *clients)
    (leader,) = [client for client in clients if client.leads]
    assert sorted(leader.members) == sorted(client.member_id for client in clients)
    parts = {client.member_id: b"part of " + client.member_id.encode() for client in clients}
    syncing = {
        client.member_id: client.start_syncing(parts if client.leads else None)
        for client in clients
    }
    answers = {name: asked.answer() for name, asked in syncing.items()}
    assert not any(answer.error_code for answer in answers.values())
    return {name: answer.assignment for name, answer in answers.items()}


def join_all(bench: GroupBench, *clients: Client) -> None:
    """One generation of them."""
    for client in clients:
        if not client.member_id and client.instance is None:
            client.get_id()
    joining = [client.start_joining() for client in clients]
    bench.later(150)
    for client, asked in zip(clients, joining, strict=True):
        assert client.take(asked.answer()) == 0


def described(bench: GroupBench, group: str = "g", version: int = 6) -> Any:
    request = k15_describe_groups.DescribeGroupsRequest(groups=[group])
    return bench.ask(k15_describe_groups.API, version, request).groups[0]


def listed(bench: GroupBench, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> Any:
    """Name, protocol type, state and type of each group."""
    request = k16_list_groups.ListGroupsRequest(
        states_filter=list(states), types_filter=list(types)
    )
    rows = bench.ask(k16_list_groups.API, 5, request).groups
    return sorted(
        (row.group_id, row.protocol_type, row.group_state, row.group_type) for row in rows
    )


def history(bench: GroupBench, group: str = "g") -> Any:
    """The group's own story."""
    shards: list[Any] = [
        one.host._shard for one in bench.broker.groups._hosted.values() if one.host
    ]
    (found,) = [shard._groups[group] for shard in shards if group in shard._groups]
    return found.history
