"""When the coordinator writes a snapshot: once it would save more than it costs."""

from itertools import pairwise

import pytest

from harness.machines.conversations import Conversation
from tidelog.coordinator.controller import front

RECORDS = 5


@pytest.fixture
def talk(monkeypatch: pytest.MonkeyPatch) -> Conversation:
    monkeypatch.setattr(front, "METADATA_SNAPSHOT_RECORDS", RECORDS)
    talk = Conversation()
    talk.start_coordinator()
    talk.start_broker(0)
    talk.settle()
    return talk


def one_more(talk: Conversation) -> None:
    """One record."""
    before = len(talk.durable)
    talk.configure(0, "", "log.flush.interval.messages", str(7 + before))
    talk.settle()
    assert len(talk.durable) == before + 1


def test_a_snapshot_comes_each_time_there_are_as_many_new_records_as_it_is_worth(
    talk: Conversation,
) -> None:
    at = []
    for _ in range(4 * RECORDS):
        count = len(talk.snapshots)
        one_more(talk)
        if len(talk.snapshots) > count:
            at.append(talk.snapshots[-1].offset)
    assert len(at) >= 3
    assert {later - earlier for earlier, later in pairwise(at)} == {RECORDS}
