"""One request on its way through its handler."""

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec

from tidelog.kernel import limits
from tidelog.kernel.files import File
from tidelog.kernel.instant import Instant, WallMs
from tidelog.node.api.faults import Fault, faults_caught
from tidelog.node.net.client import Client
from tidelog.node.net.session import Slot
from tidelog.node.replica.waiting import Waiter
from tidelog.wire.compile import Piece
from tidelog.wire.errors import REQUEST_FAULTS, TooWideError, fault_text
from tidelog.wire.frame import encode_in_steps, encode_response_at_once
from tidelog.wire.header import AnyApi, RequestHeader

if TYPE_CHECKING:
    from tidelog.node.api.broker import Broker


_P = ParamSpec("_P")


class Call:
    """Who asks, in which version, when; and the way to answer later.

    `frame` lies in the connection's buffer: it is gone once the handler has returned, unless the
    call owns it.
    """

    __slots__ = (
        "api",
        "broker",
        "client",
        "frame",
        "header",
        "kept_bytes",
        "now",
        "owns_frame",
        "pinned",
        "slot",
    )

    def __init__(  # noqa: PLR0913, PLR0917 -- made once per request, in one place
        self,
        broker: "Broker",
        client: Client,
        slot: Slot,
        api: AnyApi,
        header: RequestHeader,
        frame: memoryview,
        now: Instant,
    ) -> None:
        self.broker = broker
        self.client = client
        self.slot = slot
        self.api = api
        self.header = header
        self.frame = frame
        self.now = now
        self.kept_bytes = 0
        """Of its request, which is copied and not done yet."""
        self.owns_frame = False
        """Whether `frame` is a copy, which stays."""
        self.pinned: list[File] | None = None
        """Log files that must stay open until the answer is made, which has ranges of them."""

    @property
    def version(self) -> int:
        return self.header.version

    @property
    def now_ms(self) -> WallMs:
        return self.broker.wall_ms(self.now)

    @property
    def abandoned(self) -> bool:
        """The client is gone: an answer would be made for nobody."""
        return self.client.session.closing

    def answer(self, message: Any) -> None:  # noqa: ANN401 -- each API has its own class
        """Give the answer now; it leaves when its turn has come."""
        if self.settle(message):
            self.client.answered()

    def settle(self, message: Any) -> bool:  # noqa: ANN401 -- as above
        """Put the answer in its place. If it cannot be encoded, the connection ends: False."""
        header = self.header
        try:
            pieces = encode_response_at_once(
                self.api, header.version, header.correlation_id, message
            )
        except TooWideError:
            self._settle_aside(message)
            return False
        except REQUEST_FAULTS as fault:
            self.fail(fault)
            return False
        self.slot.pieces = pieces
        if self.kept_bytes or self.pinned is not None:
            self.done()
        return True

    def _settle_aside(self, message: Any) -> None:  # noqa: ANN401 -- as above
        """Encode a large answer in a thread. Nothing changes it or what it refers to any more."""
        header = self.header
        work = encode_in_steps(self.api, header.version, header.correlation_id, message)
        self.broker.aside(faults_caught(work), self.later(self._encoded))

    def _encoded(self, _now: Instant, pieces: list[Piece] | Fault) -> None:
        if isinstance(pieces, Fault):
            raise pieces.error
        if not self.abandoned:
            self.slot.pieces = pieces
            self.client.answered()
        self.done()

    def done(self) -> None:
        """What was kept until the answer is made is no longer needed."""
        self.let_go()
        self.unpin()
        if self.owns_frame:
            with contextlib.suppress(ValueError):
                self.client.session.on_end.remove(self.done)

    def later(self, work: Callable[_P, None]) -> Callable[_P, None]:
        """Wrap what answers this request later: a fault in it ends this request's connection, and
        neither its caller nor the requests that the caller serves next."""

        def guarded(*args: _P.args, **kwargs: _P.kwargs) -> None:
            try:
                work(*args, **kwargs)
            except REQUEST_FAULTS as fault:
                self.fail(fault)

        return guarded

    def keep(self, count: int) -> None:
        """So many bytes of the request are copied, until it is done."""
        self.kept_bytes += count
        self.broker.received.keep(count)

    def own_frame(self) -> None:
        """Copy the whole request, which is kept until it is answered."""
        self.frame = memoryview(bytearray(self.frame))
        self.owns_frame = True
        size = len(self.frame)
        elements = min(size // 4, limits.REQUEST_ELEMENTS_MAX)
        self.keep(size + limits.ELEMENT_BYTES * elements)

    def count_again(self, count: int) -> None:
        """The request is read, and takes so many bytes beside its frame: before that it was counted
        as if all of it were the shortest elements that there are."""
        self.let_go()
        self.keep(len(self.frame) + count)

    def end_with_client(self) -> None:
        """Give memory back also if the client leaves before it is answered: nobody goes on with
        its request then."""
        self.client.session.on_end.append(self.done)

    def outlive_client(self) -> None:
        """The opposite: the request is done to its end, so its memory counts until then."""
        with contextlib.suppress(ValueError):
            self.client.session.on_end.remove(self.done)

    def let_go(self) -> None:
        """What was copied is needed no more."""
        if self.kept_bytes:
            count, self.kept_bytes = self.kept_bytes, 0
            self.broker.received.release(count)

    def pin(self, file: File) -> None:
        """Keep a log file open until the answer is handed to the connection, which then does."""
        if self.pinned is None:
            self.pinned = []
        file.readers += 1
        self.pinned.append(file)

    def unpin(self) -> None:
        """Let log files be closed again."""
        if self.pinned is not None:
            for file in self.pinned:
                file.readers -= 1
            self.pinned = None

    def fail(self, fault: Exception) -> None:
        """End the connection: a fault of ours kept this request from its answer."""
        self.done()
        reason = f"{self.api} v{self.version} failed: {fault_text(fault)}"
        self.broker.on_fault(reason)
        self.client.close(reason)

    def answer_frame(self, frame: bytes) -> None:
        """Give an answer that another process has encoded, header included."""
        self.slot.pieces = [len(frame).to_bytes(4, "big"), frame]
        self.client.answered()
        self.done()

    def hold(self) -> None:
        """Begin nothing behind this request until `release`: what follows must find it done."""
        self.slot.barrier = True

    def release(self) -> None:
        self.slot.barrier = False
        self.client.answered()  # what was held back may begin

    def park(self, waiter: Waiter) -> None:
        """Have it answered when the waiter wakes; a client that goes away takes it along."""
        waiting = self.broker.waiting
        waiter.failed = self.fail
        waiting.park(waiter)
        self.slot.on_abandoned = lambda: waiting.cancel(waiter)

    def no_answer(self) -> None:
        self.slot.pieces = []
        self.client.answered()
        self.done()
