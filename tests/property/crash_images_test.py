"""Power losses of one recorded run for each flush policy: F1 to F3 of each image.

What was flushed is there, under `commit` all of it; what is left is a part from the front without a
hole; a kill alone takes nothing, under any policy.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from harness.disks.crash_images import POLICIES, Moment, Recording, faults_of, faults_of_a_kill
from harness.faults.disk_plants import ENGINE
from harness.faults.planting import Planting
from harness.suite.budgets import Histories
from tidelog.kernel.launch import MEMORY_FOLDER

pytestmark = pytest.mark.slow

STEPS, EACH = 180, 12


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory: nothing here asks what a disk really does."""
    with tempfile.TemporaryDirectory(prefix="crash-images-", dir=MEMORY_FOLDER) as name:
        yield Path(name)


def recorded(folder: Path, policy: str) -> list[Moment]:
    (folder / "live").mkdir()
    return list(Recording(folder, POLICIES[policy], Random(policy)).moments(STEPS, EACH))


def _promises_are_kept(folder: Path, moments: list[Moment], seed: int) -> None:
    """In an image of one of the moments."""
    image = folder / "image"
    try:
        assert faults_of(moments[seed % len(moments)], seed, image) == []
    finally:
        shutil.rmtree(image)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_crash_image_lacks_what_was_promised(
    folder: Path, policy: str, histories: Histories
) -> None:
    moments = recorded(folder, policy)
    for number, moment in enumerate(moments):
        assert faults_of_a_kill(moment, folder / f"{number}-kill") == []
    histories.run(lambda seed: _promises_are_kept(folder, moments, seed))


@pytest.mark.parametrize("name", ENGINE)
def test_a_sync_that_is_forgotten_is_seen_in_an_image(
    folder: Path, name: str, planting: Planting
) -> None:
    moments: dict[str, list[Moment]] = {}

    def plant(patch: pytest.MonkeyPatch) -> None:
        """Only while the moments are recorded; the images are opened without it."""
        if name not in moments:
            with patch.context() as recording:
                ENGINE[name](recording)
                moments[name] = recorded(folder, "commit")
        patch.setitem(moments, "now", moments[name])

    def image(seed: int) -> None:
        if "now" in moments:
            _promises_are_kept(folder, moments["now"], seed)

    planting.is_found(plant, image)
