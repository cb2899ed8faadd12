"""The coordinator's writer of the metadata log, when it is closed in the middle of its work."""

import asyncio
import threading
from typing import Any, cast

from tidelog.coordinator.controller.front import Append
from tidelog.coordinator.runtime.journal import Journal
from tidelog.coordinator.runtime.writer import Writer
from tidelog.kernel.ids import Offset


class SlowJournal:
    """Writes when it is told to."""

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.written: list[int] = []

    def write(self, batches: list[Append], _epoch: int) -> Offset:
        self.goes_on.wait(10)
        self.written += [one.ticket for one in batches]
        return Offset(batches[-1].base + len(batches[-1].records))


def test_what_waits_for_its_turn_when_the_writer_is_closed_is_not_begun() -> None:
    async def run() -> None:
        loop, journal, failures = asyncio.get_running_loop(), SlowJournal(), list[Any]()
        loop.set_exception_handler(lambda _loop, context: failures.append(context))
        told = asyncio.Event()
        writer = Writer(
            loop,
            cast("Journal", journal),
            on_written=lambda _batches: told.set(),
            on_failed=failures.append,
        )
        for ticket in (1, 2):  # the second one waits for the first
            writer.append(Append(ticket, Offset(0), ()), 1)
        journal.goes_on.set()
        writer.close()
        await asyncio.wait_for(told.wait(), 10)
        await asyncio.sleep(0)
        assert (journal.written, failures) == ([1], [])

    asyncio.run(run())
