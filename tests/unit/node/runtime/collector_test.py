"""Python's collector of garbage stops all threads of a process: its pauses are bounded.

What a broker is done with does not wait for it.
"""

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.logs.one_log import Broker
from harness.machines.connected import Connected
from tidelog.node.net.session import Session, Slot
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


class _Waiting:
    """Refers to the place of its answer, as waiting requests do."""

    def __init__(self, slot: Slot) -> None:
        self.slot = slot

    def cancel(self) -> None:
        """Its client has left."""


@pytest.fixture
def _no_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_no_collector")
def test_a_connection_that_has_ended_needs_no_collector(tmp_path: Path) -> None:
    one = Connected(tmp_path)
    connection = weakref.ref(one.connection)
    one.close()
    del one.connection
    assert connection() is None


@pytest.mark.usefixtures("_no_collector")
@pytest.mark.parametrize("is_answered", [True, False])
def test_a_request_that_waited_needs_no_collector(*, is_answered: bool) -> None:
    session = Session()
    slot = session.begin(barrier=True)
    request = _Waiting(slot)
    slot.on_abandoned = request.cancel
    waiting = weakref.ref(request)
    del request
    if is_answered:
        slot.pieces = [b"answer"]
        session.ready()
    else:
        session.abandon()
    del slot
    assert waiting() is None


@pytest.mark.usefixtures("_no_collector")
def test_a_log_that_was_deleted_needs_no_collector() -> None:
    logs = Broker().logs
    found = logs.log("t", 0)
    assert found is not None
    log = weakref.ref(found)
    del found
    logs.delete("t", 0)
    assert log() is None
