"""Hundreds of power losses of one recorded run for each flush policy: F1 to F3 of each image.

What was flushed is there, under `commit` all of it; what is left is a part from the front without a
hole; a kill alone takes nothing, under any policy.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from harness.crash_images import POLICIES, Moment, Recording, faults_of, faults_of_a_kill
from harness.disk_plants import ENGINE
from tidelog.kernel.launch import MEMORY_FOLDER

pytestmark = pytest.mark.slow

STEPS, EACH = 180, 12
SEEDS, SEEDS_NIGHTLY = 5, 250


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory: nothing here asks what a disk really does."""
    with tempfile.TemporaryDirectory(prefix="crash-images-", dir=MEMORY_FOLDER) as name:
        yield Path(name)


def recorded(folder: Path, policy: str) -> list[Moment]:
    (folder / "live").mkdir()
    return list(Recording(folder, POLICIES[policy], Random(policy)).moments(STEPS, EACH))


def drawn(moments: list[Moment], folder: Path, seeds: int) -> Iterator[tuple[str, list[str]]]:
    """Which image, and what it lacks."""
    for number, moment in enumerate(moments):
        for seed in range(seeds):
            image = folder / f"{number}-{seed}"
            yield image.name, faults_of(moment, seed, image)
            shutil.rmtree(image)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_crash_image_lacks_what_was_promised(
    folder: Path, policy: str, *, nightly: bool
) -> None:
    moments = recorded(folder, policy)
    for number, moment in enumerate(moments):
        assert faults_of_a_kill(moment, folder / f"{number}-kill") == []
    for image, faults in drawn(moments, folder, SEEDS_NIGHTLY if nightly else SEEDS):
        assert faults == [], image


@pytest.mark.parametrize("plant", ENGINE)
def test_a_sync_that_is_forgotten_is_seen_in_an_image(
    folder: Path, plant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        ENGINE[plant](patch)
        moments = recorded(folder, "commit")
    assert any(faults for _, faults in drawn(moments, folder, SEEDS)), plant
