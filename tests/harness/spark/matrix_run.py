"""Runs cells of the matrix: strike, go on until the work ends in order, and count the rows.

One session of Spark runs groups of cells; cells that end their driver are gone on with by the next
session. The rows are counted by confluent-kafka's reader of committed records.
"""

import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import confluent_kafka

from harness.clients.committed_rows import committed_rows
from harness.processes.cluster import until
from harness.spark.matrix import ALL, COMMANDS, Cell, Delivery, Form, What
from harness.spark.matrix_program import CONF, DIGITS, FEW_TASKS, command_words, master
from harness.spark.matrix_results import NOT_RUN, NOT_STRUCK, Result
from harness.spark.matrix_strikes import ROWS, Order
from harness.spark.plain import Place
from harness.spark.programs import ANSWER_S, Session
from harness.spark.shared import SharedSpark
from harness.suite.need import need

_ROW_BYTES: Final = 1_000
"""Enough that the sink has rows in its hands long before the last ones come."""
TOGETHER: Final = 8
"""Cells at most of which a session has tasks that stand still."""
_TASKS: Final = 2 * TOGETHER
"""At a time, of such a session: also the last cell needs both of its tasks at work."""
TRIES: Final = 6
"""How often a user starts again what did not end in order."""
PLANTED_TRIES: Final = 2
"""Of what shall not end in order."""
_FAILS: Final = (What.FUNCTION, What.SQL, What.SOURCE, What.SHUFFLE, What.NEIGHBOUR)
"""However often Spark tries a task or a stage again."""
_SIGNALS: Final = {
    What.SIGINT: signal.SIGINT,
    What.SIGTERM: signal.SIGTERM,
    What.JVM: signal.SIGKILL,
    What.PYTHON: signal.SIGKILL,
}


class Sessions:
    """Sessions of Spark, of which one works at a time. Use it as a context, which ends them all."""

    def __init__(self, folder: Path) -> None:
        need("java")
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self._all: list[Session] = []
        self._living: Session | None = None
        self._tasks = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end_all()

    def living(self, tasks: int) -> Session:
        """The one that works through cells, with so many tasks at a time."""
        if self._living is not None and self._tasks != tasks:
            self.end_all()
        if self._living is None:
            self._living = self.started("harness.spark.matrix_program", str(tasks))
            self._tasks = tasks
            assert self._living.answer() == {"ready": True}, self.folder
        return self._living

    def asked(self, tasks: int, request: dict[str, Any], cells: int) -> list[str] | None:
        """What the one that works answers to each of so many cells; None if it has ended."""
        driver = self.living(tasks)
        driver.ask(request)
        said = driver.answer(cells)
        if said is None:
            self.leave()
            return None
        found: list[str] = said["answers"]
        return found

    def leave(self) -> None:
        """What it has left behind may go on beside the next one."""
        self._living = None

    def end_left(self) -> None:
        """Whatever of earlier ones has gone on until now."""
        for session in self._all:
            if session is not self._living:
                session.end()
        self._all = [one for one in self._all if one is self._living]

    def end_all(self) -> None:
        """The next cell gets a session of its own."""
        self.leave()
        self.end_left()

    def started(self, *words: str) -> Session:
        session = Session(self.folder, *words)
        self._all.append(session)
        return session


