"""One drawn life of an exactly-once sink in a simulated cluster: inputs that end early, attempts
beside each other, or begin after their driver has given up, drivers that die or sleep at any step
while others with other numbers of tasks go on, hosts whose clocks differ, checkpoints that are
restored; coordinators and brokers die, messages are lost or come twice, transactions run out of
time.

In the end all is healed, and the query is started until it has done some more micro-batches; a user
does what a refusal tells. Then each row of each micro-batch that Spark was told is done must be
read as committed once, and no row twice.
"""

import re
from collections import Counter
from collections.abc import Callable, Collection
from random import Random

from harness.simulation.clients import Clients
from harness.simulation.plans import LATE_MS_MAX, PlanRunner, Troubles
from harness.simulation.sink import (
    LONG_MS,
    Checkpoint,
    Driver,
    Terms,
    surviving,
)
from harness.simulation.transaction_scene import TransactionScene, read_on
from tidelog.kernel.ids import BrokerId
from tidelog.spark.tasks import SinkError

KINDS = (
    "cuts",
    "deaths",
    "naps",
    "lost",
    "copies",
    "expires",
    "transactor",
    "broker",
    "restored",
    "tasks",
    "intruder",
    "beside",
    "clocks",
    "late",
)
RUNS = 5
RUNS_BESIDE = 10
"""If drivers are to be active at once: few of them meet where it matters."""
BATCHES = 3
"""Of each run, if nothing stops it."""
CLOCKS_DIFFER_MS = 20_000_000
"""A few hours: what a driver has noted may lie in the future of the next one."""
RUN_WITHIN_MS = 400_000
HEALS_WITHIN_MS = 90_000
OTHERS_FIRST = 1_000_000
"""Rows of another query begin here."""
_TASKS_BEFORE = re.compile(r"partly committed by (\d+) tasks")


