"""What a client knows of a cluster, and the runner that asks on behalf of plans."""

import pytest

from harness.machines.plans import TOPIC_ID, FakeNetwork, Reply, metadata, view_of
from tidelog.clients.asking import Address, Ask, Call, Cause, Lost, Pause, Plan, Somewhere
from tidelog.clients.client import Client
from tidelog.clients.cluster_view import METADATA_OF_NOTHING, ClusterView, refresh
from tidelog.clients.failures import TimedOutError, UnreachableError
from tidelog.clients.retry import Backoff
from tidelog.kernel.ids import NO_EPOCH, ZERO_UUID, Partition, TopicPartition, Uuid
from tidelog.kernel.instant import Instant, ms, s
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k03_metadata import MetadataResponse, MetadataResponseTopic

ZERO: TopicPartition = ("t", Partition(0))
FIRST, SECOND = Address("first", 1), Address("second", 2)
ASK = METADATA_OF_NOTHING.ask


# -- the view -----------------------------------------------------------------------------------


def test_an_older_epoch_does_not_undo_a_newer_one() -> None:
    view = ClusterView()
    view.update(metadata(0, epoch=5, topic_id=TOPIC_ID), whole=False)
    view.update(metadata(1, epoch=4, topic_id=TOPIC_ID), whole=False)
    assert (view.leader(ZERO), view.epoch(ZERO)) == (0, 5)
    view.update(metadata(1, epoch=6, topic_id=TOPIC_ID), whole=False)
    assert view.leader(ZERO) == 1


def test_a_topic_that_was_made_anew_begins_again() -> None:
    view = ClusterView()
    view.update(metadata(0, epoch=5, topic_id=TOPIC_ID), whole=False)
    view.update(metadata(1, epoch=0, topic_id=Uuid(bytes(15) + b"x")), whole=False)
    assert (view.leader(ZERO), view.epoch(ZERO)) == (1, 0)


def test_a_leader_that_is_no_known_broker_is_none() -> None:
    view = view_of(7)
    assert view.leader(ZERO) is None
    assert view.by_leader([ZERO]) == ({}, [ZERO])


def test_what_is_not_known_has_neutral_answers() -> None:
    view = ClusterView()
    assert view.leader(ZERO) is None
    assert view.epoch(ZERO) == NO_EPOCH
    assert view.topic_id("t") == ZERO_UUID
    assert view.name_of(TOPIC_ID) is None
    assert view.partition_count("t") == 0


def test_topics_are_found_by_id() -> None:
    view = view_of(0, 0, topic_id=TOPIC_ID)
    assert (view.name_of(TOPIC_ID), view.partition_count("t")) == ("t", 2)
    assert view.topics["t"].has_id


