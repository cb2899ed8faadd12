"""One connection to a broker, without the socket: versions, order, deadlines.

A session begins with ApiVersions. What is asked before its answer waits; then each request gets the
highest version that both sides speak. Responses come in the order of the requests, so the oldest
one in flight is always the next to be answered.
"""

from collections import deque
from dataclasses import dataclass

from tidelog.clients.asking import Answered, Ask, Cause, Features, Lost, Outcome, Ticket
from tidelog.clients.settings import SOFTWARE_NAME, SOFTWARE_VERSION, ConnectionSettings
from tidelog.kernel.instant import Instant
from tidelog.wire.compile import Piece
from tidelog.wire.errors import ErrorCode, WireError
from tidelog.wire.frame import decode_response, decode_size, encode_request
from tidelog.wire.header import AnyApi
from tidelog.wire.messages.k18_api_versions import API as API_VERSIONS
from tidelog.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

SIZE_BYTES = 4
CORRELATION_ID_MAX = 2**31 - 1

_NEGOTIATION = Ticket(-1)
_UNSUPPORTED = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")


@dataclass(slots=True)
class _Waiting:
    ticket: Ticket
    ask: Ask
    deadline: Instant
    version: int = -1
    correlation_id: int = -1


class Session:
    """Invariant: `in_flight` is in the order of correlation ids, and at most the setting's maximum.

    `failed` is set once, to the reason, by whatever ended the session; then nothing more goes in or
    out, and the shell closes the connection.
    """

    def __init__(self, now: Instant, broker: object, settings: ConnectionSettings) -> None:
        self._broker = broker
        self._settings = settings
        self._queue: deque[_Waiting] = deque()
        self._in_flight: deque[_Waiting] = deque()
        self._unanswered: deque[_Waiting] = deque()
        self._next_correlation_id = 0
        self._ranges: dict[int, tuple[int, int]] | None = None
        self._output: list[Piece] = []
        self._size = bytearray(SIZE_BYTES)
        self._frame: bytearray | None = None
        self._filled = 0
        self.failed: str | None = None
        self.features = Features()
        """As the broker says when it is connected to."""
        self._negotiate(now, API_VERSIONS.versions[-1])

    @property
    def idle(self) -> bool:
        """Nothing asked waits for its answer."""
        return not self._open()

    def ask(self, now: Instant, ticket: Ticket, ask: Ask) -> list[Outcome]:
        """Send, or keep until it can be sent. An API that the broker lacks is lost at once."""
        assert self.failed is None, self.failed
        self._queue.append(_Waiting(ticket, ask, Instant(now + ask.timeout_ns)))
        return self._send_waiting()

    def version_of(self, api: AnyApi, version_max: int, version_min: int = 0) -> int | None:
        """The version to speak, or None; the broker's floor is respected, and our own."""
        assert self._ranges is not None, "negotiation comes first"
        offered = self._ranges.get(api.key)
        if offered is None:
            return None
        version = min(offered[1], api.versions[-1], version_max)
        return version if version >= max(offered[0], api.versions[0], version_min) else None

    def take_output(self) -> list[Piece]:
        """The bytes to be written, each given out once, in order."""
        output, self._output = self._output, []
        return output

    def written(self) -> list[Outcome]:
        """All output was taken by the operating system: what gets no answer is done with that."""
        done = [Answered(one.ticket, one.version, None) for one in self._unanswered]
        self._unanswered.clear()
        return list(done)

    def buffer(self) -> memoryview:
        """Where the next bytes from the broker go; never empty."""
        target = self._size if self._frame is None else self._frame
        return memoryview(target)[self._filled :]

    def received(self, now: Instant, count: int) -> list[Outcome]:
        """So many bytes were written to `buffer()`."""
        assert count > 0, count
        self._filled += count
        try:
            return self._advance(now)
        except WireError as error:
            return self.fail(Cause.BROKEN, f"it speaks another protocol than Kafka's: {error}")

    def deadline(self) -> Instant | None:
        """When the first question is given up, if nothing else happens."""
        return min((one.deadline for one in self._open()), default=None)

    def expire(self, now: Instant) -> list[Outcome]:
        """Give up the whole session where one answer is overdue.

        Its answer may still come, and would be in the way of all that follow.
        """
        deadline = self.deadline()
        if deadline is None or now < deadline:
            return []
        return self.fail(Cause.TIMED_OUT, "no answer in time")

    def fail(self, cause: Cause, detail: str) -> list[Outcome]:
        """The connection is gone, or must go: every open question is lost."""
        assert self.failed is None, self.failed
        self.failed = f"{self._broker}: {detail}"
        waiting = self._open()
        self._in_flight.clear()
        self._unanswered.clear()
        self._queue.clear()
        self._output.clear()
        return [
            Lost(one.ticket, cause, self.failed) for one in waiting if one.ticket != _NEGOTIATION
        ]

    def _open(self) -> list[_Waiting]:
        return [*self._in_flight, *self._unanswered, *self._queue]

    def _negotiate(self, now: Instant, version: int) -> None:
        request = ApiVersionsRequest(
            client_software_name=SOFTWARE_NAME, client_software_version=SOFTWARE_VERSION
        )
        ask = Ask(API_VERSIONS, request, timeout_ns=self._settings.request_timeout_ns)
        deadline = Instant(now + ask.timeout_ns)
        self._send(_Waiting(_NEGOTIATION, ask, deadline, version))

    def _send_waiting(self) -> list[Outcome]:
        outcomes: list[Outcome] = []
        while self._ranges is not None and self._queue:
            if len(self._in_flight) >= self._settings.in_flight_max:
                break
            waiting = self._queue.popleft()
            ask = waiting.ask
            version = self.version_of(ask.api, ask.version_max, ask.version_min)
            if version is None:
                detail = f"{self._broker} does not offer {ask.api.name}"
                outcomes.append(Lost(waiting.ticket, Cause.UNSUPPORTED, detail))
                continue
            waiting.version = version
            self._send(waiting)
        return outcomes

    def _send(self, waiting: _Waiting) -> None:
        waiting.correlation_id = self._next_correlation_id
        self._next_correlation_id = (self._next_correlation_id + 1) & CORRELATION_ID_MAX
        ask = waiting.ask
        pieces = encode_request(
            ask.api, waiting.version, waiting.correlation_id, self._settings.client_id, ask.message
        )
        self._output.extend(pieces)
        (self._in_flight if ask.answered else self._unanswered).append(waiting)

    def _advance(self, now: Instant) -> list[Outcome]:
        if self._frame is None:
            if self._filled == SIZE_BYTES:
                self._frame = bytearray(decode_size(self._size))
                self._filled = 0
                if not self._frame:
                    raise WireError("a frame of 0 bytes")
            return []
        if self._filled < len(self._frame):
            return []
        frame, self._frame, self._filled = memoryview(self._frame), None, 0
        return self._answer(now, frame)

    def _answer(self, now: Instant, frame: memoryview) -> list[Outcome]:
        if not self._in_flight:
            raise WireError("an answer to no question")
        waiting = self._in_flight[0]
        version = waiting.version
        if waiting.ticket == _NEGOTIATION and frame[4:6] == _UNSUPPORTED:
            version = 0
        correlation_id, message = decode_response(waiting.ask.api, version, frame)
        if correlation_id != waiting.correlation_id:
            raise WireError(f"answer to request {correlation_id}, not {waiting.correlation_id}")
        self._in_flight.popleft()
        if waiting.ticket == _NEGOTIATION:
            self._negotiated(now, waiting.version, message)
            return self._send_waiting()
        return [Answered(waiting.ticket, version, message), *self._send_waiting()]

    def _negotiated(self, now: Instant, asked: int, answer: ApiVersionsResponse) -> None:
        ranges = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            # The broker says what it has; one that names nothing can still do version 0.
            newest = min(ranges.get(API_VERSIONS.key, (0, 0))[1], asked - 1)
            if newest < 0:
                raise WireError("the broker refuses every version of ApiVersions")
            self._negotiate(now, newest)
        elif answer.error_code != ErrorCode.NONE:
            raise WireError(f"ApiVersions failed with error {answer.error_code}")
        else:
            self._ranges = ranges
            levels = {one.name: one.max_version_level for one in answer.finalized_features}
            self.features = Features(answer.finalized_features_epoch, levels)
