"""Runs cells of the matrix: strike, go on until the work ends in order, and count the rows.

One session of Spark does cell after cell; a cell that ends its driver is gone on with by the next
session. The rows are counted by confluent-kafka's reader of committed records.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import confluent_kafka

from harness import spark
from harness.cluster import until
from harness.committed_rows import committed_rows
from harness.need import need
from harness.spark_matrix import COMMANDS, Cell, Delivery, Form, What
from harness.spark_matrix_program import ANSWER, CONF, DIGITS, MASTER, command_words
from harness.spark_matrix_strikes import FOLDER, ROWS, Order
from harness.spark_plain import Place

_ROW_BYTES: Final = 1_000
"""Enough that the sink has rows in its hands long before the last ones come."""
TRIES: Final = 6
"""How often a user starts again what did not end in order."""
PLANTED_TRIES: Final = 2
"""Of what shall not end in order."""
_ANSWER_S: Final = 240
_FAILS: Final = (What.FUNCTION, What.SQL, What.SOURCE, What.SHUFFLE, What.NEIGHBOUR)
"""However often Spark tries a task or a stage again."""
_SIGNALS: Final = {
    What.SIGINT: signal.SIGINT,
    What.SIGTERM: signal.SIGTERM,
    What.JVM: signal.SIGKILL,
    What.PYTHON: signal.SIGKILL,
}


class Session:
    """A program with a session of Spark."""

    def __init__(self, folder: Path, *words: str) -> None:
        scratch = folder / "spark"
        scratch.mkdir(exist_ok=True)
        with (folder / "stderr").open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", *words],
                env={**spark.environment(), **spark.kept_in(scratch), FOLDER: str(folder)},
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )

    def ask(self, asked: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any] | None:
        """None if the program has ended without one."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(ANSWER):
                found: dict[str, Any] = json.loads(line.removeprefix(ANSWER))
                return found
        return None

    def hit(self, what: What) -> None:
        """The driver, as the cell says."""
        pids = [self.process.pid] if what is not What.JVM else list(_machines(self.process.pid))
        for pid in pids:
            os.kill(pid, _SIGNALS[what])

    def end(self) -> None:
        """It, and whoever is left of it."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        until(lambda: not self._kill(), "all of a session have ended")
        self.process.wait()

    def _kill(self) -> bool:
        left = [pid for pid, (_, leader) in _processes().items() if leader == self.process.pid]
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.poll()
        return bool(left)


def _machines(leader: int) -> Iterator[int]:
    """The JVMs of a session."""
    for pid, (name, session) in _processes().items():
        if name == "java" and session == leader:
            yield pid


def _processes() -> dict[int, tuple[str, int]]:
    """All that live, with their names and the leaders of their sessions."""
    found = {}
    for one in Path("/proc").iterdir():
        if one.name.isdecimal():
            with suppress(OSError):
                _, _, rest = (one / "stat").read_text().partition("(")
                name, _, numbers = rest.rpartition(")")
                state, _, _, leader = numbers.split()[:4]
                if state != "Z":
                    found[int(one.name)] = (name, int(leader))
    return found


class Sessions:
    """Sessions of Spark, of which one works at a time. Use it as a context, which ends them all."""

    def __init__(self, folder: Path) -> None:
        need("java")
        folder.mkdir()
        self.folder = folder
        self._all: list[Session] = []
        self._living: Session | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for session in self._all:
            session.end()

    def living(self) -> Session:
        """The one that works through cells."""
        if self._living is None:
            self._living = self.started("harness.spark_matrix_program")
            assert self._living.answer() == {"ready": True}, self.folder
        return self._living

    def leave(self) -> None:
        """What it has left behind may go on beside the next one."""
        self._living = None

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
        self.seconds: dict[Cell, float] = {}
        self._sinks: dict[Cell, str] = {}
        _fill(bootstrap, self.source)

    def run(self, cells: Iterable[Cell]) -> dict[Cell, str]:
        """What is wrong with each of them; empty where all is right."""
        found = {}
        for cell in cells:
            began = time.monotonic()
            self._sinks[cell] = self._sink(cell)
            found[cell] = self._struck(cell) or self._done(cell)
            self.seconds[cell] = time.monotonic() - began
        done = [cell for cell, wrong in found.items() if not wrong]
        rows = committed_rows(self.bootstrap, [self._sinks[cell] for cell in done])
        for cell in done:
            once = cell.how.delivery is not Delivery.AT_LEAST
            found[cell] = wrong_rows(rows.get(self._sinks[cell], []), once=once)
        return found

    # -- a cell

    def _order(self, cell: Cell) -> Order:
        name = f"{self.label}-{cell.name}"
        return Order(self.sessions.folder, name, cell, planted=self.planted)

    def _struck(self, cell: Cell) -> str:
        """Run it until it is struck; what is wrong with that."""
        if cell.kills_driver:
            self._end_driver(cell)
            said = "the driver has ended"
        else:
            said = self._asked(cell, struck=True)
        if not self._order(cell).struck.exists():
            return f"it was never struck: {said or 'it ended in order'}"
        return "" if said or cell.what not in _FAILS else "it ended in order though it was struck"

    def _done(self, cell: Cell) -> str:
        """Run it until it ends in order."""
        errors: list[str] = []
        while len(errors) < (PLANTED_TRIES if self.planted else TRIES):
            errors.append(self._asked(cell, struck=False))
            if not errors[-1]:
                return ""
        return f"no run of {len(errors)} ended in order: {errors[-1]}"

    def _sink(self, cell: Cell) -> str:
        form, name = cell.how.form, self._order(cell).name
        if form is Form.MIRROR:
            return f"{name}-{self.source}"
        return f"replayed-{name}" if form is Form.REPLAY else self.place.topic(partitions=2)

    def _asked(self, cell: Cell, *, struck: bool) -> str:
        """Of the session of the moment; how the run has ended."""
        driver = self.sessions.living()
        driver.ask(self._request(cell, struck=struck))
        said = driver.answer()
        if said is None:
            self.sessions.leave()
            return "the program has ended"
        self._sinks[cell] = said["sink"]
        return str(said["said"])

    def _request(self, cell: Cell, *, struck: bool) -> dict[str, Any]:
        places = {"source": self.source, "sink": self._sinks[cell], "bootstrap": self.bootstrap}
        return {**self._order(cell).said, **places, "struck": struck}

    # -- the end of a driver

    def _end_driver(self, cell: Cell) -> None:
        order = self._order(cell)
        order.give()
        if cell.how.form in COMMANDS:
            driver = self._commanded(order)
        else:
            driver = self.sessions.living()
            driver.ask(self._request(cell, struck=True))
        until(partial(_is_held, order, driver), f"{order.name}: a task stands still", _ANSWER_S)
        driver.hit(cell.what)
        order.goes_on.touch()
        if cell.how.form in COMMANDS:
            driver.process.wait(_ANSWER_S)
        elif driver.answer() is None or cell.what is not What.SIGINT:
            # A program may live through Ctrl-C with its session, and without it through the death
            # of the JVM.
            self.sessions.leave()
        order.take_back()

    def _commanded(self, order: Order) -> Session:
        """A session of its own, of the command."""
        sink = self._sinks[order.cell]
        words = command_words(order, self.bootstrap, self.source, sink)
        more = [f"--master={MASTER}", *(f"--conf={name}={value}" for name, value in CONF.items())]
        form = order.cell.how.form.value
        return self.sessions.started("harness.spark_matrix_command", form, *words, *more)


def _fill(bootstrap: str, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for n in range(ROWS):
        row = b"%0*d" % (DIGITS, n) + os.urandom(_ROW_BYTES)
        producer.produce(topic, row, partition=n % 2)
    assert producer.flush(30) == 0


def _is_held(order: Order, driver: Session) -> bool:
    return order.held.exists() or driver.process.poll() is not None


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
