"""Runs a broker's replication: its pipes, its rings, its proposals to the coordinator. A shell."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.kernel.ids import BrokerId, Offset, TopicPartition
from tidelog.kernel.instant import Instant, ms
from tidelog.kernel.launch import BrokerLaunch
from tidelog.node.ipc.coordinator_link import CoordinatorLink
from tidelog.node.ipc.layout import Links
from tidelog.node.ipc.pipelines import Pipelines
from tidelog.node.ipc.ring_memory import SharedRings
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.replica.replicas import Replicas
from tidelog.node.replica.replication import Replication, Surroundings
from tidelog.node.replica.waiting import Waiting
from tidelog.node.runtime.process import EventLog
from tidelog.node.runtime.recorder import Recorder
from tidelog.wire.control import IsrChange
from tidelog.wire.errors import ErrorCode, WireError
from tidelog.wire.replication import Payload

_DRAIN_WITHIN_MS: Final = 200
_DRAIN_LOOK_S: Final = 0.002
_LONG_MS: Final = 1


@dataclass(frozen=True, slots=True)
class ReplicatorParts:
    """What it uses of its broker."""

    replicas: Replicas
    waiting: Waiting
    settings: Mapping[str, Any]
    """Live: a change counts at once."""
    log: EventLog
    links: Links
    wall_ms: Callable[[Instant], int]
    recorder: Recorder
    on_storage_failure: Callable[[TopicPartition, Exception], None]
    full_at: Callable[[BrokerId], Instant]
    """When another broker last found no room."""


class Replicator:
    """What the machine gathers in a turn of the loop goes out at its end, once."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        launch: BrokerLaunch,
        parts: ReplicatorParts,
    ) -> None:
        self._loop = loop
        self._parts = parts
        self._log = parts.log
        self._recorder = parts.recorder
        self._woken = False
        self._timer: asyncio.TimerHandle | None = None
        self._link: CoordinatorLink | None = None
        self._pipes = Pipelines(
            loop,
            launch.runtime_dir,
            launch.broker_id,
            parts.links,
            self._on_message,
            self._on_pipe_full,
        )
        self.machine = Replication(
            Surroundings(
                me=launch.broker_id,
                incarnation=launch.incarnation,
                replicas=parts.replicas,
                waiting=parts.waiting,
                rings=SharedRings(
                    launch.run_id, launch.broker_id, launch.incarnation, self._on_no_room
                ),
                wall_ms=parts.wall_ms,
                lag_max_ms=lambda: int(parts.settings["replica.lag.time.max.ms"]),
                note=parts.recorder.note,
                on_storage_failure=lambda one, error: parts.on_storage_failure(one.key, error),
                wake=self._wake,
                full_at=parts.full_at,
                static=launch.settings,
            )
        )

    def start(self, link: CoordinatorLink) -> None:
        """Hear the other brokers."""
        self._link = link
        self._pipes.start()

    def registered(self, epoch: Offset) -> None:
        self.machine.registered(_now(), epoch)

    def fenced(self) -> None:
        self.machine.fenced(_now())

    def image_changed(self, image: MetadataImage) -> None:
        self.machine.image_changed(_now(), image)

    def tick(self, now: Instant) -> None:
        """Ten times a second."""
        self.machine.tick(now)

    def drain(self, done: Callable[[], None]) -> None:
        """Take no more records, and call `done` when the others have what is here, or too late."""
        self._parts.replicas.retiring = True
        self._drain(Instant(_now() + ms(_DRAIN_WITHIN_MS)), done)

    def _drain(self, deadline: Instant, done: Callable[[], None]) -> None:
        if self.machine.is_level() or _now() >= deadline:
            done()
        else:
            self._loop.call_later(_DRAIN_LOOK_S, self._drain, deadline, done)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.machine.close()
        self._pipes.close()

    def _on_message(self, parts: Sequence[Payload]) -> None:
        began = _now()
        try:
            self.machine.received(began, parts)
        except WireError as error:
            # Only a broker of another version, or a broken one, says such a thing.
            self._log.error("message_refused", reason=str(error))
        if self._woken and _now() - began >= ms(_LONG_MS):
            self._send_all()  # who waits for this answer shall not wait for the next message too
        self._set_timer()

    def _wake(self) -> None:
        if not self._woken:
            self._woken = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._woken = False
        self._send_all()

    def _send_all(self) -> None:
        for peer, parts in self.machine.take_sends():
            if not self._pipes.send(peer, parts):
                self._on_pipe_full(peer)
        changes = tuple(self.machine.take_proposals())
        if changes:
            self._propose(changes)
        self._set_timer()

    def _on_pipe_full(self, peer: BrokerId) -> None:
        """A message to that broker is lost."""
        self._log.warning("pipe_full", broker=peer)
        self.machine.send_failed(_now(), peer)

    def _propose(self, changes: tuple[IsrChange, ...]) -> None:
        assert self._link is not None

        def done(outcomes: tuple[ErrorCode, ...] | ErrorCode) -> None:
            self.machine.proposed(_now(), changes, outcomes)

        self._link.alter_isr(changes, done)

    def _set_timer(self) -> None:
        due = self.machine.due
        if due is not None and self._timer is None:
            self._timer = self._loop.call_later(max(0, due - _now()) / 1e9, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.machine.tell(_now())
        self._set_timer()

    def _on_no_room(self, sentence: str) -> None:
        self._log.warning("no_ring", reason=sentence)


def _now() -> Instant:
    return Instant(time.monotonic_ns())
