"""Plans about groups, driven by hand: who is asked, what is asked again, and what answers mean."""

from typing import Any

import pytest

from harness.machines.plans import Reply, by_api, drive, metadata, view_of
from tidelog.clients.admin.consumer_protocol import assigned_partitions
from tidelog.clients.admin.group_offsets import (
    commit_offsets,
    committed_offsets,
    stable_offset,
    unstable_offsets,
)
from tidelog.clients.admin.groups import (
    DescribedGroup,
    delete_group,
    describe_group,
    list_groups,
)
from tidelog.clients.asking import Call, Cause, Pause
from tidelog.clients.failures import UnsupportedError
from tidelog.kernel.ids import Partition
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages import k08_offset_commit as k08
from tidelog.wire.messages import k09_offset_fetch as k09
from tidelog.wire.messages import k10_find_coordinator as k10
from tidelog.wire.messages import k15_describe_groups as k15
from tidelog.wire.messages import k16_list_groups as k16
from tidelog.wire.messages import k42_delete_groups as k42
from tidelog.wire.messages import k69_consumer_group_describe as k69

AT_ZERO = k10.FindCoordinatorResponse(coordinators=[k10.Coordinator(key="g", node_id=0)])
ASSIGNMENT = bytes.fromhex("0001 00000001 0001 74 00000002 00000000 00000003 ffffffff")
"""t: 0 and 3, and no user data behind."""


def listed(name: str, code: int = 0) -> k16.ListGroupsResponse:
    row = k16.ListedGroup(
        group_id=name, protocol_type="consumer", group_state="Stable", group_type="Classic"
    )
    return k16.ListGroupsResponse(error_code=code, groups=[row])


def modern(code: int = 0) -> k69.ConsumerGroupDescribeResponse:
    part = k69.TopicPartitions(topic_name="t", partitions=[1])
    member = k69.Member(
        member_id="m",
        member_epoch=3,
        assignment=k69.Assignment(topic_partitions=[part]),
        target_assignment=k69.Assignment(topic_partitions=[part]),
    )
    row = k69.DescribedGroup(
        error_code=code,
        group_state="Stable",
        group_epoch=3,
        assignment_epoch=3,
        assignor_name="uniform",
        members=[member],
    )
    return k69.ConsumerGroupDescribeResponse(groups=[row])


def classic(code: int = 0, state: str = "Stable") -> k15.DescribeGroupsResponse:
    member = k15.DescribedGroupMember(member_id="m", member_assignment=ASSIGNMENT)
    row = k15.DescribedGroup(
        error_code=code,
        group_state=state,
        protocol_type="consumer",
        protocol_data="range",
        members=[member],
    )
    return k15.DescribeGroupsResponse(groups=[row])


def described(**answers: Any) -> DescribedGroup | None:
    return drive(describe_group(view_of(0), "g"), by_api(FindCoordinator=AT_ZERO, **answers))


