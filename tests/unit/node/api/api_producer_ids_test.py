"""Producer ids come out of blocks, and nobody gets one twice."""

from tidelog.kernel.ids import ProducerId
from tidelog.node.api.producer_ids import Allocate, ProducerIds
from tidelog.wire.errors import ErrorCode

Block = tuple[ProducerId, int] | ErrorCode


class Coordinator:
    """Answers when told to."""

    def __init__(self) -> None:
        self.asked = 0
        self._answers: list[object] = []

    def __call__(self, done: object) -> None:
        self.asked += 1
        self._answers.append(done)

    def answer(self, block: Block) -> None:
        done = self._answers.pop(0)
        assert callable(done)
        done(block)


def block(first: int, count: int) -> Block:
    return (ProducerId(first), count)


def ids_of(coordinator: Coordinator) -> tuple[ProducerIds, list[ProducerId | ErrorCode]]:
    allocate: Allocate = coordinator
    return ProducerIds(allocate), []


def test_one_block_serves_many_askers_who_came_while_it_was_asked_for() -> None:
    coordinator = Coordinator()
    ids, got = ids_of(coordinator)
    for _ in range(3):
        ids.take(got.append)
    assert (coordinator.asked, got) == (1, [])
    coordinator.answer(block(100, 1000))
    assert got == [100, 101, 102]
    ids.take(got.append)
    assert (coordinator.asked, got[-1]) == (1, 103)


def test_an_empty_block_is_followed_by_the_next() -> None:
    coordinator = Coordinator()
    ids, got = ids_of(coordinator)
    for _ in range(5):
        ids.take(got.append)
    coordinator.answer(block(0, 2))
    coordinator.answer(block(70, 2))
    coordinator.answer(block(90, 2))
    assert got == [0, 1, 70, 71, 90]


def test_without_the_coordinator_every_asker_is_told_and_the_next_tries_again() -> None:
    coordinator = Coordinator()
    ids, got = ids_of(coordinator)
    ids.take(got.append)
    ids.take(got.append)
    coordinator.answer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert got == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2
    ids.take(got.append)
    coordinator.answer(block(5, 1))
    assert (coordinator.asked, got[-1]) == (2, 5)
