"""A task of an exactly-once sink that begins after its driver has given up writes nothing."""

import pytest

from harness.processes.cluster import Cluster
from harness.spark.answers import changed_answers
from harness.spark.plain import Place
from harness.spark.stand import Stand
from tidelog.clients.asking import Ask
from tidelog.clients.failures import ClientError, UnsupportedError
from tidelog.spark.exactly_once import Committer
from tidelog.spark.sink_permits import NEVER_REPLACED
from tidelog.spark.tasks import SinkError
from tidelog.wire.header import AnyApi
from tidelog.wire.messages.k00_produce import API as PRODUCE
from tidelog.wire.messages.k09_offset_fetch import API as OFFSET_FETCH
from tidelog.wire.messages.k22_init_producer_id import API as INIT_PRODUCER_ID
from tidelog.wire.messages.k28_txn_offset_commit import API as TXN_OFFSET_COMMIT
from tidelog.wire.messages.k65_describe_transactions import API as DESCRIBE_TRANSACTIONS

pytestmark = pytest.mark.slow

TOO_LATE = "gave micro-batch 0 up before task 1 began"


@pytest.fixture(scope="module")
def place(cluster: Cluster) -> Place:
    return Place(cluster.bootstrap)


@pytest.fixture(scope="module")
def kafka(shared_kafka: str) -> Place:
    return Place(shared_kafka)


@pytest.mark.parametrize("where", ["place", "kafka"])
def test_a_task_that_begins_after_its_driver_has_given_up_leaves_nothing_open(
    where: str, request: pytest.FixtureRequest
) -> None:
    stand = Stand(request.getfixturevalue(where))
    stand.plan_job()
    stand.write(0, 0)
    stand.give_up(2)
    with pytest.raises(SinkError, match=TOO_LATE):
        stand.write(0, 1)
    stand.holds()
    stand.plan_job()
    stand.micro_batch(0, 2)
    stand.holds((0, 0), (0, 1))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    "api",
    [DESCRIBE_TRANSACTIONS, INIT_PRODUCER_ID, OFFSET_FETCH, PRODUCE, TXN_OFFSET_COMMIT],
    ids=lambda one: one.name,
)
def test_a_driver_that_gives_up_at_any_step_of_a_task_leaves_nothing_open(
    place: Place, api: AnyApi, version: int
) -> None:
    """Also right before the task takes its transactional id over, when its permit was still good
    a moment ago."""
    stand = Stand(place)
    stand.plan_job()
    with changed_answers(place, version) as (client, network):

        def give_up(ask: Ask) -> None:
            if ask.api is api:
                network.before = lambda _ask: None
                stand.give_up(2)

        network.before = give_up
        with pytest.raises((SinkError, ClientError)) as refused:
            stand.write(0, 1, client=client)
    if api not in {PRODUCE, TXN_OFFSET_COMMIT}:
        assert TOO_LATE in str(refused.value)
    stand.holds()


def test_a_task_of_a_run_that_has_failed_does_not_disturb_the_run_that_follows(
    place: Place,
) -> None:
    stand = Stand(place)
    stand.plan_job()
    before = stand.permit
    stand.give_up(2)
    stand.plan_job()
    after = stand.permit
    for number in (0, 1):
        stand.write(0, number)
    stand.permit = before
    with pytest.raises(SinkError, match=TOO_LATE):
        stand.write(0, 1)
    stand.permit = after
    stand.finish(0)
    stand.holds((0, 0), (0, 1))


@pytest.mark.parametrize("where", ["place", "kafka"])
def test_the_first_job_has_a_permit_and_a_new_one_follows_each_failure(
    where: str, request: pytest.FixtureRequest
) -> None:
    stand = Stand(request.getfixturevalue(where))
    permits = []
    for _ in range(3):
        stand.plan_job()
        permits.append(stand.permit)
        stand.give_up(1)
    assert permits[0] == NEVER_REPLACED
    assert len(set(permits)) == 3


def test_brokers_that_cannot_tell_the_permit_let_tasks_begin_without_one(place: Place) -> None:
    stand = Stand(place)
    with changed_answers(place, 2) as (client, network):

        def too_old(ask: Ask) -> None:
            if ask.api is DESCRIBE_TRANSACTIONS:
                raise UnsupportedError("broker 0 does not offer DescribeTransactions")

        network.before = too_old
        permit = Committer(client, stand.options(), stand.sink).permit()
        assert permit is None
        stand.permit = permit
        stand.micro_batch(0, 2, client=client)
    stand.holds((0, 0), (0, 1))