def test_each_broker_tells_its_groups() -> None:
    pauses: list[Pause] = []
    loading = listed("x", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    answer = by_api(
        Metadata=metadata(brokers=(0, 1)),
        ListGroups=[listed("b"), loading, listed("b"), listed("a")],
    )
    found = drive(list_groups(view_of(0, 1)), answer, pauses)
    assert [(one.name, one.kind) for one in found] == [("a", "classic"), ("b", "classic")]
    assert [one.because for one in pauses] == ["broker 1: COORDINATOR_LOAD_IN_PROGRESS"]


def test_a_broker_that_may_not_list_ends_it() -> None:
    refused = listed("x", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    answer = by_api(Metadata=metadata(brokers=(0,)), ListGroups=refused)
    with pytest.raises(Rejected):
        drive(list_groups(view_of(0)), answer)


def test_a_group_of_the_consumer_protocol_has_epochs_and_targets() -> None:
    found = described(ConsumerGroupDescribe=modern())
    assert found is not None
    assert (found.kind, found.assignor, found.epoch, found.coordinator) == (
        "consumer",
        "uniform",
        3,
        0,
    )
    assert found.members[0].target == {"t": [1]}
    assert found.owners() == {("t", 1): found.members[0]}


@pytest.mark.parametrize(
    "no", [modern(ErrorCode.GROUP_ID_NOT_FOUND), Cause.UNSUPPORTED], ids=["not-one", "old-cluster"]
)
def test_another_group_is_asked_about_as_a_classic_one(no: object) -> None:
    found = described(ConsumerGroupDescribe=no, DescribeGroups=classic())
    assert found is not None
    assert (found.kind, found.assignor, found.epoch) == ("classic", "range", None)
    assert found.members[0].assigned == {"t": [0, 3]}


@pytest.mark.parametrize("answer", [classic(ErrorCode.GROUP_ID_NOT_FOUND), classic(state="Dead")])
def test_a_group_that_nobody_knows_is_none(answer: object) -> None:
    no = modern(ErrorCode.GROUP_ID_NOT_FOUND)
    assert described(ConsumerGroupDescribe=no, DescribeGroups=answer) is None


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_group_that_may_not_be_seen_is_refused(protocol: str) -> None:
    no = ErrorCode.GROUP_AUTHORIZATION_FAILED
    first = modern(no) if protocol == "consumer" else modern(ErrorCode.GROUP_ID_NOT_FOUND)
    with pytest.raises(Rejected):
        described(ConsumerGroupDescribe=first, DescribeGroups=classic(no))


def test_a_coordinator_that_moved_is_looked_for_again() -> None:
    pauses: list[Pause] = []
    moved, gone = modern(ErrorCode.NOT_COORDINATOR), Cause.UNREACHABLE
    answer = by_api(
        FindCoordinator=AT_ZERO,
        Metadata=metadata(brokers=(0,)),
        ConsumerGroupDescribe=[moved, gone, modern()],
    )
    assert drive(describe_group(view_of(0), "g"), answer, pauses) is not None
    assert [one.because for one in pauses] == ["group g: NOT_COORDINATOR", "unreachable"]


def test_what_a_classic_member_says_of_its_assignment_is_read_as_far_as_it_can_be() -> None:
    assert assigned_partitions(ASSIGNMENT) == {"t": [0, 3]}
    assert assigned_partitions(b"") == {}
    assert assigned_partitions(ASSIGNMENT[:9]) == {}


def test_deleting_tells_the_code() -> None:
    for code in (ErrorCode.NONE, ErrorCode.NON_EMPTY_GROUP):
        row = k42.DeletableGroupResult(group_id="g", error_code=code)
        answer = k42.DeleteGroupsResponse(results=[row])
        made = by_api(FindCoordinator=AT_ZERO, DeleteGroups=answer)
        assert drive(delete_group(view_of(0), "g"), made) is code


def fetched(
    code: int = 0, row_code: int = 0, offsets: tuple[int, ...] = (7, -1)
) -> k09.OffsetFetchResponse:
    rows = [
        k09.OffsetFetchResponsePartitions(
            partition_index=number, committed_offset=offset, error_code=row_code
        )
        for number, offset in enumerate(offsets)
    ]
    topic = k09.OffsetFetchResponseTopics(name="t", partitions=rows)
    group = k09.OffsetFetchResponseGroup(group_id="g", topics=[topic], error_code=code)
    return k09.OffsetFetchResponse(groups=[group])


def test_committed_offsets_are_those_that_there_are() -> None:
    answer = by_api(FindCoordinator=AT_ZERO, OffsetFetch=fetched())
    found = drive(committed_offsets(view_of(0), "g"), answer)
    assert {key: one.offset for key, one in found.items()} == {("t", 0): 7}


def test_committed_offsets_of_an_old_cluster_stand_at_the_top() -> None:
    row = k09.OffsetFetchResponsePartition(partition_index=3, committed_offset=5)
    topic = k09.OffsetFetchResponseTopic(name="t", partitions=[row])
    answer = by_api(FindCoordinator=AT_ZERO, OffsetFetch=k09.OffsetFetchResponse(topics=[topic]))
    found = drive(committed_offsets(view_of(0), "g"), answer)
    assert {key: one.offset for key, one in found.items()} == {("t", 3): 5}


@pytest.mark.parametrize(
    "answer",
    [
        fetched(ErrorCode.GROUP_AUTHORIZATION_FAILED),
        fetched(row_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_offsets_that_may_not_be_seen_are_refused(answer: object) -> None:
    with pytest.raises(Rejected):
        drive(
            committed_offsets(view_of(0), "g"), by_api(FindCoordinator=AT_ZERO, OffsetFetch=answer)
        )


@pytest.mark.parametrize("old", [False, True], ids=["newest", "old-cluster"])
def test_offsets_that_an_open_transaction_has_committed_are_unstable(*, old: bool) -> None:
    asked: list[k09.OffsetFetchRequest] = []
    codes = {0: ErrorCode.NONE, 1: ErrorCode.UNSTABLE_OFFSET_COMMIT}

    def answer(call: Call) -> Reply:
        if call.ask.api.name == "FindCoordinator":
            return AT_ZERO
        asked.append(call.ask.message)
        if old:
            rows = [
                k09.OffsetFetchResponsePartition(partition_index=at, error_code=code)
                for at, code in codes.items()
            ]
            topic = k09.OffsetFetchResponseTopic(name="t", partitions=rows)
            return k09.OffsetFetchResponse(topics=[topic])
        newest = [
            k09.OffsetFetchResponsePartitions(partition_index=at, error_code=code)
            for at, code in codes.items()
        ]
        topics = [k09.OffsetFetchResponseTopics(name="t", partitions=newest)]
        return k09.OffsetFetchResponse(groups=[k09.OffsetFetchResponseGroup(topics=topics)])

    places = [("t", Partition(0)), ("t", Partition(1))]
    assert drive(unstable_offsets(view_of(0), "g", places), answer) == {("t", 1)}
    (request,) = asked
    assert request.require_stable
    assert request.topics is not None
    assert [(one.name, one.partition_indexes) for one in request.topics] == [("t", [0, 1])]
    (group,) = request.groups
    assert group.topics is not None
    assert [(one.name, one.partition_indexes) for one in group.topics] == [("t", [0, 1])]


def test_of_no_partition_nobody_is_asked() -> None:
    assert drive(unstable_offsets(view_of(0), "g", []), by_api()) == set()


def test_unstable_offsets_that_may_not_be_seen_are_refused() -> None:
    refused = fetched(code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    with pytest.raises(Rejected):
        drive(
            unstable_offsets(view_of(0), "g", [("t", Partition(0))]),
            by_api(FindCoordinator=AT_ZERO, OffsetFetch=refused),
        )


def test_an_offset_is_stable_once_no_transaction_can_change_it() -> None:
    unstable, gone = ErrorCode.UNSTABLE_OFFSET_COMMIT, ErrorCode.NOT_COORDINATOR
    answer = by_api(
        FindCoordinator=AT_ZERO,
        Metadata=metadata(brokers=(0,)),
        OffsetFetch=[
            fetched(row_code=unstable, offsets=(-1,)),
            fetched(code=gone),
            fetched(offsets=(5,)),
        ],
    )
    pauses: list[Pause] = []
    found = drive(stable_offset(view_of(0), "g", ("t", Partition(0))), answer, pauses)
    assert found is not None
    assert found.offset == 5
    assert [one.because.split()[-1] for one in pauses] == [unstable.name, gone.name]


def test_an_offset_that_is_not_stable_after_so_many_tries_is_refused() -> None:
    unstable = fetched(row_code=ErrorCode.UNSTABLE_OFFSET_COMMIT, offsets=(-1,))
    answer = by_api(FindCoordinator=AT_ZERO, OffsetFetch=[unstable] * 3)
    pauses: list[Pause] = []
    with pytest.raises(Rejected, match="UNSTABLE_OFFSET_COMMIT"):
        drive(stable_offset(view_of(0), "g", ("t", Partition(0)), tries=3), answer, pauses)
    assert len(pauses) == 2


def test_of_what_was_never_committed_there_is_no_stable_offset() -> None:
    answer = by_api(FindCoordinator=AT_ZERO, OffsetFetch=fetched(offsets=(-1,)))
    assert drive(stable_offset(view_of(0), "g", ("t", Partition(0))), answer) is None


def committed(*codes: int) -> k08.OffsetCommitResponse:
    rows = [
        k08.OffsetCommitResponsePartition(partition_index=number, error_code=code)
        for number, code in enumerate(codes)
    ]
    return k08.OffsetCommitResponse(
        topics=[k08.OffsetCommitResponseTopic(name="t", partitions=rows)]
    )


def test_a_commit_is_made_again_where_the_coordinator_loads_and_told_for_each_partition() -> None:
    answer = by_api(
        FindCoordinator=AT_ZERO,
        Metadata=metadata(brokers=(0,)),
        OffsetCommit=[committed(0, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), committed(0, 25)],
    )
    offsets = {("t", Partition(0)): 1, ("t", Partition(1)): 2}
    assert drive(commit_offsets(view_of(0), "g", offsets), answer) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 1): ErrorCode.UNKNOWN_MEMBER_ID,
    }


def test_a_cluster_without_the_api_is_told() -> None:
    with pytest.raises(UnsupportedError):
        drive(
            committed_offsets(view_of(0), "g"),
            by_api(FindCoordinator=AT_ZERO, OffsetFetch=Cause.UNSUPPORTED),
        )
