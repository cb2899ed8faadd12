"""Plans driven by hand: what they ask whom, when they ask again, and when they give up."""

import pytest

from harness.machines.plans import Reply, by_api, drive, metadata, replies, view_of
from tidelog.clients.admin.delete_records import HIGH_WATERMARK, delete_records
from tidelog.clients.admin.describe import eligible_replicas, replica_sizes
from tidelog.clients.admin.elections import elect_leaders
from tidelog.clients.admin.offsets import END, START, list_offsets, peek_offsets
from tidelog.clients.admin.topics import (
    NewTopic,
    create_topics,
    delete_topics,
    wait_for_topics,
    wait_without_topics,
)
from tidelog.clients.asking import Call, Cause, Pause, Somewhere
from tidelog.clients.cluster_view import ClusterView, refresh, told_by
from tidelog.clients.failures import TimedOutError, UnreachableError, UnsupportedError
from tidelog.clients.settings import Isolation
from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages import k21_delete_records as k21
from tidelog.wire.messages import k35_describe_log_dirs as k35
from tidelog.wire.messages import k43_elect_leaders as k43
from tidelog.wire.messages import k75_describe_topic_partitions as k75
from tidelog.wire.messages.k02_list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.wire.messages.k19_create_topics import CreatableTopicResult, CreateTopicsResponse
from tidelog.wire.messages.k20_delete_topics import DeletableTopicResult, DeleteTopicsResponse

ZERO: TopicPartition = ("t", Partition(0))
ONE: TopicPartition = ("t", Partition(1))
PLAIN = Isolation.READ_UNCOMMITTED


def offset_rows(*rows: tuple[int, int, int]) -> ListOffsetsResponse:
    partitions = [
        ListOffsetsPartitionResponse(
            partition_index=n, error_code=code, offset=offset, timestamp=-1
        )
        for n, code, offset in rows
    ]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=partitions)])


# -- metadata -----------------------------------------------------------------------------------


def test_metadata_is_asked_of_anyone_until_someone_answers() -> None:
    view, pauses = ClusterView(), list[Pause]()
    drive(refresh(view, ["t"]), replies(Cause.UNREACHABLE, metadata(0)), pauses)
    assert view.leader(ZERO) == 0
    assert [one.because for one in pauses] == ["unreachable"]


def test_what_one_broker_says_is_asked_of_it_alone() -> None:
    asked: list[Call] = []

    def answer(call: Call) -> Reply:
        asked.append(call)
        return metadata(0) if call.to == 1 else Cause.UNREACHABLE

    said = drive(told_by(1, ["t"]), answer)
    assert said is not None
    assert said.leader(ZERO) == 0
    assert drive(told_by(2, ["t"]), answer) is None
    assert [call.to for call in asked] == [1, 2]


def test_a_broker_without_an_api_is_not_asked_again() -> None:
    with pytest.raises(UnsupportedError):
        drive(refresh(ClusterView(), None), replies(Cause.UNSUPPORTED))


# -- offsets ------------------------------------------------------------------------------------


def test_each_leader_is_asked_for_its_own_partitions() -> None:
    asked: dict[int | Somewhere, list[int]] = {}

    def answer(call: Call) -> Reply:
        numbers = [one.partition_index for one in call.ask.message.topics[0].partitions]
        asked[call.to] = numbers
        return offset_rows(*((n, 0, 10 + n) for n in numbers))

    plan = list_offsets(view_of(0, 1, 0), {ZERO: END, ONE: END, ("t", Partition(2)): START}, PLAIN)
    found = drive(plan, answer)
    assert asked == {0: [0, 2], 1: [1]}
    assert [found[ZERO].offset, found[ONE].offset] == [10, 11]


def test_only_what_is_missing_is_asked_again() -> None:
    moved = ErrorCode.NOT_LEADER_OR_FOLLOWER
    answers = [offset_rows((0, 0, 5), (1, moved, -1)), offset_rows((1, 0, 6))]
    pauses: list[Pause] = []
    plan = list_offsets(view_of(0, 0), {ZERO: END, ONE: END}, PLAIN)
    found = drive(plan, by_api(ListOffsets=answers, Metadata=metadata(0, 0)), pauses)
    assert [found[ZERO].offset, found[ONE].offset] == [5, 6]
    assert [one.because for one in pauses] == ["t-1: NOT_LEADER_OR_FOLLOWER"]


