"""What members and tools ask of a group coordinator: of us and of Apache Kafka alike.

Each function is a conversation on a cluster, of names of its own; what it returns must be the same.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from harness.kafka.group_talk import (
    NOWHERE,
    ClassicTalker,
    ModernTalker,
    Talk,
    kind_of,
    known_topic,
    members_of,
)
from harness.processes.cluster import until
from tidelog.kernel.ids import ZERO_UUID
from tidelog.wire.messages import (
    k13_leave_group,
    k15_describe_groups,
    k42_delete_groups,
    k47_offset_delete,
)


def offsets_by_id(talk: Talk) -> Mapping[str, object]:
    """Known topics, unknown ones, zeros, partitions that are not there; a topic that is gone."""
    talk.make_topic("ids", 2)
    talk.make_topic("ids-gone", 1)
    talk.know_group("by-id")
    ids, gone = talk.ids["ids"], talk.ids["ids-gone"]
    said: dict[str, object] = {}
    said["commit"] = talk.commit("by-id", {ids: {0: 5, 1: 6, 7: 1}, gone: {0: 3}})
    said["commit to nowhere"] = talk.commit("by-id", {NOWHERE: {0: 5}, ids: {1: 7}})
    said["commit to zeros"] = talk.commit("by-id", {ZERO_UUID: {0: 5}})
    said["commit as a member"] = talk.commit("by-id", {ids: {0: 9}, NOWHERE: {0: 1}}, generation=3)
    said["fetch"] = talk.fetch("by-id", {ids: [0, 1, 7], NOWHERE: [0, 1], ZERO_UUID: [0]})
    said["fetch all"] = talk.fetch("by-id", None)
    said["fetch of nobody"] = talk.fetch("nobody", {ids: [0], NOWHERE: [0]})
    said["fetch all of nobody"] = talk.fetch("nobody", None)
    talk.drop_topic("ids-gone")

    def is_forgotten() -> bool:
        return "ids-gone" not in str(talk.fetch("by-id", None))

    until(is_forgotten, "the offsets of a topic that is gone are forgotten", 30)
    said["fetch of one that is gone"] = talk.fetch("by-id", {gone: [0]})
    return said


def started(talk: Talk, group: str, topic: str, partitions: int) -> ClassicTalker:
    """One member of the classic protocol, with everything."""
    known_topic(talk, topic, partitions)
    talk.know_group(group)
    one = ClassicTalker(talk, group, topic)
    one.join()
    assert one.join()
    share = {topic: list(range(partitions))}
    one.sync({one.member_id: share})
    return one


def upgrade_and_downgrade(talk: Talk) -> Mapping[str, object]:
    """A member of the consumer protocol comes to a classic group, and goes again."""
    said: dict[str, object] = {}
    one = started(talk, "up", "up", 4)
    said["alone"] = one.beat(), one.generation, kind_of(talk, "up")
    said["commit"] = one.commit(one.generation, "up", 5)
    new = ModernTalker(talk, "up", "new", "up")
    said["unknown epoch"] = new.beat(3)
    said["comes"] = new.beat()
    said["changed"] = kind_of(talk, "up"), members_of(talk, "up")
    said["is asked to join"] = one.beat(), one.beat(generation=7)
    said["commits meanwhile"] = one.commit(one.generation, "up", 6), one.commit(7, "up", 6)
    said["of another kind"] = (
        one.join(protocol="other"),
        one.join(kind="connect"),
        ClassicTalker(talk, "up", "up").join(session_ms=1),
    )
    said["joins"] = one.join()
    said["syncs"] = one.sync(), one.sync(protocol="other"), one.beat()
    until(lambda: bool(new.beat()) and new.has() == 2, "the new one has its half", 30)
    said["both"] = members_of(talk, "up"), one.beat()
    said["commits of both"] = (
        one.commit(one.generation, "up", 7),
        talk.commit_as("up", new.epoch, "up", 7, member_id="new"),
        talk.commit_as("up", new.epoch + 1, "up", 7, member_id="new"),
        talk.commit_as("up", 1, "up", 7, member_id="nobody"),
    )
    said["goes"] = new.beat(-1)
    said["changed back"] = kind_of(talk, "up"), members_of(talk, "up")[0]
    said["is asked again"] = one.beat()
    said["joins again"] = one.join()
    said["syncs again"] = one.sync({one.member_id: {"up": [0, 1, 2, 3]}}), one.beat()
    said["offsets"] = talk.fetch("up", {talk.ids["up"]: [0]})
    said["leaves"] = one.leave(), kind_of(talk, "up")
    return said


def leave_as(talk: Talk, group: str, member_id: str) -> object:
    one = k13_leave_group.MemberIdentity(member_id=member_id, group_instance_id=None, reason="x")
    request = k13_leave_group.LeaveGroupRequest(group_id=group, members=[one])
    answer = talk.client.ask(k13_leave_group.API, 5, request)
    return answer.error_code, [row.error_code for row in answer.members]


def classic_joins_the_new(talk: Talk) -> Mapping[str, object]:
    """A member of the classic protocol comes to a group of the consumer protocol, and goes."""
    said: dict[str, object] = {}
    known_topic(talk, "down", 4)
    talk.know_group("down")
    new = ModernTalker(talk, "down", "new", "down")
    until(lambda: bool(new.beat()) and new.has() == 4, "the first one has everything", 30)
    talk.first = new.epoch
    one = ClassicTalker(talk, "down", "down")
    said["asks"] = one.join()
    said["joins"] = one.join()
    said["syncs"] = one.sync(), one.beat()
    said["members"] = members_of(talk, "down")
    until(lambda: bool(new.beat()) and new.has() == 2, "the first one has half of it", 30)
    new.beat()
    said["may go on"] = one.beat(), one.join(), one.sync(), one.beat()
    static = ClassicTalker(talk, "down", "down", instance="i")
    said["static"] = static.join(), static.sync()
    again = ClassicTalker(talk, "down", "down", instance="i")
    said["static again"] = again.join(), again.sync(), static.beat(), static.leave()
    said["leaves"] = one.leave(), one.beat(), one.sync()
    said["is taken out"] = leave_as(talk, "down", "new"), new.beat()[0], kind_of(talk, "down")
    return said


# -- the classic protocol -----------------------------------------------------------------------


def one_classic_member(talk: Talk) -> Mapping[str, object]:
    """What it may say, and what not, from before it comes until after it is gone."""
    said: dict[str, object] = {}
    known_topic(talk, "plain", 2)
    talk.know_group("plain")
    nobody = ClassicTalker(talk, "plain", "plain")
    nobody.member_id, nobody.generation = "nobody", 1
    said["nobody"] = nobody.join(), nobody.sync(), nobody.beat(), nobody.leave()
    said["nobody commits"] = nobody.commit(1, "plain", 1), nobody.commit(-1, "plain", 1)
    said["unknown"] = described(talk, "plain"), deleted(talk, "plain"), talk.fetch("plain", None)
    one = ClassicTalker(talk, "plain", "plain")
    said["refused"] = (
        one.join(session_ms=1),
        one.join(kind=""),
        ClassicTalker(talk, "", "plain").join(),
    )
    said["asks"] = one.join()
    said["not joined yet"] = one.beat(1), described(talk, "plain")[:2]
    said["joins"] = one.join()
    said["before it syncs"] = one.beat(), one.commit(one.generation, "plain", 1)
    said["wrong"] = one.sync(protocol="other"), one.beat(7), one.commit(7, "plain", 1)
    said["syncs"] = one.sync({one.member_id: {"plain": [0, 1]}}), one.sync()
    said["stable"] = described(talk, "plain"), one.beat()
    said["commits"] = one.commit(one.generation, "plain", 2), one.commit(7, "plain", 3)
    said["others commit"] = nobody.commit(1, "plain", 9), talk.commit_as("plain", -1, "plain", 9)
    said["is not deleted"] = deleted(talk, "plain"), forgotten(talk, "plain", "plain")
    said["another kind"] = ClassicTalker(talk, "plain", "plain").join(kind="connect")
    said["joins again"] = one.join(), one.beat(), one.sync({one.member_id: {"plain": [0]}})
    said["leaves"] = nobody.leave(), one.leave(), one.leave()
    said["empty"] = described(talk, "plain"), talk.commit_as("plain", -1, "plain", 4)
    said["offsets"] = talk.fetch("plain", {talk.ids["plain"]: [0, 1]})
    said["is forgotten"] = forgotten(talk, "plain", "plain"), forgotten(talk, "nowhere", "plain")
    said["is deleted"] = deleted(talk, "plain"), deleted(talk, "plain"), described(talk, "plain")
    return said


def members_of_the_consumer_protocol(talk: Talk) -> Mapping[str, object]:
    """Two of them, with wrong epochs, late commits, and the group's end."""
    said: dict[str, object] = {}
    known_topic(talk, "modern", 4)
    talk.know_group("modern")
    one, two = (ModernTalker(talk, "modern", name, "modern") for name in ("one", "two"))
    said["unknown"] = one.beat(3), one.beat(-1), members_of(talk, "modern")
    until(lambda: bool(one.beat()) and one.has() == 4, "the first one has everything", 30)
    talk.first = first = one.epoch
    said["commits"] = [
        talk.commit_as("modern", epoch, "modern", 1, member_id=name)
        for epoch, name in ((first, "one"), (first + 1, "one"), (first, "nobody"), (-1, ""))
    ]
    said["old clients commit"] = talk.commit_as(
        "modern", first, "modern", 1, version=8, member_id="one"
    )
    said["fetches"] = [
        talk.fetch_as("modern", "modern", name, epoch)
        for name, epoch in (("one", first), ("one", first + 1), ("nobody", first), (None, -1))
    ]
    said["joins"] = two.beat(), members_of(talk, "modern")
    said["wrong epochs"] = one.beat(first + 7)[0], two.beat(first + 7)[0]
    said["gives up"] = one.beat(), one.beat()
    said["takes"] = two.beat(), members_of(talk, "modern")
    kept, gone = (min(found.owned[talk.ids["modern"]]) for found in (one, two))
    said["late commits"] = [
        talk.commit_as("modern", epoch, "modern", 5, partition=at, member_id="one")
        for epoch, at in ((first, kept), (first, gone), (first - 1, kept), (one.epoch, kept))
    ]
    said["is classic"] = described(talk, "modern")[0], deleted(talk, "modern")
    said["subscribed"] = forgotten(talk, "modern", "modern")
    said["leaves"] = two.beat(-1), two.beat(-1), one.beat(), members_of(talk, "modern")
    said["all leave"] = one.beat(-1), members_of(talk, "modern")[:2], kind_of(talk, "modern")
    said["nobody commits"] = talk.commit_as("modern", -1, "modern", 6)
    said["is deleted"] = deleted(talk, "modern"), members_of(talk, "modern")
    return said


