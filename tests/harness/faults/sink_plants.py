"""Faults put into the exactly-once sink of Spark on purpose; drawn histories must find each."""

from collections.abc import Mapping
from typing import Any

import pytest

from harness.simulation import sink as simulated_sink
from harness.simulation.sink_histories import SinkHistory
from tidelog.clients.admin import group_offsets
from tidelog.clients.asking import Plan
from tidelog.clients.producer.sender import Identity
from tidelog.spark import sink_commit, sink_decisions, sink_permits
from tidelog.spark.tasks import TaskInfo

Patch = pytest.MonkeyPatch


def commit_when_the_input_ends(patch: Patch) -> None:
    """A task takes the end of its input for the end of its rows."""
    patch.setattr(SinkHistory, "commits_in_tasks", True)


def driver_ends_without_ending(patch: Patch) -> None:
    """It does not say so before it ends transactions."""
    commit = sink_commit._commit_markers

    def commits(view: Any, work: Any, me: Identity, markers: Mapping[str, Any]) -> Plan[Identity]:
        if '"ending"' in markers[work.sink.name].metadata:
            return me
        return (yield from commit(view, work, me, markers))

    patch.setattr(sink_commit, "_commit_markers", commits)


def skip_by_number_only(patch: Patch) -> None:
    """Nobody asks whose the rows under that number are."""
    patch.setattr(sink_decisions, "_check_query", lambda *_: None)
    patch.setattr(sink_decisions, "_check_skipped", lambda *_: None)
    patch.setattr(sink_decisions, "check_same", lambda *_: None)


def ignore_a_refused_end(patch: Patch) -> None:
    """What the coordinator does not commit counts as committed."""

    def ignores(*_: Any) -> Plan[None]:
        yield from ()

    patch.setattr(sink_commit, "_check_refused", ignores)


def drivers_do_not_fence_each_other(patch: Patch) -> None:
    """The sink's marker is committed as any consumer group's is."""

    def commits(view: Any, work: Any, me: Identity, markers: Mapping[str, Any]) -> Plan[Identity]:
        for group, marker in markers.items():
            offsets = {work.sink.marker: marker.offset}
            yield from group_offsets.commit_offsets(view, group, offsets, marker.metadata)
        return me

    patch.setattr(sink_commit, "_commit_markers", commits)


def believe_what_tasks_found(patch: Patch) -> None:
    """A driver that changes the number of tasks does not ask whether its parts were taken over
    since its tasks found nothing written there."""
    patch.setattr(sink_decisions, "_disputed", lambda *_: ())


def begin_without_a_permit(patch: Patch) -> None:
    """A task does not ask whether the driver has given its job up."""
    patch.setattr(simulated_sink, "check_permit", lambda *_: None)


def check_the_permit_only_at_first(patch: Patch) -> None:
    """The driver may give up after that, and before the task has taken its part's id over."""
    read = sink_commit.read_markers

    def reads(view: Any, sink: Any, task: TaskInfo) -> Plan[sink_commit.Found]:
        found = yield from read(view, sink, task)
        return found._replace(permit=task.permit or found.permit)

    patch.setattr(simulated_sink, "read_markers", reads)


def let_go_before_the_permit_is_replaced(patch: Patch) -> None:
    """A task may take its part's id over between the two, with a permit that is still good."""

    def gives_up(view: Any, sink: sink_commit.Sink, parts: int) -> Plan[list[Any]]:
        names = [sink.part(number) for number in range(parts)]
        outcomes = yield from sink_commit.let_go(view, names)
        yield from sink_permits.replace_permit(view, sink.permit)
        return outcomes

    patch.setattr(simulated_sink, "give_up", gives_up)
