"""Runs a broker's side of transactions: its socket to the transaction coordinator, its timer. A
shell."""

import asyncio
import time
from collections.abc import Callable

from tidelog.kernel.instant import Instant
from tidelog.kernel.launch import BrokerLaunch, transactions_endpoint
from tidelog.node.api.broker import Broker
from tidelog.node.api.transaction_service import make_service
from tidelog.node.ipc.coordinator_link import peer_name
from tidelog.node.ipc.dealer import Dealer
from tidelog.node.runtime.alarm import Alarm
from tidelog.node.transactions.link import Me
from tidelog.node.transactions.service import Done
from tidelog.wire.transactions import ToTransactions, encode


class Transactor:
    """Calls go in by `forward`, what comes back goes out by callbacks, all on one loop's thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        launch: BrokerLaunch,
        broker: Broker,
        is_lost: Callable[[], bool],
    ) -> None:
        self._is_lost = is_lost
        self._alarm = Alarm(loop, self._on_alarm)
        self._dealer = Dealer(
            loop,
            transactions_endpoint(launch.runtime_dir),
            peer_name(launch.broker_id, launch.incarnation),
            on_up=lambda: self._service.up(_now()),
            on_down=lambda: self._service.down(_now()),
            on_frame=self._on_frame,
        )
        self._service = make_service(
            Me(launch.cluster_id, launch.broker_id, launch.incarnation),
            broker,
            is_lost=is_lost,
            send=self._send,
            alarm=self._alarm.set,
        )

    def start(self) -> None:
        """Connect, and stay connected."""
        self._dealer.start()

    def forward(
        self, frame: bytes, client_address: str, deadline: Instant, done: Done
    ) -> Callable[[], None]:
        """As `Service.forward`."""
        forget = self._service.forward(_now(), frame, client_address, deadline, done)
        return lambda: forget(_now())

    def registered(self) -> None:
        self._service.registered(_now())

    def lost(self) -> None:
        self._service.lost(_now())

    def image_changed(self) -> None:
        self._service.image_changed(_now())

    def close(self) -> None:
        """Let go of the socket; calls under way are never answered."""
        self._alarm.cancel()
        self._dealer.close()

    def _send(self, message: ToTransactions) -> None:
        self._dealer.send(encode(message))

    def _on_frame(self, frame: bytes) -> None:
        self._is_lost()
        self._service.received(_now(), frame)

    def _on_alarm(self, now: Instant) -> Instant | None:
        self._is_lost()
        return self._service.ring(now)


def _now() -> Instant:
    return Instant(time.monotonic_ns())
