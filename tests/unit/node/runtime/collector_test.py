"""Python's collector of garbage stops all threads of a process, so its pauses are bounded."""

import gc
from collections.abc import Iterator
from typing import Any

import pytest

from tidelog.node.runtime.process import settle_collector

_ALLOCATED = 1_500_000
"""As many objects as some wide requests are, while they are decoded in a thread."""


@pytest.fixture
def _collector_as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.mark.usefixtures("_collector_as_before")
def test_a_collection_looks_at_no_more_objects_than_a_short_pause_allows() -> None:
    looked_at: list[int] = []

    def note(phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            young = range(info["generation"] + 1)
            looked_at.append(sum(len(gc.get_objects(generation=at)) for at in young))

    settle_collector()
    gc.callbacks.append(note)
    kept = [[at] for at in range(_ALLOCATED)]
    gc.callbacks.remove(note)
    assert len(kept) == _ALLOCATED
    assert len(looked_at) >= 8
    assert max(looked_at) <= 200_000