class Matrix:
    """Cells on one cluster."""

    def __init__(
        self, bootstrap: str, sessions: Sessions, label: str, *, planted: bool = False
    ) -> None:
        self.bootstrap = bootstrap
        self.sessions = sessions
        self.label = label
        self.planted = planted
        self.place = Place(bootstrap)
        self.source = self.place.topic(partitions=2)
        self._sinks: dict[Cell, str] = {}
        _fill(bootstrap, self.source)

    def run(self, cells: Iterable[Cell]) -> Iterator[list[Result]]:
        """One group of cells after the other, each as soon as its rows are counted."""
        for group in grouped(cells):
            began = time.monotonic()
            wrong = self._outcomes(group)
            seconds = round((time.monotonic() - began) / len(group), 2)
            yield [Result(self.label, cell, wrong[cell], seconds) for cell in group]

    def _outcomes(self, group: Sequence[Cell]) -> dict[Cell, str]:
        """What is wrong with each cell of a group; empty if nothing is."""
        try:
            self._sinks |= {cell: self._sink(cell) for cell in group}
            self._name(group)
            wrong = self._struck(group)
            wrong |= self._done([cell for cell in group if not wrong[cell]])
            self.sessions.end_left()
            return wrong | self._counted([cell for cell in group if not wrong[cell]])
        except (AssertionError, OSError, subprocess.TimeoutExpired) as error:
            # Nobody knows what the session is doing: the next cells get another one.
            self.sessions.end_all()
            return dict.fromkeys(group, f"{NOT_RUN}: {error}")
        finally:
            for cell in group:
                self._order(cell).take_back()

    def _counted(self, group: Sequence[Cell]) -> dict[Cell, str]:
        """What is wrong with the rows that a reader of committed records finds."""
        rows = committed_rows(self.bootstrap, [self._sinks[cell] for cell in group])
        return {
            cell: wrong_rows(
                rows.get(self._sinks[cell], []), once=cell.how.delivery is not Delivery.AT_LEAST
            )
            for cell in group
        }

    # -- a group of cells

    def _order(self, cell: Cell) -> Order:
        name = f"{self.label}-{cell.name}"
        return Order(self.sessions.folder, name, cell, planted=self.planted)

    def _name(self, group: Sequence[Cell]) -> None:
        """Replays choose a topic by the hash that Spark has for its name."""
        if any(cell.how.form is Form.REPLAY for cell in group):
            asked = self._asked(group, struck=False, names=True)
            self._sinks |= dict(zip(group, asked, strict=True))

    def _struck(self, group: Sequence[Cell]) -> dict[Cell, str]:
        """Run them until they are struck; what is wrong with that."""
        if any(cell.kills_driver for cell in group):
            self._end_driver(group)
            answers = ["the driver has ended"] * len(group)
        else:
            answers = self._asked(group, struck=True)
            if any(cell.spoils_session for cell in group):
                self.sessions.end_all()
        wrong = {}
        for cell, said in zip(group, answers, strict=True):
            wrong[cell] = ""
            if not self._order(cell).struck.exists():
                wrong[cell] = f"{NOT_STRUCK}: {said or 'it ended in order'}"
            elif not said and cell.what in _FAILS:
                wrong[cell] = "it ended in order though it was struck"
        return wrong

    def _done(self, group: Sequence[Cell]) -> dict[Cell, str]:
        """Run them until they end in order."""
        wrong: dict[Cell, str] = {}
        tries = PLANTED_TRIES if self.planted else TRIES
        for _ in range(tries):
            if group:
                answers = self._asked(group, struck=False)
                wrong |= dict(zip(group, answers, strict=True))
                group = [cell for cell in group if wrong[cell]]
        for cell in group:
            wrong[cell] = f"no run of {tries} ended in order: {wrong[cell]}"
        return wrong

    def _sink(self, cell: Cell) -> str:
        form, name = cell.how.form, self._order(cell).name
        if form is Form.MIRROR:
            return f"{name}-{self.source}"
        return f"replayed-{name}" if form is Form.REPLAY else self.place.topic(partitions=2)

    def _asked(self, group: Sequence[Cell], *, struck: bool, names: bool = False) -> list[str]:
        """Of the session of the moment; its answer for each cell."""
        request = self._request(group, struck=struck, names=names)
        said = self.sessions.asked(_tasks_of(group), request, len(group))
        return ["the program has ended"] * len(group) if said is None else said

    def _request(
        self, group: Sequence[Cell], *, struck: bool, names: bool = False
    ) -> dict[str, Any]:
        places = {"source": self.source, "bootstrap": self.bootstrap, "struck": struck}
        works = [{**self._order(cell).said, **places, "sink": self._sinks[cell]} for cell in group]
        return {"works": works, "names": names}

    # -- the end of a driver

    def _end_driver(self, group: Sequence[Cell]) -> None:
        """While a task of each cell stands still."""
        orders = [self._order(cell) for cell in group]
        for order in orders:
            order.give()
        is_command = group[0].how.form in COMMANDS
        living = partial(self.sessions.living, _tasks_of(group))
        driver = self._commanded(orders[0]) if is_command else living()
        if not is_command:
            driver.ask(self._request(group, struck=True))
        for order in orders:
            until(partial(_is_held, order, driver), f"{order.name}: a task stands still", ANSWER_S)
        what = group[0].what
        _hit(driver, what)
        for order in orders:
            order.goes_on.touch()
        if is_command:
            code = driver.process.wait(ANSWER_S)
            assert code, f"{orders[0].name}: the command ended in order though it was hit"
        elif driver.answer() is None or what is not What.SIGINT:
            # A program may live through Ctrl-C with its session, and without it through the death
            # of the JVM.
            self.sessions.leave()
        for order in orders:
            order.take_back()

    def _commanded(self, order: Order) -> Session:
        """A session of its own, of the command."""
        sink = self._sinks[order.cell]
        words = command_words(order, self.bootstrap, self.source, sink)
        more = [f"--conf={name}={value}" for name, value in CONF.items()]
        form = order.cell.how.form.value
        where = f"--master={master(FEW_TASKS)}"
        return self.sessions.started("harness.spark.matrix_command", form, *words, where, *more)


