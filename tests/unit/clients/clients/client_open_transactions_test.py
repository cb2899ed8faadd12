"""Plans that look for open transactions in partitions, and end one: what is seen and trusted."""

import pytest

from harness.machines.plans import Reply, by_api, drive, metadata, view_of
from tidelog.clients.admin.open_transactions import Openings, Standing, open_transactions
from tidelog.clients.admin.producers import OpenHere, abort_open, describe_producers
from tidelog.clients.asking import Call, Cause, Pause
from tidelog.clients.failures import TimedOutError, UnsupportedError
from tidelog.kernel.ids import Offset, Partition, TopicPartition
from tidelog.kernel.instant import WallMs
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages import k10_find_coordinator as k10
from tidelog.wire.messages import k27_write_txn_markers as k27
from tidelog.wire.messages import k61_describe_producers as k61
from tidelog.wire.messages import k65_describe_transactions as k65
from tidelog.wire.messages import k66_list_transactions as k66

NOW = WallMs(100_000)
ZERO: TopicPartition = ("t", Partition(0))
ONE: TopicPartition = ("t", Partition(1))


def producer(producer_id: int, start: int = -1, coordinator_epoch: int = 4) -> k61.ProducerState:
    return k61.ProducerState(
        producer_id=producer_id,
        producer_epoch=1,
        last_sequence=9,
        last_timestamp=50_000,
        coordinator_epoch=coordinator_epoch,
        current_txn_start_offset=start,
    )


def produced(
    *rows: k61.ProducerState, partition: int = 0, code: int = 0
) -> k61.DescribeProducersResponse:
    part = k61.PartitionResponse(
        partition_index=partition, error_code=code, active_producers=list(rows)
    )
    return k61.DescribeProducersResponse(topics=[k61.TopicResponse(name="t", partitions=[part])])


def marked(code: int = 0) -> k27.WriteTxnMarkersResponse:
    part = k27.WritableTxnMarkerPartitionResult(partition_index=0, error_code=code)
    topic = k27.WritableTxnMarkerTopicResult(name="t", partitions=[part])
    return k27.WriteTxnMarkersResponse(
        markers=[k27.WritableTxnMarkerResult(producer_id=7, topics=[topic])]
    )


# -- describe -----------------------------------------------------------------------------------


def test_producers_are_described_by_the_leader_of_their_partition() -> None:
    asked = []

    def answer(call: Call) -> Reply:
        asked.append(call.to)
        (topic,) = call.ask.message.topics
        (number,) = topic.partition_indexes
        return produced(producer(7, 3), producer(8), partition=number)

    found = drive(describe_producers(view_of(0, 1), [ZERO, ONE]), answer)
    assert asked == [0, 1]
    (open_one, idle) = found[ONE]
    assert (open_one.producer_id, open_one.transaction_start) == (7, Offset(3))
    assert (idle.producer_id, idle.transaction_start) == (8, None)
    assert (idle.last_timestamp, idle.coordinator_epoch) == (WallMs(50_000), 4)


def test_a_leader_that_moved_is_asked_for_again() -> None:
    pauses: list[Pause] = []
    answers = by_api(
        Metadata=metadata(1),
        DescribeProducers=[
            Cause.UNREACHABLE,
            produced(code=ErrorCode.NOT_LEADER_OR_FOLLOWER),
            produced(producer(7)),
        ],
    )
    assert len(drive(describe_producers(view_of(0), [ZERO]), answers, pauses)[ZERO]) == 1
    assert [one.because for one in pauses] == ["unreachable", "t-0: NOT_LEADER_OR_FOLLOWER"]


def test_who_does_not_answer_is_left_out_where_rounds_are_counted() -> None:
    def answer(call: Call) -> Reply:
        if call.ask.api.name == "Metadata":
            return metadata(0, 1)
        return Cause.UNREACHABLE if call.to == 1 else produced(producer(7))

    found = drive(describe_producers(view_of(0, 1), [ZERO, ONE], rounds=2), answer)
    assert set(found) == {ZERO}


