"""The producer of transactions where each end takes an epoch: what it asks, and after what errors
it goes on.
"""

import pytest

from harness.machines.plans import FakeNetwork
from harness.machines.toy_transactions import VERSION_2, ToyTransactions
from tidelog.clients.asking import Address, Cause, Features
from tidelog.clients.client import Client
from tidelog.clients.failures import AbortableError, FatalError, TimedOutError
from tidelog.clients.producer.life import Phase
from tidelog.clients.producer.sender import Identity
from tidelog.clients.producer.transaction import Membership
from tidelog.clients.producer.transactional import TransactionalProducer
from tidelog.clients.settings import ProducerSettings
from tidelog.kernel.ids import Partition
from tidelog.kernel.instant import s
from tidelog.wire.errors import ErrorCode
from tidelog.wire.records import Record

PLACE = ("in", Partition(3))
ME = Membership("g")


class Scene:
    """A producer that has its id, and its cluster."""

    def __init__(self) -> None:
        self.cluster = ToyTransactions(bumps=True)
        self.network = FakeNetwork(self.cluster, features=VERSION_2)
        client = Client(self.network, [Address("b0", 9092)], timeout_ns=s(5))
        client.connect()
        settings = ProducerSettings(
            transactional_id="x", request_timeout_ns=s(1), delivery_timeout_ns=s(3)
        )
        self.producer = TransactionalProducer(client, settings)
        self.producer.open("t")
        self.cluster.done.clear()

    def begin(self, *values: bytes) -> None:
        self.producer.begin()
        for value in values:
            self.producer.send("t", Record(0, 0, None, value), Partition(0))

    @property
    def done(self) -> list[str]:
        """What was asked for, but for who is where."""
        known = {"Metadata", "FindCoordinator"}
        return [one for one in self.cluster.done if one not in known]

    @property
    def visible(self) -> list[bytes]:
        return self.cluster.logs[0].visible()


def test_nobody_is_told_of_partitions_and_groups_before_they_are_written_to() -> None:
    scene = Scene()
    for number in range(2):
        scene.begin(b"%d" % number)
        scene.producer.send_offsets({PLACE: number}, ME)
        scene.producer.commit()
        assert scene.producer.identity == Identity(7, number + 1)
    assert scene.done == ["TxnOffsetCommit", "Produce", "EndTxn"] * 2
    assert scene.visible == [b"0", b"1"]
    assert scene.cluster.offsets == {PLACE: 1}


def test_a_transaction_of_nothing_asks_nobody() -> None:
    scene = Scene()
    for end in (scene.producer.commit, scene.producer.abort):
        scene.begin()
        end()
    scene.begin(b"never sent")
    scene.producer.abort()
    assert scene.done == []


def test_after_an_error_the_abort_gives_the_next_epoch() -> None:
    """No other question is needed, whatever became of the numbers that were given out."""
    scene = Scene()
    scene.cluster.codes["Produce"] = [ErrorCode.TRANSACTION_ABORTABLE]
    scene.begin(b"a")
    with pytest.raises(AbortableError):
        scene.producer.commit()
    scene.producer.abort()
    assert scene.producer.identity == Identity(7, 1)
    scene.begin(b"b")
    scene.producer.commit()
    assert scene.visible == [b"b"]
    assert "InitProducerId" not in scene.done


def test_a_producer_whose_time_was_up_goes_on() -> None:
    scene = Scene()
    scene.begin(b"a")
    scene.producer.flush()
    scene.cluster.time_out()
    with pytest.raises(AbortableError, match="open for longer than its time-out"):
        scene.producer.commit()
    scene.producer.abort()
    scene.begin(b"b")
    scene.producer.commit()
    assert scene.visible == [b"b"]
    assert scene.producer.identity == Identity(7, 2)


def test_one_whose_id_another_has_taken_does_not() -> None:
    scene = Scene()
    scene.begin(b"a")
    scene.producer.flush()
    scene.cluster.fence()
    with pytest.raises(FatalError, match="another producer has taken"):
        scene.producer.commit()
    assert scene.producer.phase is Phase.DEAD


def test_a_commit_that_nobody_answers_is_made_again_and_gives_the_same_epoch() -> None:
    scene = Scene()
    scene.begin(b"a")
    scene.producer.flush()
    scene.cluster.codes["EndTxn"] = [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 300
    with pytest.raises(TimedOutError):
        scene.producer.commit()
    scene.cluster.codes.clear()
    answer = scene.cluster._EndTxn
    lost: list[object] = []

    def once_lost(request: object, code: ErrorCode) -> object:
        said = answer(request, code)
        lost.append(said)
        return Cause.UNREACHABLE if len(lost) == 1 else said

    scene.cluster._EndTxn = once_lost  # type: ignore[method-assign]  # its first answer is lost
    scene.producer.commit()
    assert len(lost) == 2
    assert scene.producer.identity == Identity(7, 1)
    assert scene.visible == [b"a"]


@pytest.mark.parametrize(
    "features",
    [Features(), Features(9, {"transaction.version": 1}), Features(-1, {"transaction.version": 2})],
)
def test_what_the_cluster_has_is_looked_at_when_a_transaction_begins(features: Features) -> None:
    """Where no epoch was told the levels say nothing."""
    scene = Scene()
    scene.begin(b"a")
    scene.network.features = features
    scene.producer.commit()
    assert scene.done == ["Produce", "EndTxn"]
    scene.cluster.bumps = False
    scene.begin(b"b")
    scene.producer.commit()
    assert scene.done[2:] == ["AddPartitionsToTxn", "Produce", "EndTxn"]
    assert scene.visible == [b"a", b"b"]


def test_a_broker_that_does_less_than_is_meant_ends_the_producer() -> None:
    """An older one has been put in its place meanwhile."""
    scene = Scene()
    scene.begin(b"a")
    scene.producer.flush()
    scene.cluster.codes["EndTxn"] = [Cause.UNSUPPORTED]
    with pytest.raises(FatalError):
        scene.producer.commit()
