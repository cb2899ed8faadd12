"""DescribeQuorum: the metadata log as Kafka's tools look at one."""

from harness.machines.controllers import START
from harness.machines.conversations import Conversation
from tidelog.kernel.ids import COORDINATOR_ID
from tidelog.wire.messages.k55_describe_quorum import (
    DescribeQuorumRequest,
    Node,
    PartitionData,
    PartitionRequest,
    ReplicaState,
    TopicRequest,
)

WALL_MS = 1_700_000_000_000


def asking(name: str = "__cluster_metadata", *partitions: int) -> DescribeQuorumRequest:
    parts = [PartitionRequest(partition_index=one) for one in partitions or (0,)]
    return DescribeQuorumRequest(topics=[TopicRequest(topic_name=name, partitions=parts)])


def two_brokers() -> Conversation:
    talk = Conversation()
    talk.start_coordinator()
    assert talk.front is not None
    talk.front.wall_offset_ns = WALL_MS * 1_000_000 - START
    for broker in range(2):
        talk.start_broker(broker)
    talk.settle()
    return talk


def described(talk: Conversation) -> PartitionData:
    answer = talk.describe_quorum(0, asking())
    assert answer.error_code == 0
    assert answer.nodes == [Node(node_id=COORDINATOR_ID)]
    ((partition,),) = (topic.partitions for topic in answer.topics)
    assert partition.error_code == 0
    return partition


def test_the_transaction_coordinator_is_no_observer_that_tools_know() -> None:
    talk = two_brokers()
    talk.start_observer(7)
    talk.settle()
    assert [one.replica_id for one in described(talk).observers] == [0, 1]


def replica(broker: int, end: int, heard_ms: int, caught_up_ms: int) -> ReplicaState:
    return ReplicaState(
        replica_id=broker,
        log_end_offset=end,
        last_fetch_timestamp=WALL_MS + heard_ms,
        last_caught_up_timestamp=WALL_MS + caught_up_ms,
    )


def test_the_coordinator_is_the_voter_and_brokers_observe() -> None:
    talk = two_brokers()
    end = len(talk.durable)
    talk.wait(700)
    told = described(talk)
    assert (told.leader_id, told.leader_epoch, told.high_watermark) == (COORDINATOR_ID, 1, end)
    assert told.current_voters == [replica(COORDINATOR_ID, end, 700, 700)]
    assert told.observers == [replica(one, end, 700, 700) for one in range(2)]


def test_a_broker_that_takes_nothing_falls_behind_from_the_moment_there_is_more() -> None:
    talk = two_brokers()
    end = len(talk.durable)
    talk.wait(100)
    talk.configure(0, "", "log.flush.interval.messages", "7")
    while not talk.written:
        assert talk.deliver_one()
    talk.wait(50)
    talk.force()
    talk.wait(1_000)
    told = described(talk)
    assert told.high_watermark == end + 1
    assert told.observers == [replica(one, end, 0, 150) for one in range(2)]


def test_what_is_not_on_disk_is_behind_the_high_watermark() -> None:
    talk = two_brokers()
    end = len(talk.durable)
    talk.configure(0, "", "log.flush.interval.messages", "7")
    while not talk.written:
        assert talk.deliver_one()
    told = described(talk)
    assert (told.high_watermark, told.current_voters[0].log_end_offset) == (end, end + 1)


def test_who_has_no_connection_does_not_observe() -> None:
    talk = two_brokers()
    talk.kill_broker(1)
    talk.settle()
    assert [one.replica_id for one in described(talk).observers] == [0, 1]
    assert talk.front is not None
    talk.front.feed.close(b"1/1")
    assert [one.replica_id for one in described(talk).observers] == [0]


def test_there_is_but_one_such_partition() -> None:
    talk = two_brokers()
    for request in (asking("t"), asking("__cluster_metadata", 1), asking("t", 0, 1)):
        answer = talk.describe_quorum(0, request)
        codes = [one.error_code for topic in answer.topics for one in topic.partitions]
        assert set(codes) == {3}, request
    assert talk.describe_quorum(0, DescribeQuorumRequest()).topics == []