def test_what_a_leader_refuses_is_an_error() -> None:
    answers = by_api(DescribeProducers=produced(code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    with pytest.raises(Rejected, match="TOPIC_AUTHORIZATION_FAILED"):
        drive(describe_producers(view_of(0), [ZERO]), answers)
    with pytest.raises(UnsupportedError):
        drive(describe_producers(view_of(0), [ZERO]), by_api(DescribeProducers=Cause.UNSUPPORTED))


# -- end one ------------------------------------------------------------------------------------

HERE = OpenHere(ZERO, Offset(3), 7)


class Leader:
    """One partition with one producer, whose markers meet the fates given."""

    def __init__(self, *fates: Reply, coordinator_epoch: int = 4) -> None:
        self.fates = list(fates)
        self.markers: list[k27.WritableTxnMarker] = []
        self.start = 3
        self.coordinator_epoch = coordinator_epoch
        self.next_start = -1

    def __call__(self, call: Call) -> Reply:
        match call.ask.api.name:
            case "Metadata":
                return metadata(0)
            case "DescribeProducers":
                return produced(producer(7, self.start, self.coordinator_epoch))
            case _:
                return self._mark(call)

    def _mark(self, call: Call) -> Reply:
        (marker,) = call.ask.message.markers
        self.markers.append(marker)
        fate = self.fates.pop(0)
        if fate is Cause.BROKEN:  # written, but nobody hears of it; and the producer goes on
            self.start = self.next_start
        return fate


def test_an_open_transaction_is_ended_with_what_the_log_knows_of_it() -> None:
    leader = Leader(marked())
    ended = drive(abort_open(view_of(0), HERE), leader)
    assert ended is not None
    (marker,) = leader.markers
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (7, 1, 4)
    assert marker.transaction_result is False
    assert [(one.name, one.partition_indexes) for one in marker.topics] == [("t", [0])]


def test_a_producer_without_a_marker_yet_gets_one_of_the_first_coordinator() -> None:
    leader = Leader(marked(), coordinator_epoch=-1)
    drive(abort_open(view_of(0), HERE), leader)
    assert [one.coordinator_epoch for one in leader.markers] == [0]


def test_what_is_not_open_is_not_ended() -> None:
    leader = Leader()
    assert drive(abort_open(view_of(0), OpenHere(ZERO, Offset(4), 7)), leader) is None
    assert drive(abort_open(view_of(0), OpenHere(ZERO, Offset(3), 8)), leader) is None
    assert leader.markers == []


@pytest.mark.parametrize("next_start", [-1, 12])
def test_a_marker_whose_answer_is_lost_never_ends_the_next_transaction(next_start: int) -> None:
    leader = Leader(Cause.BROKEN)
    leader.next_start = next_start
    assert drive(abort_open(view_of(0), HERE), leader) is not None
    assert len(leader.markers) == 1


def test_a_marker_is_written_again_where_the_leader_did_not() -> None:
    pauses: list[Pause] = []
    leader = Leader(Cause.UNREACHABLE, marked(ErrorCode.NOT_LEADER_OR_FOLLOWER), marked())
    assert drive(abort_open(view_of(0), HERE), leader, pauses) is not None
    assert [one.because for one in pauses] == ["unreachable", "t-0: NOT_LEADER_OR_FOLLOWER"]


def test_a_marker_that_may_be_on_its_way_still_is_not_sent_twice() -> None:
    leader = Leader(Cause.TIMED_OUT)
    with pytest.raises(TimedOutError):
        drive(abort_open(view_of(0), HERE), leader)
    assert len(leader.markers) == 1


def test_a_marker_that_is_refused_is_an_error() -> None:
    with pytest.raises(Rejected, match="TRANSACTION_COORDINATOR_FENCED"):
        drive(
            abort_open(view_of(0), HERE), Leader(marked(ErrorCode.TRANSACTION_COORDINATOR_FENCED))
        )


# -- what is open, and who will end it ------------------------------------------------------------


def known(state: str = "Ongoing", partitions: tuple[int, ...] = (0,)) -> k65.TransactionState:
    return k65.TransactionState(
        error_code=0,
        transactional_id="x",
        transaction_state=state,
        transaction_timeout_ms=45_000,
        transaction_start_time_ms=90_000,
        producer_id=7,
        producer_epoch=1,
        topics=[k65.TopicData(topic="t", partitions=list(partitions))],
    )


class Peers:
    """A leader and a coordinator, and what they say at each look; the last look stays."""

    def __init__(self, *looks: tuple[Reply, k65.TransactionState | None]) -> None:
        self.looks = looks
        self.asked: list[str] = []

    def look(self) -> Openings:
        return drive(open_transactions(view_of(0), NOW, [ZERO, ZERO]), self)

    def __call__(self, call: Call) -> Reply:
        name = call.ask.api.name
        self.asked.append(name)
        count = self.asked.count("DescribeProducers")
        leader, transaction = self.looks[min(count, len(self.looks)) - 1]
        match name:
            case "DescribeProducers":
                return leader
            case "ListTransactions":
                assert len(call.ask.message.producer_id_filters) == 1
                row = k66.TransactionState(
                    transactional_id="x", producer_id=7, transaction_state="Ongoing"
                )
                return k66.ListTransactionsResponse(transaction_states=[row] if transaction else [])
            case "FindCoordinator":
                found = k10.Coordinator(key="x", node_id=0)
                return k10.FindCoordinatorResponse(coordinators=[found])
            case "DescribeTransactions":
                assert transaction is not None
                return k65.DescribeTransactionsResponse(transaction_states=[transaction])
            case _:
                return metadata(0, brokers=(0,))


OPEN = produced(producer(7, 3), producer(8))


def test_nothing_open_asks_no_coordinator() -> None:
    peers = Peers((produced(producer(7)), None))
    assert peers.look() == Openings((), ())
    assert peers.asked == ["DescribeProducers"]


@pytest.mark.parametrize(
    ("transaction", "standing"),
    [
        (known(), Standing.UNDECIDED),
        (known("PrepareEpochFence"), Standing.UNDECIDED),
        (known("PrepareCommit"), Standing.DECIDED),
        (known("PrepareAbort"), Standing.DECIDED),
        (known("Ongoing", partitions=(1,)), Standing.LEFT_OUT),
        (known("PrepareCommit", partitions=()), Standing.LEFT_OUT),
        (known("CompleteAbort"), Standing.LEFT_OUT),
        (known("Empty", partitions=()), Standing.LEFT_OUT),
        (None, Standing.UNKNOWN),
    ],
)
def test_what_is_open_hangs_unless_a_coordinator_will_end_it_there(
    transaction: k65.TransactionState | None, standing: Standing
) -> None:
    (one,) = Peers((OPEN, transaction)).look().found
    assert (one.partition, one.start, one.producer.producer_id) == (ZERO, Offset(3), 7)
    assert one.standing is standing
    assert one.hangs is (standing in {Standing.LEFT_OUT, Standing.UNKNOWN})


@pytest.mark.parametrize(
    "second",
    [
        (produced(producer(7)), known("CompleteCommit")),
        (produced(producer(7, 30)), known()),
        (produced(producer(9, 3)), known()),
    ],
    ids=["ended", "the next one", "another's"],
)
def test_what_ended_between_two_questions_does_not_hang(
    second: tuple[Reply, k65.TransactionState | None],
) -> None:
    peers = Peers((OPEN, known("CompleteCommit")), second)
    assert not [one for one in peers.look().found if one.hangs]


def test_what_a_coordinator_that_moved_left_unnamed_does_not_hang() -> None:
    (one,) = Peers((OPEN, None), (OPEN, known())).look().found
    assert one.standing is Standing.UNDECIDED


def test_a_partition_whose_leader_does_not_answer_is_unseen() -> None:
    peers = Peers((Cause.UNREACHABLE, None))
    assert peers.look() == Openings((), (ZERO,))
    peers = Peers((OPEN, None), (Cause.UNREACHABLE, None))
    assert peers.look() == Openings((), (ZERO,))
