"""Long work in a thread: its results come to the loop, in order, and its bugs too."""

import asyncio
import threading

from tidelog.kernel.instant import Instant
from tidelog.node.runtime.aside import Aside


def test_results_come_to_the_loop_in_the_order_they_were_asked_for() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        aside, found = Aside(loop), []
        last: asyncio.Future[None] = loop.create_future()

        def done(_now: Instant, result: tuple[int, int]) -> None:
            number, thread = result
            assert thread != threading.get_ident()
            found.append(number)
            if number == 9:
                last.set_result(None)

        for number in range(10):
            aside(lambda number=number: (number, threading.get_ident()), done)  # type: ignore[misc] # bound early
        await last
        assert found == list(range(10))

    asyncio.run(run())


def test_a_bug_in_it_is_the_loop_s() -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        caught: asyncio.Future[BaseException] = loop.create_future()
        loop.set_exception_handler(lambda _loop, context: caught.set_result(context["exception"]))
        Aside(loop)(lambda: 1 // 0, lambda _now, _result: None)
        assert isinstance(await caught, ZeroDivisionError)

    asyncio.run(run())
