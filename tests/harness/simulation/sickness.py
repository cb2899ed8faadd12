"""Drawn lives of a cluster whose disks are full, slow or failing now and then, beside all else that
happens; then they are healed, and all must become whole."""

import errno
from collections.abc import Callable
from random import Random

from harness.disks.memory_disk import MemoryDisk
from harness.simulation.histories import ONE_LEFT_DEAD, History
from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import BrokerId

ILLS = (
    ("append", errno.ENOSPC),
    ("append", errno.EIO),
    ("create", errno.ENOSPC),
    ("replace", errno.ENOSPC),
    ("sync", errno.EIO),
    ("sync", errno.ENOSPC),
    ("hold", 0),
)
"""By operation, as `MemoryDisk.failing` has them; or rounds of flushes that do not end."""
LASTS_MS = (5.0, 2_500.0)


class SickHistory(History):
    """Sickness has draws of its own: what else happens is as without it."""

    def __init__(self, seed: int) -> None:
        self.sick = Random(seed + 2)
        super().__init__(seed, flush_policy=self.sick.choice(["os", "commit", "commit"]))
        self.fell_ill: list[tuple[str, int]] = []
        self.rotten = Random(seed + 5) if seed % 15 in ONE_LEFT_DEAD else None
        """In some of them replicas find their logs damaged, too."""
        self.rotted = 0

    def run(self) -> None:
        self._rot_on()
        pace = self.sick.choice([(20.0, 300.0), (200.0, 1_500.0)])

        def again() -> None:
            if not self.over:
                self._sicken()
                self.cluster.timeline.after(self.sick.uniform(*pace), again)

        self.cluster.timeline.after(self.sick.uniform(*pace), again)
        super().run()

    def _rot_on(self) -> None:
        rotten = self.rotten
        if rotten is None:
            return
        pace = rotten.choice([(50.0, 400.0), (300.0, 2_000.0)])

        def again() -> None:
            if not self.over:
                self._rot(rotten)
                self.cluster.timeline.after(rotten.uniform(*pace), again)

        self.cluster.timeline.after(rotten.uniform(*pace), again)

    def _rot(self, rotten: Random) -> None:
        """Some replica's log is found damaged, though it can be used while nobody else can lead."""
        places = [
            (life, replica.key)
            for _, life in sorted(self.cluster.lives.items())
            for replica in life.replicas
            if not life.paused
        ]
        if places:
            life, key = rotten.choice(places)
            rot = CorruptError(file=f"{key[0]}-{key[1]}", position=0, reason="a wrong checksum")
            self.rotted += 1
            life.turn(lambda: life._on_storage_failure(key, rot))

    def _sicken(self) -> None:
        lives = sorted(self.cluster.lives)
        if not lives:
            return
        broker = self.sick.choice(lives)
        disk, ill = self.cluster.disks[broker], self.sick.choice(ILLS)
        if disk.failing or disk.broken:
            return
        self.fell_ill.append(ill)
        operation, code = ill
        if operation == "hold":
            self._later(self._slow_down(broker))
            return
        disk.failing[operation] = code
        self._later(lambda: self._healed(broker, disk))

    def _later(self, action: Callable[[], None]) -> None:
        self.cluster.timeline.after(self.sick.uniform(*LASTS_MS), action)

    def _slow_down(self, broker: BrokerId) -> Callable[[], None]:
        storage = self.cluster.lives[broker].storage
        storage.hold()
        return storage.let_go

    def _healed(self, broker: BrokerId, disk: MemoryDisk) -> None:
        """Who lost a directory is started again."""
        disk.failing.clear()
        life = self.cluster.lives.get(broker)
        if life is not None and len(life.logs.working) < self.directories:
            self.cluster.kill(broker)
        self._start(broker)

    def _start(self, broker: BrokerId) -> None:
        """On a disk that is well: on another one it would not come up."""
        self.cluster.disks[broker].failing.clear()
        super()._start(broker)

    def heal(self) -> None:
        for broker in sorted(self.cluster.lives):
            self.cluster.lives[broker].storage.let_go()
        for broker, disk in self.cluster.disks.items():
            self._healed(broker, disk)
        super().heal()
