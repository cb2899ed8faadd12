"""The sockets between processes tell of a change once: no message may lie there unseen for ever."""

import asyncio
import select
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop
import zmq

from tidelog.coordinator.runtime.router import Router
from tidelog.node.ipc.dealer import Dealer

WAIT_S = 20.0
SENDS = 30_000
"""ZeroMQ looks after its descriptor in a send only once a millisecond."""


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = uvloop.new_event_loop()
    yield made
    made.close()


def is_told(socket: zmq.Socket[bytes]) -> None:
    """Its descriptor says that there is something; nobody has looked yet."""
    readable, _, _ = select.select([socket.fileno()], [], [], WAIT_S)
    assert readable, "nothing came"


async def soon(condition: Callable[[], bool]) -> None:
    """Turn after turn of the loop, until it is so."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 -- a thread of ZeroMQ's, which tells nobody
            await asyncio.sleep(0)


def test_a_send_to_nobody_leaves_no_message_unseen(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    frames: list[bytes] = []
    lost: list[bytes] = []
    endpoint = f"ipc://{tmp_path}/r"
    router = Router(
        loop, endpoint, on_frame=lambda _, frame: frames.append(frame), on_lost=lost.append
    )
    context = zmq.Context()
    peer = context.socket(zmq.DEALER)
    try:
        peer.connect(endpoint)
        peer.send(b"hello")
        is_told(router._socket)
        for _ in range(SENDS):
            router.send(b"who has gone", b"read this")
        loop.run_until_complete(soon(lambda: bool(frames)))
        assert frames == [b"hello"]
        assert set(lost) == {b"who has gone"}
    finally:
        router.close()
        peer.close(linger=0)
        context.term()


def test_a_send_that_nobody_takes_leaves_no_message_unseen(
    loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    frames: list[bytes] = []
    ups: list[None] = []
    endpoint = f"ipc://{tmp_path}/d"
    context = zmq.Context()
    peer = context.socket(zmq.ROUTER)
    peer.bind(endpoint)
    dealer = Dealer(
        loop,
        endpoint,
        b"me",
        on_up=lambda: ups.append(None),
        on_down=lambda: None,
        on_frame=frames.append,
    )
    try:
        dealer.start()
        loop.run_until_complete(soon(lambda: bool(ups)))
        for _ in range(SENDS):  # more than both ends hold of what nobody reads
            dealer.send(b"hello")
        loop.run_until_complete(soon(lambda: dealer._look_again is None))
        peer.send_multipart((b"me", b"an answer"))
        is_told(dealer._socket)
        for _ in range(SENDS):
            dealer.send(b"hello")
        loop.run_until_complete(soon(lambda: bool(frames)))
        assert frames == [b"an answer"]
    finally:
        dealer.close()
        peer.close(linger=0)
        context.term()
