"""The transaction coordinator's parts and their life: epoch, image, end. (shell)"""

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Final, assert_never

from tidelog.coordinator.controller.feed import Peer
from tidelog.coordinator.runtime.router import Router
from tidelog.coordinator.settings import transaction_settings
from tidelog.coordinator.transactions.events import (
    BrokerDown,
    BrokerUp,
    Effect,
    Event,
    Happened,
    IdsGiven,
    IdsRefused,
    ImageChanged,
    PartitionLeft,
    PartitionLoaded,
    PartitionNotLoaded,
    Received,
    RequestFailed,
    SendTo,
    Stop,
    Tick,
    TransactionTimedOut,
    WantIds,
)
from tidelog.coordinator.transactions.machine import Transactions
from tidelog.kernel.ids import BrokerId, Epoch, Incarnation, Offset, ProducerId
from tidelog.kernel.instant import Instant
from tidelog.kernel.launch import (
    Launch,
    board_name,
    coordinator_endpoint,
    transactions_endpoint,
)
from tidelog.kernel.limits import HEARTBEAT_MS, TRANSACTION_MESSAGES_QUEUED_MAX
from tidelog.node.few_lines import FewLines
from tidelog.node.ipc.board import Board
from tidelog.node.ipc.coordinator_link import CoordinatorLink, Hooks
from tidelog.node.ipc.layout import Role, SlotState, Word
from tidelog.node.metadata.digest import digest
from tidelog.node.metadata.image import Changes, MetadataImage
from tidelog.node.metadata.link import Observer
from tidelog.node.runtime.alarm import Alarm
from tidelog.node.runtime.lives import started
from tidelog.node.runtime.process import (
    EventLog,
    crash_by_bugs,
    on_stop_signal,
    report_failed,
    report_ready,
    settle_collector,
)
from tidelog.wire.errors import ErrorCode, WireError
from tidelog.wire.transactions import FromTransactions, Hello, decode_to_transactions, encode

_HEARTBEAT_S: Final = HEARTBEAT_MS / 1000
_COUNT_TICKS: Final = 5
_NOBODY: Final = (BrokerId(-1), Incarnation(0))
_EXIT_FAILED: Final = 1