def test_a_partition_without_a_leader_is_waited_for() -> None:
    pauses: list[Pause] = []
    plan = list_offsets(view_of(-1), {ZERO: END}, PLAIN)
    drive(plan, by_api(ListOffsets=offset_rows((0, 0, 5)), Metadata=metadata(0)), pauses)
    assert [one.because for one in pauses] == ["t-0 has no leader"]


def test_a_leader_that_is_gone_is_asked_for() -> None:
    plan = list_offsets(view_of(0), {ZERO: END}, PLAIN)
    answers = [Cause.UNREACHABLE, offset_rows((0, 0, 5))]
    assert drive(plan, by_api(ListOffsets=answers, Metadata=metadata(1)))[ZERO].offset == 5


def test_offsets_that_are_refused_are_an_error() -> None:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(Rejected, match="t-0"):
        drive(list_offsets(view_of(0), {ZERO: END}, PLAIN), replies(offset_rows((0, code, -1))))
    with pytest.raises(UnsupportedError):
        drive(list_offsets(view_of(0), {ZERO: END}, PLAIN), replies(Cause.UNSUPPORTED))


def test_a_peek_leaves_out_what_cannot_be_said_now() -> None:
    wanted = {ZERO: END, ONE: END, ("t", Partition(2)): END, ("t", Partition(3)): END}
    code = ErrorCode.LEADER_NOT_AVAILABLE
    plan = peek_offsets(view_of(0, 0, 1, -1), wanted)
    found = drive(plan, replies(offset_rows((0, 0, 5), (1, code, -1)), Cause.TIMED_OUT))
    assert found.keys() == {ZERO}
    assert drive(peek_offsets(view_of(-1), {ZERO: END}), replies()) == {}


# -- topics -------------------------------------------------------------------------------------


def made(code: int = 0, message: str | None = None) -> CreateTopicsResponse:
    row = CreatableTopicResult(
        name="t",
        error_code=code,
        error_message=message,
        num_partitions=3,
        replication_factor=1,
        configs=[],
    )
    return CreateTopicsResponse(topics=[row])


def test_a_topic_is_created_by_any_broker() -> None:
    calls: list[Call] = []

    def answer(call: Call) -> Reply:
        calls.append(call)
        return made()

    topic = NewTopic("t", configs={"a": "b"}, assignment=[[0, 1], [1, 0]])
    (done,) = drive(create_topics(view_of(0), [topic]), answer)
    assert (done.code, done.partitions) == (ErrorCode.NONE, 3)
    (row,) = calls[0].ask.message.topics
    assert (row.num_partitions, row.replication_factor) == (-1, -1)
    assert [(one.partition_index, one.broker_ids) for one in row.assignments] == [
        (0, [0, 1]),
        (1, [1, 0]),
    ]
    assert [(one.name, one.value) for one in row.configs] == [("a", "b")]
    assert calls[0].to is Somewhere.ANY


def test_where_a_broker_is_not_the_controller_the_controller_is_asked() -> None:
    asked: list[int | Somewhere] = []

    def answer(call: Call) -> Reply:
        if call.ask.api.name == "Metadata":
            return metadata(0)
        asked.append(call.to)
        return made(ErrorCode.NOT_CONTROLLER if len(asked) == 1 else 0)

    drive(create_topics(view_of(0), [NewTopic("t")]), answer)
    assert asked == [Somewhere.ANY, Somewhere.CONTROLLER]


@pytest.mark.parametrize(
    ("cause", "error"),
    [
        (Cause.UNREACHABLE, UnreachableError),
        (Cause.TIMED_OUT, TimedOutError),
        (Cause.UNSUPPORTED, UnsupportedError),
        (Cause.BROKEN, UnreachableError),
    ],
)
def test_a_creation_whose_answer_is_lost_is_not_asked_again(
    cause: Cause, error: type[Exception]
) -> None:
    with pytest.raises(error):
        drive(create_topics(view_of(0), [NewTopic("t")]), replies(cause))