class SinkHistory:
    """`run` is all of it; the same seed draws the same history."""

    commits_in_tasks = False
    """A planted fault: a task takes the end of its input for the end of its rows."""

    def __init__(self, seed: int, kinds: Collection[str] = ()) -> None:
        self.rng = Random(seed)
        drawn = self.rng.sample(KINDS, self.rng.randint(1, len(KINDS)))
        self.kinds = set(kinds or drawn)
        self.scene = TransactionScene()
        self.cluster = self.scene.cluster
        self.troubles = Troubles(
            deaths=0.02 if "deaths" in self.kinds else 0,
            naps=0.04 if "naps" in self.kinds else 0,
            lost=0.05 if "lost" in self.kinds else 0,
            copies=0.2 if "copies" in self.kinds else 0,
        )
        self.takes_epochs = self.rng.random() < 0.5
        self.tasks = self.rng.randint(1, 4)
        self.checkpoint = Checkpoint("q")
        self.backups: list[Checkpoint] = []
        self.others: list[Checkpoint] = []
        """Checkpoints in whose place an older one was put."""
        self.drivers: list[Driver] = []
        self.refused: list[str] = []
        self.is_locked_out = False
        """Another query has got the sink's name."""
        self._runs = 0

    def run(self) -> None:
        for _ in range(RUNS_BESIDE if "beside" in self.kinds else RUNS):
            self._run()
        self.heal()
        self.complete()
        self.check()

    # -- runs of the query

    def _run(self) -> None:
        """Until the driver is over, or somebody has started another one beside it."""
        self._restore()
        tasks = self._number_of_tasks()
        timeout_ms = self.rng.choice([400, 2_000]) if "expires" in self.kinds else LONG_MS
        driver = self._driver(self.checkpoint, tasks, timeout_ms)
        is_replaced: list[bool] = []
        self._trouble(driver, lambda: is_replaced.append(True))
        if "intruder" in self.kinds and self.rng.random() < 0.15:
            self._driver(Checkpoint("other", OTHERS_FIRST), tasks, timeout_ms)
        self._faults()
        self.cluster.until(lambda: driver.is_over or bool(is_replaced), within_ms=RUN_WITHIN_MS)
        self._advised(driver)

    def _restore(self) -> None:
        """Put an older checkpoint in the place of the present one, now and then."""
        if "restored" in self.kinds and self.backups and self.rng.random() < 0.3:
            self.others.append(self.checkpoint)
            self.checkpoint = self.rng.choice(self.backups[-2:]).copy()
        self.backups.append(self.checkpoint.copy())

    def _number_of_tasks(self) -> int:
        """Another one than that of a driver that is asleep, if there are to be two at once."""
        asleep = [one.tasks for one in self.drivers if not one.is_over]
        if "beside" in self.kinds and asleep:
            return self.rng.choice([one for one in range(1, 5) if one != asleep[-1]])
        if "tasks" in self.kinds and self.rng.random() < 0.4:
            return self.rng.randint(1, 4)
        return self.tasks

    def _trouble(self, driver: Driver, is_replaced: Callable[[], None]) -> None:
        """What happens to one driver; while it stands still, another one may be started."""

        def sleeps() -> None:
            if self.rng.random() < 0.5:
                is_replaced()

        driver.on_nap = sleeps
        driver.cuts = 0.3 if "cuts" in self.kinds else 0
        driver.late = 0.3 if "late" in self.kinds else 0
        if "beside" not in self.kinds:
            return
        is_alone = all(one.is_over for one in self.drivers if one is not driver)
        driver.dozes = 0.25 if is_alone else 0.08
        if is_alone:
            driver.on_doze = is_replaced

    def _driver(self, checkpoint: Checkpoint, tasks: int, timeout_ms: int) -> Driver:
        process = PlanRunner(self.cluster, Random(self.rng.random()), self.troubles)
        terms = Terms(
            self.takes_epochs,
            timeout_ms,
            CLOCKS_DIFFER_MS if "clocks" in self.kinds else 0,
            commits_in_tasks=self.commits_in_tasks,
        )
        driver = Driver(process, terms, checkpoint, tasks=tasks, batches=BATCHES)
        driver.on_let_go = lambda: self._check_let_go(driver)
        self.drivers.append(driver)
        driver.live(surviving(driver.lives()))
        return driver

    def _advised(self, driver: Driver) -> None:
        """A user does what the error says."""
        if not isinstance(driver.error, SinkError):
            return
        said = str(driver.error)
        self.refused.append(said)
        found = _TASKS_BEFORE.search(said)
        if found is not None:
            self.tasks = int(found[1])
        if "belongs to query other" in said:
            self.is_locked_out = True
        elif "checkpoint is older than the sink" in said and self.others:
            self.others.append(self.checkpoint)
            self.checkpoint = self.others.pop(0)

    # -- faults

    def _faults(self) -> None:
        timeline = self.cluster.timeline
        for _ in range(self.rng.randint(0, 3)):
            if "transactor" in self.kinds:
                timeline.after(self.rng.uniform(0, 300), self.cluster.transactor.kill)
        if "broker" in self.kinds:
            timeline.after(self.rng.uniform(0, 300), self._broker)

    def _broker(self) -> None:
        if len(self.cluster.lives) < len(self.cluster.disks):
            return
        broker = self.rng.choice(sorted(self.cluster.lives))
        self.cluster.kill(broker)
        self.cluster.timeline.after(self.rng.uniform(50, 2_000), lambda: self._start(broker))

    def _start(self, broker: BrokerId) -> None:
        if broker not in self.cluster.lives:
            self.cluster.start(broker)

    # -- the end

    def heal(self) -> None:
        """Nothing fails any more; whoever is asleep wakes up, and goes on. Copies of requests that
        are still on their way come first: one of InitProducerId fences whoever has that id."""
        self.troubles.deaths = self.troubles.naps = self.troubles.lost = self.troubles.copies = 0
        for driver in self.drivers:
            driver.cuts = driver.dozes = driver.late = 0
        self.scene.heal()
        self._all_end()
        self.cluster.run(LATE_MS_MAX)

    def complete(self) -> None:
        """Some more micro-batches, by as many runs as it takes."""
        for _ in range(3 + 2 * len(self.others)):
            if self._completes():
                break
        else:
            assert self.is_locked_out, f"it never goes on: {self.refused[-1:]}"
        self._all_end()
        self.cluster.until(lambda: self._open == 0, within_ms=HEALS_WITHIN_MS)

    def _all_end(self) -> None:
        """Also those that slept, and went on beside others."""

        def are_over() -> bool:
            attempts = (one for driver in self.drivers for one in driver.attempts)
            return all(one.is_over for one in (*self.drivers, *attempts))

        self.cluster.until(are_over, within_ms=RUN_WITHIN_MS)

    def _completes(self) -> bool:
        driver = self._driver(self.checkpoint, self.tasks, LONG_MS)
        self.cluster.until(lambda: driver.is_over, within_ms=RUN_WITHIN_MS)
        self._advised(driver)
        return driver.error is None

    @property
    def _open(self) -> int:
        machine = self.cluster.transactor.process.machine
        return -1 if machine is None else machine.open_transactions

    def _check_let_go(self, driver: Driver) -> None:
        """Nothing that an attempt at a job has written stays open after the driver has let the job
        go: nobody would end it before its time is up."""
        for attempt in driver.attempts:
            if attempt.said is not None and attempt.said.open is not None:
                name, identity, _ = attempt.said.open.transaction
                assert not self.scene.is_open(name, identity), f"left open: {name}"

    def check(self) -> None:
        seen = Counter(self._read())
        twice = sorted(row for row, count in seen.items() if count > 1)
        assert not twice, f"read twice: {twice}"
        claimed = {row for driver in self.drivers for row in driver.claimed}
        missing = sorted(claimed - seen.keys())
        assert not missing, f"done, and never read: {missing}"
        if not self.is_locked_out:
            rows = {row for row in seen if row < OTHERS_FIRST}
            assert rows == set(range(self.checkpoint.position)), f"{sorted(rows)}"

    def _read(self) -> list[int]:
        clients, truth = Clients(self.cluster), self.scene.truth
        found = []
        for key in self.scene.keys:
            found += [int(value) for value in read_on(clients, truth, key, 0)[0]]
        return found
