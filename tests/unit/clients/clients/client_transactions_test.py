"""Plans that list, describe and fence transactions: who is asked, what again, what answers mean."""

from collections.abc import Callable

import pytest

from harness.machines.plans import Reply, Spoken, by_api, drive, metadata, view_of
from tidelog.clients.admin.fencing import fence_producers
from tidelog.clients.admin.transactions import (
    DescribedTransaction,
    State,
    Wanted,
    describe_transactions,
    list_transactions,
)
from tidelog.clients.asking import Call, Cause, Pause
from tidelog.clients.failures import UnsupportedError
from tidelog.clients.producer.sender import Identity
from tidelog.kernel.ids import Partition
from tidelog.kernel.instant import WallMs
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.messages import k10_find_coordinator as k10
from tidelog.wire.messages import k22_init_producer_id as k22
from tidelog.wire.messages import k65_describe_transactions as k65
from tidelog.wire.messages import k66_list_transactions as k66

NOW = WallMs(100_000)
NEWEST = 2


def listed(*rows: tuple[str, int, str], code: int = 0) -> k66.ListTransactionsResponse:
    states = [
        k66.TransactionState(transactional_id=name, producer_id=producer, transaction_state=state)
        for name, producer, state in rows
    ]
    return k66.ListTransactionsResponse(error_code=code, transaction_states=states)


def state_of(
    name: str, state: str = "Ongoing", started: int = 90_000, code: int = 0
) -> k65.TransactionState:
    return k65.TransactionState(
        error_code=code,
        transactional_id=name,
        transaction_state=state,
        transaction_timeout_ms=45_000,
        transaction_start_time_ms=started,
        producer_id=7,
        producer_epoch=1,
        topics=[k65.TopicData(topic="t", partitions=[0, 2])],
    )


def described(name: str, code: int = 0) -> k65.DescribeTransactionsResponse:
    return k65.DescribeTransactionsResponse(transaction_states=[state_of(name, code=code)])


def coordinated(**brokers: int) -> k10.FindCoordinatorResponse:
    rows = [k10.Coordinator(key=key, node_id=broker) for key, broker in brokers.items()]
    return k10.FindCoordinatorResponse(coordinators=rows)


# -- list ---------------------------------------------------------------------------------------


def test_the_transactions_of_all_brokers_are_one_list() -> None:
    parts = {0: listed(("b", 2, "Empty")), 1: listed(("a", 1, "Ongoing"))}

    def answer(call: Call) -> Reply:
        if call.ask.api.name == "Metadata":
            return metadata(0)
        assert isinstance(call.to, int)
        return Spoken(NEWEST, parts[call.to])

    found = drive(list_transactions(view_of(0), NOW), answer)
    assert [(one.transactional_id, one.producer_id, one.coordinator) for one in found] == [
        ("a", 1, 1),
        ("b", 2, 0),
    ]


