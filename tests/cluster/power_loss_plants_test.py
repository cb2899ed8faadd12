"""The log engine on a disk that forgets what the kernel had not written: the same run and the same
verdict as of the crash images that an ordinary user can make, and each forgotten sync is seen.

Needs root and loop devices; skips without.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from harness.disks.crash_images import POLICIES, Recording, broken_promises
from harness.disks.mounts import need_disks, own_mounts
from harness.faults.disk_plants import ENGINE, SEAM, seam_plant
from tidelog.node.runtime.disk import make_for_good
from tidelog.tools.chaos.kernel_loss import cut
from tidelog.tools.supervisor.disks import Disk, held, make, mount

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3_600)]

PLANTS = {f"engine {name}": plant for name, plant in ENGINE.items()}
PLANTS |= {f"seam {name}": seam_plant(name) for name in SEAM}
DISK_BYTES = 64 << 20
STEPS, STEPS_NIGHTLY = (31, 44, 60), tuple(range(20, 180, 2))

Cut = Callable[[str, int], list[str]]


@pytest.fixture(scope="module")
def after_a_cut(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cut]:
    """What a run under a policy lacks, whose power is cut after so many steps."""
    need_disks()
    folder = tmp_path_factory.mktemp("dark")
    disk = Disk(folder / "image", folder / "live")

    def after(policy: str, steps: int) -> list[str]:
        run = Path(tempfile.mkdtemp(dir=disk.place))
        make_for_good(str(run / "live"))
        recording = Recording(run, POLICIES[policy], Random(steps)).moments(steps, steps)
        moment = next(recording)
        with held(disk) as lock:
            cut(disk, lock, recording.close)
        wrong = broken_promises(moment, run / "live", power=True)
        shutil.rmtree(run)
        return wrong

    with own_mounts():
        with held(disk) as lock:
            make(disk, DISK_BYTES, lock)
            mount(disk, lock)
        yield after


@pytest.mark.parametrize("policy", POLICIES)
def test_no_cut_takes_what_was_promised(after_a_cut: Cut, policy: str, *, nightly: bool) -> None:
    for steps in STEPS_NIGHTLY if nightly else STEPS:
        assert after_a_cut(policy, steps) == [], steps


@pytest.mark.parametrize("plant", PLANTS)
def test_a_sync_that_is_forgotten_is_seen_after_a_cut(
    after_a_cut: Cut, plant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    PLANTS[plant](monkeypatch)
    assert any(after_a_cut("commit", steps) for steps in STEPS), plant
