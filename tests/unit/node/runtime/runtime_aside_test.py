"""Long work in threads: its results come to the loop, in a fair order, and its bugs too."""

import asyncio
import threading
from collections.abc import Callable

from tidelog.kernel.instant import Instant
from tidelog.kernel.steps import Pace, Steps, behind_all, one_step
from tidelog.node.runtime.aside import Aside


def results_of(begin: Callable[[Aside, Callable[[Instant, str], None]], int]) -> list[str]:
    """What comes back of the work that `begin` asks for, in the order in which it comes."""

    async def run() -> list[str]:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        found: list[str] = []

        def done(_now: Instant, result: str) -> None:
            found.append(result)
            if len(found) == expected:
                ended.set_result(None)

        expected = begin(Aside(loop), done)
        await asyncio.wait_for(ended, 30)
        return found

    return asyncio.run(run())


def numbered(name: str, *paces: Pace) -> Steps[str]:
    yield from paces
    return name


def test_results_come_to_the_loop_in_the_order_they_were_asked_for() -> None:
    threads: set[int] = set()

    def work(number: int) -> str:
        threads.add(threading.get_ident())
        return str(number)

    def begin(aside: Aside, done: Callable[[Instant, str], None]) -> int:
        for number in range(10):
            aside(one_step(lambda number=number: work(number)), done)  # type: ignore[misc] # bound early
        return 10

    assert results_of(begin) == [str(number) for number in range(10)]
    assert threading.get_ident() not in threads


def test_work_of_many_parts_lets_others_have_their_turn_after_each() -> None:
    def begin(aside: Aside, done: Callable[[Instant, str], None]) -> int:
        begun = threading.Event()

        def first() -> Steps[str]:
            begun.wait(30)
            yield from [Pace.NEXT] * 3
            return "many parts"

        aside(first(), done)
        aside(numbered("short", Pace.GO_ON), done)
        aside(numbered("two parts", Pace.NEXT), done)
        begun.set()
        return 3

    assert results_of(begin) == ["short", "two parts", "many parts"]


def test_heavy_work_does_not_hold_up_ordinary_work() -> None:
    def begin(aside: Aside, done: Callable[[Instant, str], None]) -> int:
        short_is_done = threading.Event()

        def heavy() -> Steps[str]:
            yield Pace.HEAVY
            assert short_is_done.wait(30)
            yield Pace.GO_ON
            return "heavy"

        def short() -> str:
            short_is_done.set()
            return "short"

        aside(heavy(), done)
        aside(heavy(), done)
        aside(one_step(short), done)
        return 3

    assert results_of(begin) == ["short", "heavy", "heavy"]


def test_one_heavy_batch_at_a_time_is_in_memory() -> None:
    def begin(aside: Aside, done: Callable[[Instant, str], None]) -> int:
        held: list[str] = []

        def heavy(name: str) -> Steps[str]:
            yield Pace.HEAVY
            held.append(name)
            yield Pace.GO_ON
            assert held == [name]
            held.remove(name)
            return name

        for number in range(3):
            aside(heavy(str(number)), done)
        return 3

    assert results_of(begin) == ["0", "1", "2"]


def test_a_bug_in_it_is_the_loop_s() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        caught: asyncio.Future[BaseException] = loop.create_future()
        loop.set_exception_handler(lambda _loop, context: caught.set_result(context["exception"]))
        Aside(loop)(one_step(lambda: 1 // 0), lambda _now, _result: None)
        assert isinstance(await caught, ZeroDivisionError)

    asyncio.run(run())


def test_who_waits_for_all_work_comes_behind_heavy_work_too() -> None:
    """In front of it, a search that waits for memory would come again and again until it is there,
    and take the processor from the work that has the memory."""

    def begin(aside: Aside, done: Callable[[Instant, str], None]) -> int:
        has_waited = threading.Event()

        def heavy() -> Steps[str]:
            yield Pace.HEAVY
            has_waited.wait(0.2)  # for who might come before
            return "heavy"

        def waits() -> Steps[str]:
            yield from behind_all()
            has_waited.set()
            return "waits"

        aside(heavy(), done)
        aside(waits(), done)
        return 2

    assert results_of(begin) == ["heavy", "waits"]