def test_a_code_of_a_newer_kafka_is_an_unknown_server_error() -> None:
    (done,) = drive(create_topics(view_of(0), [NewTopic("t")]), replies(made(9_999, "new")))
    assert (done.code, done.detail) == (ErrorCode.UNKNOWN_SERVER_ERROR, "new")


def test_a_topic_is_deleted_by_name_in_every_version() -> None:
    calls: list[Call] = []

    def answer(call: Call) -> Reply:
        calls.append(call)
        return DeleteTopicsResponse(responses=[DeletableTopicResult(name="t", error_code=3)])

    (done,) = drive(delete_topics(view_of(0), ["t"]), answer)
    assert (done.name, done.code, done.detail) == ("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
    message = calls[0].ask.message
    assert ([one.name for one in message.topics], message.topic_names) == (["t"], ["t"])


def test_a_created_topic_is_ready_once_every_partition_has_a_leader() -> None:
    pauses: list[Pause] = []
    missing = metadata(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    plan = wait_for_topics(ClusterView(), ["t"])
    drive(plan, replies(missing, metadata(), metadata(0, -1), metadata(0, 1)), pauses)
    assert len(pauses) == 3


def test_a_deleted_topic_is_gone_once_a_broker_does_not_list_it() -> None:
    pauses: list[Pause] = []
    missing = metadata(error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    drive(wait_without_topics(view_of(0), ["t"]), replies(metadata(0), missing), pauses)
    assert len(pauses) == 1
    drive(wait_without_topics(view_of(0), []), replies())


# -- description --------------------------------------------------------------------------------


def page(*rows: tuple[int, list[int] | None], cursor: int | None = None) -> object:
    partitions = [
        k75.DescribeTopicPartitionsResponsePartition(
            error_code=0, partition_index=n, leader_id=0, eligible_leader_replicas=elr
        )
        for n, elr in rows
    ]
    topic = k75.DescribeTopicPartitionsResponseTopic(error_code=0, name="t", partitions=partitions)
    after = None if cursor is None else k75.Cursor(topic_name="t", partition_index=cursor)
    return k75.DescribeTopicPartitionsResponse(topics=[topic], next_cursor=after)


def test_eligible_replicas_are_read_page_by_page() -> None:
    pages = replies(page((0, [1]), cursor=1), page((1, []), (2, None)))
    assert drive(eligible_replicas(["t"]), pages) == {ZERO: (1,), ONE: ()}


def test_a_page_that_brings_nothing_is_the_last() -> None:
    pages = replies(page((0, [1]), cursor=1), page((0, [1]), cursor=1))
    assert drive(eligible_replicas(["t"]), pages) == {ZERO: (1,)}


def test_a_cluster_that_cannot_tell_leaves_them_unknown() -> None:
    assert drive(eligible_replicas(["t"]), replies(Cause.UNSUPPORTED)) == {}
    assert drive(replica_sizes(view_of(0), [ZERO]), lambda _: Cause.UNSUPPORTED) == {}
    assert drive(replica_sizes(view_of(0), []), replies()) == {}


def test_sizes_come_from_every_broker_that_holds_a_replica() -> None:
    def sizes(*rows: tuple[int, bool]) -> k35.DescribeLogDirsResponse:
        partitions = [
            k35.DescribeLogDirsPartition(
                partition_index=0, partition_size=count, offset_lag=0, is_future_key=future
            )
            for count, future in rows
        ]
        topic = k35.DescribeLogDirsTopic(name="t", partitions=partitions)
        good = k35.DescribeLogDirsResult(error_code=0, log_dir="/d", topics=[topic])
        offline = k35.DescribeLogDirsResult(
            error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir="/e", topics=[topic]
        )
        return k35.DescribeLogDirsResponse(results=[good, offline])

    found = drive(
        replica_sizes(view_of(0), [ZERO]),
        replies(sizes((10, False), (99, True)), sizes((7, False))),
    )
    assert found == {(ZERO, 0): 10, (ZERO, 1): 7}


# -- deleting records ---------------------------------------------------------------------------


def deleted_rows(*rows: tuple[int, int, int]) -> k21.DeleteRecordsResponse:
    partitions = [
        k21.DeleteRecordsPartitionResult(partition_index=n, error_code=code, low_watermark=start)
        for n, code, start in rows
    ]
    topic = k21.DeleteRecordsTopicResult(name="t", partitions=partitions)
    return k21.DeleteRecordsResponse(topics=[topic])


def test_each_leader_deletes_its_own_partitions() -> None:
    asked: dict[int | Somewhere, dict[int, int]] = {}

    def answer(call: Call) -> Reply:
        rows = call.ask.message.topics[0].partitions
        asked[call.to] = {one.partition_index: one.offset for one in rows}
        return deleted_rows(*((one.partition_index, 0, one.offset) for one in rows))

    plan = delete_records(view_of(0, 1), {ZERO: 7, ONE: 9})
    done = drive(plan, answer)
    assert asked == {0: {0: 7}, 1: {1: 9}}
    assert (done[ZERO].start, done[ONE].start) == (7, 9)


def test_deleting_is_asked_again_where_the_leader_moved_and_only_there() -> None:
    moved, outside = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_OUT_OF_RANGE
    pauses = list[Pause]()
    first, second = deleted_rows((0, moved, -1), (1, outside, -1)), deleted_rows((0, 0, 5))
    answers = by_api(DeleteRecords=[first, second], Metadata=metadata(0, 0))
    done = drive(delete_records(view_of(0, 0), {ZERO: HIGH_WATERMARK, ONE: 9}), answers, pauses)
    assert (done[ZERO].code, done[ZERO].start) == (ErrorCode.NONE, 5)
    assert done[ONE].code is outside
    assert [one.because for one in pauses] == ["t-0: NOT_LEADER_OR_FOLLOWER"]


def test_deleting_gives_up_where_a_broker_cannot() -> None:
    with pytest.raises(UnsupportedError):
        drive(delete_records(view_of(0), {ZERO: 7}), replies(Cause.UNSUPPORTED))


# -- elections ----------------------------------------------------------------------------------


def elected(*rows: tuple[int, int], code: int = 0) -> k43.ElectLeadersResponse:
    partitions = [
        k43.PartitionResult(partition_id=n, error_code=row, error_message=None) for n, row in rows
    ]
    topic = k43.ReplicaElectionResult(topic="t", partition_result=partitions)
    return k43.ElectLeadersResponse(error_code=code, replica_election_results=[topic])


def test_an_election_names_its_partitions_by_topic_or_none_for_all() -> None:
    asked: list[object] = []

    def answer(call: Call) -> Reply:
        asked.append(call.ask.message.topic_partitions)
        return elected((0, 0), (1, ErrorCode.ELECTION_NOT_NEEDED))

    done = drive(elect_leaders(view_of(0, 1), [ZERO, ONE]), answer)
    assert [(one.partition, one.code) for one in done] == [
        (ZERO, ErrorCode.NONE),
        (ONE, ErrorCode.ELECTION_NOT_NEEDED),
    ]
    drive(elect_leaders(view_of(0, 1), None), answer)
    assert asked == [[k43.TopicPartitions(topic="t", partitions=[0, 1])], None]


def test_an_election_goes_to_the_controller_where_a_broker_is_not_it() -> None:
    to: list[object] = []

    def answer(call: Call) -> Reply:
        if call.ask.api.name == "Metadata":
            return metadata(0)
        to.append(call.to)
        return elected((0, 0)) if len(to) > 1 else elected(code=ErrorCode.NOT_CONTROLLER)

    drive(elect_leaders(view_of(0), [ZERO]), answer)
    assert to == [Somewhere.ANY, Somewhere.CONTROLLER]


def test_an_election_that_is_refused_as_a_whole_is_an_error() -> None:
    with pytest.raises(Rejected):
        drive(elect_leaders(view_of(0), None), replies(elected(code=ErrorCode.INVALID_REQUEST)))