def test_an_error_takes_the_topic_away_and_the_topic_takes_the_error_away() -> None:
    view = view_of(0)
    view.update(metadata(error=3), whole=False)
    assert (view.topics, view.errors) == ({}, {"t": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    view.update(metadata(0), whole=False)
    assert (list(view.topics), view.errors) == (["t"], {})


def test_a_whole_answer_forgets_what_it_does_not_name() -> None:
    view = view_of(0)
    view.update(metadata(error=3, topic="u"), whole=False)
    view.update(metadata(0, topic="v"), whole=True)
    assert (list(view.topics), view.errors) == (["v"], {})


def test_an_answer_without_brokers_keeps_those_known() -> None:
    view = view_of(0)
    view.update(MetadataResponse(), whole=False)
    assert view.brokers.keys() == {0, 1}


def test_a_topic_without_a_name_is_passed_over() -> None:
    view = ClusterView()
    row = MetadataResponseTopic(error_code=100, name=None)
    view.update(MetadataResponse(topics=[row]), whole=False)
    assert view.errors == {}


def test_waits_double_up_to_the_longest() -> None:
    backoff = Backoff(first_ns=ms(50), longest_ns=s(1))
    assert [backoff.wait(n) // ms(1) for n in (1, 2, 5, 6, 1_000)] == [50, 100, 800, 1_000, 1_000]


def test_an_address_is_written_as_people_write_it() -> None:
    assert [str(Address("b", 1)), str(Address("::1", 9092))] == ["b:1", "[::1]:9092"]


# -- the runner ---------------------------------------------------------------------------------


def test_connecting_takes_the_first_address_that_answers() -> None:
    network = FakeNetwork(lambda to, _: Cause.UNREACHABLE if to == FIRST else metadata(0))
    client = Client(network, [FIRST, SECOND, FIRST])
    client.connect()
    assert [to for to, _ in network.asked] == [FIRST, SECOND]
    assert client.view.brokers.keys() == {0, 1}


def test_connecting_fails_when_each_address_was_tried() -> None:
    network = FakeNetwork(lambda _to, _ask: Cause.UNREACHABLE)
    with pytest.raises(UnreachableError, match="no broker answers"):
        Client(network, [FIRST, SECOND]).connect()
    assert len(network.asked) == 2


def test_connecting_gives_up_on_an_address_that_is_silent_after_the_time_given() -> None:
    network = FakeNetwork(lambda _to, _ask: None)
    began = network.now()
    with pytest.raises(TimedOutError, match=f"{FIRST} did not answer in time"):
        Client(network, [FIRST, SECOND], timeout_ns=s(30)).connect(s(5))
    assert network.now() - began == s(5)


def test_connecting_names_every_address_that_was_tried_in_the_time_given() -> None:
    network = FakeNetwork(lambda to, _: Cause.TIMED_OUT if to == FIRST else None)
    with pytest.raises(TimedOutError, match=f"timed_out; {SECOND} did not answer in time"):
        Client(network, [FIRST, SECOND]).connect(s(5))


def test_brokers_that_were_heard_of_are_asked_when_the_first_ones_are_gone() -> None:
    network = FakeNetwork(lambda _to, _ask: metadata(0))
    client = Client(network, [FIRST])
    client.run(refresh(client.view, None))
    client.run(refresh(client.view, None))
    network.answer = lambda to, _: Cause.UNREACHABLE if to == FIRST else metadata(1)
    client.run(refresh(client.view, None))
    assert client.view.leader(ZERO) == 1


def test_a_plan_that_takes_too_long_is_given_up_with_its_reason() -> None:
    network = FakeNetwork(lambda _to, _ask: Cause.UNREACHABLE)
    client = Client(network, [FIRST], timeout_ns=s(2))
    with pytest.raises(TimedOutError, match="gave up after 2 s: unreachable"):
        client.run(refresh(client.view, None))
    assert network.time <= s(2)


def test_a_question_without_an_answer_is_given_up() -> None:
    client = Client(FakeNetwork(lambda _to, _ask: None), [FIRST], timeout_ns=s(2))
    with pytest.raises(TimedOutError):
        client.run(refresh(client.view, None))


def test_outcomes_of_others_are_kept_for_them() -> None:
    network = FakeNetwork(lambda _to, _ask: metadata(0))
    client = Client(network, [FIRST])
    ticket = client.ask(Call(Somewhere.ANY, ASK))
    client.run(refresh(client.view, None))
    (kept,) = client.poll(Instant(0))
    assert kept.ticket == ticket
    assert client.poll(Instant(5)) == []


def test_a_pause_takes_time_and_keeps_what_comes() -> None:
    network = FakeNetwork(lambda _to, _ask: metadata(0))
    client = Client(network, [FIRST])
    client.ask(Call(Somewhere.ANY, ASK))

    def plan() -> Plan[str]:
        assert (yield Pause(ms(5), "a test")) == []
        return "done"

    assert client.run(plan()) == "done"
    assert network.time == ms(5)
    assert len(client.poll(Instant(0))) == 1


def test_a_broker_that_is_not_known_is_not_asked() -> None:
    def answer(to: Address, ask: Ask) -> Reply:
        raise AssertionError((to, ask))

    client = Client(FakeNetwork(answer), [FIRST])

    def plan() -> Plan[list[str]]:
        outcomes = yield [Call(7, ASK), Call(Somewhere.CONTROLLER, ASK)]
        return [one.detail for one in outcomes if isinstance(one, Lost)]

    assert client.run(plan()) == [
        "broker 7 is not known to be alive",
        "the controller is not known to be alive",
    ]
    assert client.ask(Call(7, ASK)) is None