class TransactionsProcess:
    """Everything the transaction coordinator's process holds, and its event loop. It owns no file:
    what it knows it reads through the brokers."""

    def __init__(self, loop: asyncio.AbstractEventLoop, launch: Launch, log: EventLog) -> None:
        self.exit_code = 0
        self._loop = loop
        self._launch = launch
        self._log = log
        self._ready = False
        self._ending = False
        self._ticks = 0
        self._settled = False
        self._board = Board.open(board_name(launch.run_id))
        self._slot = self._board.writer(launch.board_slot)
        self._slot.begin(
            role=Role.TRANSACTION_COORDINATOR,
            process_id=0,
            pid=os.getpid(),
            incarnation=launch.incarnation,
            started=started(os.getpid()),
        )
        hooks = Hooks(
            on_image_changed=self._on_image_changed,
            on_registered=self._on_registered,
            on_fenced=lambda: self._fail("another one has taken its place"),
            on_refused=self._on_turned_away,
            on_ends_wanted=lambda _places: (),
            on_suspected=lambda _key, _client, _coordinators: None,  # it passes on no requests
        )
        me = Observer(launch.cluster_id, launch.incarnation)
        endpoint = coordinator_endpoint(launch.runtime_dir)
        self._link = CoordinatorLink(loop, endpoint, me, hooks)
        self._alarm = Alarm(loop, self._on_alarm)
        self._router: Router | None = None
        self._machine: Transactions | None = None
        self._events: list[Event] = []
        self._faults = FewLines()
        self._wall_offset_ns = 0
        self._peers: dict[BrokerId, Peer] = {}
        """The latest connection of each broker."""
        self._lives: dict[Peer, tuple[BrokerId, Incarnation]] = {}

    def start(self) -> None:
        crash_by_bugs(self._loop, self._log)
        on_stop_signal(self._loop, self.end)
        self._tick()
        self._link.start()

    def end(self) -> None:
        """Nothing is finished first: the next life goes on from what is in the log."""
        if self._ending:
            return
        self._ending = True
        self._slot.words[Word.STATE] = SlotState.STOPPING
        self._slot.publish()
        self._alarm.cancel()
        if self._router is not None:
            self._router.close()
        self._link.close()
        self._loop.stop()

    def close(self) -> None:
        """After the loop: say what it knew of the cluster."""
        image = self._link.image
        self._log.info("image", holder="transactions", offset=image.offset, digest=digest(image))

    def _on_registered(self, epoch: Offset) -> None:
        """The metadata names this life: no earlier one's word counts any more."""
        if self._machine is not None:
            return  # the controller is another one; who we are stands in its log
        self._machine = Transactions(
            self._link.image,
            self._launch.incarnation,
            Epoch(epoch),
            transaction_settings(self._launch.settings),
            lambda now: (now + self._wall_offset_ns) // 1_000_000,
        )
        self._router = Router(
            self._loop,
            transactions_endpoint(self._launch.runtime_dir),
            on_frame=self._on_frame,
            on_lost=self._on_lost,
            queued_max=TRANSACTION_MESSAGES_QUEUED_MAX,
        )
        self._ready = True
        self._slot.words[Word.STATE] = SlotState.RUNNING
        self._publish()
        report_ready(self._launch.ready_fd)
        self._log.info("active", epoch=epoch, offset=self._link.image.offset)
        self._perform(self._machine.start(self._now()))

    def _on_image_changed(self, image: MetadataImage, _changes: Changes) -> None:
        self._slot.words[Word.METADATA_OFFSET] = image.offset
        if self._machine is not None:
            self._step(ImageChanged())

    # -- brokers

    def _on_frame(self, peer: Peer, frame: bytes) -> None:
        try:
            message = decode_to_transactions(frame)
        except WireError as error:
            self._log.warning("message_ignored", peer=peer, reason=str(error))
            return
        if isinstance(message, Hello):
            if message.cluster_id != self._launch.cluster_id:
                self._log.warning("message_ignored", peer=peer, reason="it is of another cluster")
                return
            self._lives[peer] = (message.broker, message.incarnation)
            self._peers[message.broker] = peer
            self._step(BrokerUp(message.broker, message.incarnation, message.session))
            return
        broker, _ = self._lives.get(peer, _NOBODY)
        if self._peers.get(broker) == peer:  # else a later life of it has spoken since
            self._step(Received(broker, message))

    def _on_lost(self, peer: Peer) -> None:
        life = self._lives.pop(peer, None)
        if life is not None:
            self._step(BrokerDown(*life))

    # -- the machine

    def _step(self, event: Event) -> None:
        """Take it with whatever else comes in this turn of the loop."""
        self._events.append(event)
        if len(self._events) == 1:
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        events, self._events = self._events, []
        if self._ending or self._machine is None:
            return
        self._perform(self._machine.step_all(self._now(), events))

    def _now(self) -> Instant:
        now = Instant(time.monotonic_ns())
        self._wall_offset_ns = time.time_ns() - now
        return now

    def _perform(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendTo(broker, message):
                    self._send(broker, message)
                case WantIds():
                    self._link.allocate_producer_ids(self._on_ids)
                case Stop(reason):
                    self._fail(reason)
                case _:
                    self._tell(effect)
        if self._ending:
            return
        assert self._machine is not None
        deadline = self._machine.deadline()
        if deadline is not None:
            self._alarm.set(deadline)

    def _send(self, broker: BrokerId, message: FromTransactions) -> None:
        peer = self._peers.get(broker)
        if peer is not None and self._router is not None:
            self._router.send(peer, encode(message))

    def _on_ids(self, given: tuple[ProducerId, int] | ErrorCode) -> None:
        self._step(IdsRefused(given) if isinstance(given, ErrorCode) else IdsGiven(*given))

    def _on_alarm(self, _now: Instant) -> Instant | None:
        self._step(Tick())
        return None

    def _tell(self, happened: Happened) -> None:
        match happened:
            case PartitionLoaded(partition, ids, prepared, end, took_ms):
                if end > 0:  # most are empty
                    self._log.info(
                        "partition_loaded",
                        partition=partition,
                        ids=ids,
                        prepared=prepared,
                        offset=end,
                        took_ms=round(took_ms, 1),
                    )
            case PartitionNotLoaded(partition, code):
                self._log.info("partition_not_loaded", partition=partition, reason=code.name)
            case RequestFailed(reason):
                self._tell_fault(reason)
            case PartitionLeft(partition, reason):
                self._log.info("partition_left", partition=partition, reason=reason)
            case TransactionTimedOut(transactional_id, producer_id, open_ms):
                self._log.info(
                    "transaction_timed_out",
                    transactional_id=transactional_id,
                    producer_id=producer_id,
                    open_ms=open_ms,
                )
            case _:
                assert_never(happened)

    def _tell_fault(self, reason: str) -> None:
        if self._faults.may_say(time.monotonic_ns() // 1_000_000):
            self._log.error("request_failed", reason=reason)

    def _on_turned_away(self, code: ErrorCode, detail: str) -> None:
        self._fail(f"{code.name}: {detail}")

    def _fail(self, reason: str) -> None:
        """End with a fault: the next life begins anew."""
        self._log.error("gave_up", reason=reason)
        if not self._ready:
            report_failed(self._launch.ready_fd, reason)
        self.exit_code = _EXIT_FAILED
        self.end()

    def _tick(self) -> None:
        """Ten times a second: show that the loop turns."""
        if self._ending:
            return
        self._loop.call_later(_HEARTBEAT_S, self._tick)
        self._slot.heartbeat(Instant(time.monotonic_ns()))
        self._ticks += 1
        if self._ready and self._ticks % _COUNT_TICKS == 0:
            self._publish()
            if not self._settled:
                self._settled = True  # not before brokers are served: it takes a while
                settle_collector()

    def _publish(self) -> None:
        """What the board shows."""
        machine, words = self._machine, self._slot.words
        if machine is not None:
            words[Word.TRANSACTIONS_OPEN] = machine.open_transactions
            words[Word.TRANSACTIONS_COMMITTED] = machine.committed
            words[Word.TRANSACTIONS_ABORTED] = machine.aborted
        self._slot.publish()