class SharedSessions(Sessions):
    """For cells that no session dies of: the one that all tests of a process share."""

    def __init__(self, spark: SharedSpark) -> None:
        super().__init__(spark.folder)
        self._spark = spark
        spark.clear()

    def asked(self, tasks: int, request: dict[str, Any], cells: int) -> list[str]:  # noqa: ARG002 -- it has as many as a single cell needs
        found: list[str] = self._spark.answers("matrix_program", **request)
        return found


def _hit(driver: Session, what: What) -> None:
    """As the cell says."""
    for pid in driver.machines() if what is What.JVM else [driver.process.pid]:
        os.kill(pid, _SIGNALS[what])


def _tasks_of(group: Sequence[Cell]) -> int:
    """At a time."""
    return FEW_TASKS if len(group) == 1 else _TASKS


def grouped(cells: Iterable[Cell]) -> Iterator[list[Cell]]:
    """Cells that one driver's death strikes at once, for to start a driver is most of what they
    cost; all others one by one, and first."""
    groups: dict[What, list[Cell]] = {}
    for cell in cells:
        if cell.kills_driver and cell.how.form not in COMMANDS:
            groups.setdefault(cell.what, []).append(cell)
        else:
            yield [cell]
    for at in range(0, len(ALL), TOGETHER):
        yield from filter(None, (some[at : at + TOGETHER] for some in groups.values()))


def _fill(bootstrap: str, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for n in range(ROWS):
        row = b"%0*d" % (DIGITS, n) + os.urandom(_ROW_BYTES)
        producer.produce(topic, row, partition=n % 2)
    assert producer.flush(30) == 0


def _is_held(order: Order, driver: Session) -> bool:
    """Or it never will be: its run has ended, or the whole driver has."""
    is_over = order.goes_on.exists() or driver.process.poll() is not None
    return order.held.exists() or is_over


def wrong_rows(rows: Collection[bytes], *, once: bool) -> str:
    """What is wrong with the rows of a copy."""
    counts = Counter(row[:DIGITS] for row in rows)
    wanted = {b"%0*d" % (DIGITS, n) for n in range(ROWS)}
    missing = len(wanted - counts.keys())
    foreign = len(counts.keys() - wanted)
    doubled = sum(1 for count in counts.values() if count > 1) if once else 0
    if not missing and not foreign and not doubled:
        return ""
    return f"of {ROWS} rows {missing} are missing, {doubled} are doubled; {foreign} are not its"