def described(talk: Talk, group: str) -> Any:
    """As DescribeGroups shows it."""
    request = k15_describe_groups.DescribeGroupsRequest(groups=[group])
    (found,) = talk.client.ask(k15_describe_groups.API, 6, request).groups
    members = [(len(one.member_metadata), len(one.member_assignment)) for one in found.members]
    facts = (found.group_state, found.protocol_type, found.protocol_data, members)
    return found.error_code, *facts


def deleted(talk: Talk, group: str) -> int:
    request = k42_delete_groups.DeleteGroupsRequest(groups_names=[group])
    return int(talk.client.ask(k42_delete_groups.API, 2, request).results[0].error_code)


def forgotten(talk: Talk, group: str, topic: str) -> object:
    """By OffsetDelete, of partition 1."""
    partition = k47_offset_delete.OffsetDeleteRequestPartition(partition_index=1)
    one = k47_offset_delete.OffsetDeleteRequestTopic(name=topic, partitions=[partition])
    request = k47_offset_delete.OffsetDeleteRequest(group_id=group, topics=[one])
    answer = talk.client.ask(k47_offset_delete.API, 0, request)
    rows = [row.error_code for topic in answer.topics for row in topic.partitions]
    return answer.error_code, rows


CONVERSATIONS: Final[Mapping[str, Callable[[Talk], Mapping[str, Any]]]] = {
    "offsets by id": offsets_by_id,
    "one classic member": one_classic_member,
    "members of the consumer protocol": members_of_the_consumer_protocol,
    "upgrade and downgrade": upgrade_and_downgrade,
    "classic joins the new": classic_joins_the_new,
}