def test_all_brokers_are_asked_again_where_one_is_loading_or_away() -> None:
    """What a broker that went coordinated may be at one that has answered already."""
    pauses: list[Pause] = []
    answers = by_api(
        Metadata=metadata(0),
        ListTransactions=[
            listed(),
            listed(code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            listed(("moved", 1, "Ongoing")),
            Cause.UNREACHABLE,
            listed(("moved", 1, "Ongoing")),
            listed(),
        ],
    )
    found = drive(list_transactions(view_of(0), NOW), answers, pauses)
    assert [one.transactional_id for one in found] == ["moved"]
    assert [one.because for one in pauses] == [
        "broker 1: COORDINATOR_LOAD_IN_PROGRESS",
        "broker 1: unreachable",
    ]


@pytest.mark.parametrize(
    ("leaders", "asked"),
    [((0, 0), 1), ((0, 1), 3), ((0, -1), 3), ((), 3)],
    ids=["leads nothing", "leads", "nobody leads yet", "unknown"],
)
def test_a_broker_that_is_silent_is_waited_for_unless_others_coordinate_everything(
    leaders: tuple[int, ...], asked: int
) -> None:
    questions = 0

    def answer(call: Call) -> Reply:
        nonlocal questions
        if call.ask.api.name == "Metadata":
            return metadata(*leaders, topic="__transaction_state")
        if call.to == 0:
            return listed(("a", 1, "Ongoing"))
        questions += 1
        return Cause.UNREACHABLE if questions < 3 else listed(("b", 2, "Ongoing"))

    found = drive(list_transactions(view_of(0), NOW), answer)
    assert questions == asked
    assert [one.transactional_id for one in found] == (["a"] if asked == 1 else ["a", "b"])


@pytest.mark.parametrize("code", [ErrorCode.INVALID_REGULAR_EXPRESSION, ErrorCode.INVALID_REQUEST])
def test_a_list_that_is_refused_is_an_error(code: ErrorCode) -> None:
    answers = by_api(Metadata=metadata(0), ListTransactions=listed(code=code))
    with pytest.raises(Rejected, match=code.name):
        drive(list_transactions(view_of(0), NOW, Wanted(pattern="[")), answers)


def test_a_cluster_without_transactions_says_so() -> None:
    answers = by_api(Metadata=metadata(0), ListTransactions=Cause.UNSUPPORTED)
    with pytest.raises(UnsupportedError):
        drive(list_transactions(view_of(0), NOW), answers)


def asked_for(wanted: Wanted) -> list[k66.ListTransactionsRequest]:
    asked = []

    def answer(call: Call) -> Reply:
        if call.ask.api.name == "Metadata":
            return metadata(0, brokers=(0,))
        asked.append(call.ask.message)
        return Spoken(NEWEST, listed())

    drive(list_transactions(view_of(0), NOW, wanted), answer)
    return asked


def test_what_is_wanted_is_what_brokers_are_asked_for() -> None:
    (asked,) = asked_for(Wanted(("Ongoing", "Dead"), (9, 8), None, "a.*"))
    assert asked.state_filters == ["Dead", "Ongoing"]
    assert asked.producer_id_filters == [8, 9]
    assert (asked.duration_filter, asked.transactional_id_pattern) == (-1, "a.*")


def test_only_what_has_not_ended_runs_long() -> None:
    """Kafka would name every transaction that ended long ago as well."""
    (asked,) = asked_for(Wanted(longer_than_ms=5_000))
    assert set(asked.state_filters) == {
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "PrepareEpochFence",
    }
    assert asked.duration_filter == 5_000
    (asked,) = asked_for(Wanted(("Ongoing", "Empty"), longer_than_ms=0))
    assert asked.state_filters == ["Ongoing"]
    assert asked_for(Wanted(("Empty",), longer_than_ms=0)) == []


BEGUN = {"long": 90_000, "short": 97_000, "done": 1_000}


def speaking(version: int) -> Callable[[Call], Reply]:
    """A broker that lists everything, as one must that does not know the filters."""

    def answer(call: Call) -> Reply:
        match call.ask.api.name:
            case "ListTransactions":
                return Spoken(version, listed(*((name, 1, "Ongoing") for name in BEGUN)))
            case "FindCoordinator":
                return coordinated(**dict.fromkeys(call.ask.message.coordinator_keys, 0))
            case "DescribeTransactions":
                return k65.DescribeTransactionsResponse(
                    transaction_states=[
                        state_of(name, "CompleteAbort" if name == "done" else "Ongoing", begun)
                        for name, begun in BEGUN.items()
                    ]
                )
            case _:
                return metadata(0, brokers=(0,))

    return answer


@pytest.mark.parametrize(
    ("version", "wanted", "names"),
    [
        (0, Wanted(longer_than_ms=5_000), ["long"]),
        (0, Wanted(pattern="[ls].*"), ["long", "short"]),
        (0, Wanted(pattern="on", longer_than_ms=0), []),
        (1, Wanted(longer_than_ms=5_000, pattern="lo.*"), ["long"]),
        (1, Wanted(longer_than_ms=5_000), ["done", "long", "short"]),
        (2, Wanted(pattern="nothing"), ["done", "long", "short"]),
    ],
)
def test_what_an_old_broker_cannot_sort_out_is_sorted_out_here(
    version: int, wanted: Wanted, names: list[str]
) -> None:
    found = drive(list_transactions(view_of(0), NOW, wanted), speaking(version))
    assert [one.transactional_id for one in found] == names


def test_a_pattern_that_is_none_is_refused_here_too() -> None:
    answers = by_api(Metadata=metadata(0), ListTransactions=listed(("a", 1, "Ongoing")))
    with pytest.raises(Rejected, match="INVALID_REGULAR_EXPRESSION"):
        drive(list_transactions(view_of(0), NOW, Wanted(pattern="[")), answers)


# -- describe -----------------------------------------------------------------------------------


def test_a_transaction_is_described_as_its_coordinator_knows_it() -> None:
    answers = by_api(FindCoordinator=coordinated(x=1), DescribeTransactions=described("x"))
    found = drive(describe_transactions(view_of(0), ["x", "x"]), answers)
    assert found == {
        "x": DescribedTransaction(
            transactional_id="x",
            state=State.ONGOING,
            producer_id=7,
            producer_epoch=1,
            timeout_ms=45_000,
            started=WallMs(90_000),
            partitions=(("t", Partition(0)), ("t", Partition(2))),
            coordinator=1,
        )
    }


def test_each_id_is_asked_for_at_its_own_coordinator() -> None:
    asked = {}

    def answer(call: Call) -> Reply:
        if call.ask.api.name == "FindCoordinator":
            return coordinated(x=1, y=0)
        (name,) = call.ask.message.transactional_ids
        asked[name] = call.to
        return described(name)

    assert set(drive(describe_transactions(view_of(0), ["x", "y"]), answer)) == {"x", "y"}
    assert asked == {"x": 1, "y": 0}


def test_an_old_broker_names_one_coordinator_at_a_time() -> None:
    def answer(call: Call) -> Reply:
        if call.ask.api.name == "FindCoordinator":
            broker = {"x": 1, "y": 0}[call.ask.message.key]
            return k10.FindCoordinatorResponse(node_id=broker)
        (name,) = call.ask.message.transactional_ids
        return described(name)

    assert set(drive(describe_transactions(view_of(0), ["x", "y"]), answer)) == {"x", "y"}


def test_a_coordinator_that_moved_is_asked_for_again() -> None:
    pauses: list[Pause] = []
    unready = k10.Coordinator(key="x", error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    answers = by_api(
        Metadata=metadata(0),
        FindCoordinator=[
            Cause.UNREACHABLE,
            k10.FindCoordinatorResponse(coordinators=[unready]),
            coordinated(x=9),
            coordinated(other=1),
            coordinated(x=1),
        ],
        DescribeTransactions=[
            Cause.TIMED_OUT,
            described("x", code=ErrorCode.NOT_COORDINATOR),
            described("x"),
        ],
    )
    assert drive(describe_transactions(view_of(0), ["x"]), answers, pauses)["x"] is not None
    assert [one.because for one in pauses] == [
        "unreachable",
        "no coordinator for 'x': COORDINATOR_NOT_AVAILABLE",
        "no coordinator for 'x': NONE",
        "no coordinator for 'x'",
        "timed_out",
        "transaction x: NOT_COORDINATOR",
    ]


def test_an_id_that_nobody_knows_is_none_and_hides_no_other() -> None:
    states = [
        state_of("x", code=ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
        state_of("y", started=-1),
    ]
    answers = by_api(
        FindCoordinator=coordinated(x=0, y=0),
        DescribeTransactions=k65.DescribeTransactionsResponse(transaction_states=states),
    )
    found = drive(describe_transactions(view_of(0), ["x", "y"]), answers)
    assert found["x"] is None
    known = found["y"]
    assert known is not None
    assert known.started is None


def test_a_description_that_is_refused_is_an_error() -> None:
    answers = by_api(
        FindCoordinator=coordinated(x=0),
        DescribeTransactions=described("x", code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    )
    with pytest.raises(Rejected, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        drive(describe_transactions(view_of(0), ["x"]), answers)


def test_a_coordinator_that_is_refused_is_an_error() -> None:
    row = k10.Coordinator(key="x", error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    answers = by_api(FindCoordinator=k10.FindCoordinatorResponse(coordinators=[row]))
    with pytest.raises(Rejected, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        drive(describe_transactions(view_of(0), ["x"]), answers)


# -- fence --------------------------------------------------------------------------------------


def test_a_producer_is_fenced_once_what_it_left_is_ended_and_the_id_keeps_its_time_out() -> None:
    asked: list[k22.InitProducerIdRequest] = []
    codes = [ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR, ErrorCode.NONE]

    def answer(call: Call) -> Reply:
        match call.ask.api.name:
            case "FindCoordinator":
                return coordinated(x=1, new=0)
            case "DescribeTransactions":
                (name,) = call.ask.message.transactional_ids
                gone = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
                return described(name, code=gone if name == "new" else 0)
            case _:
                asked.append(call.ask.message)
                code = codes.pop(0) if codes else ErrorCode.NONE
                return k22.InitProducerIdResponse(error_code=code, producer_id=7, producer_epoch=2)

    found = drive(fence_producers(view_of(0), ["x", "new"]), answer)
    assert found == {"x": Identity(7, 2), "new": Identity(7, 2)}
    assert [one.transactional_id for one in asked] == ["x", "x", "x", "new"]
    assert [one.transaction_timeout_ms for one in asked] == [45_000] * 3 + [60_000]
    assert {(one.producer_id, one.producer_epoch) for one in asked} == {(-1, -1)}
