"""What a broker and the transaction coordinator do for each other: clients' requests go there, and
what it wants appended, read and marked is done here. No I/O but through the log: the shell has the
socket and the timer.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, assert_never

from tidelog.kernel.ids import Epoch, Offset
from tidelog.kernel.instant import Instant
from tidelog.node.metadata.image import MetadataImage
from tidelog.node.transactions.admissions import Admissions
from tidelog.node.transactions.link import (
    Abandoned,
    Connected,
    Disconnected,
    EpochHeard,
    Event,
    Finished,
    ForwardAsked,
    Link,
    Me,
    Received,
    Reply,
    Request,
    Send,
    Serve,
    Served,
    Tick,
    refusal,
)
from tidelog.node.transactions.marking import Marks
from tidelog.node.transactions.state_log import StateLog
from tidelog.wire.control import Client
from tidelog.wire.errors import ErrorCode, Rejected
from tidelog.wire.transactions import (
    STATE_TOPIC,
    Admit,
    Append,
    Appended,
    Chunk,
    Mark,
    Marked,
    Read,
    ToTransactions,
)

Done = Callable[[Instant, bytes | ErrorCode], None]
"""Gets the answer's frame without its size, or why there is none."""

_LISTENER: Final = "PLAINTEXT"
_PRINCIPAL: Final = "User:ANONYMOUS"


class Surroundings(NamedTuple):
    """What this uses of its broker."""

    image: MetadataImage
    state_log: StateLog
    marks: Marks
    admissions: Admissions
    is_lost: Callable[[], bool]
    """Whether this broker was given up: it says nothing then."""
    send: Callable[[ToTransactions], None]
    alarm: Callable[[Instant], None]
    """`ring` is wanted then, or earlier than it was."""


class Service:
    """Invariant: each call that is forwarded is finished once; while this broker is given up
    nothing is said, and what it was asked before it never answers."""

    def __init__(self, me: Me, around: Surroundings) -> None:
        self._around = around
        self._link = Link(me)
        self._is_up = False
        self._is_member = False
        self._calls = 0
        self._done: dict[int, Done] = {}
        self._parked: list[Serve] = []
        """What comes from a metadata image that is newer than ours."""

    # -- what this broker asks

    def forward(
        self,
        now: Instant,
        frame: bytes,
        client_address: str,
        deadline: Instant,
        done: Done,
    ) -> Callable[[Instant], None]:
        """Have the transaction coordinator answer a frame without its size; `done` is called once.

        What it returns is to be called where nobody waits any more: what was not sent by then is
        not sent.
        """
        self._calls += 1
        call = self._calls
        self._done[call] = done
        client = Client(_LISTENER, _PRINCIPAL, client_address)
        self._step(now, ForwardAsked(call, client, frame, deadline))
        return lambda at: self._step(at, Abandoned(call))

    # -- what the shell tells

    def up(self, now: Instant) -> None:
        """There is a connection, a new one."""
        self._is_up = True
        self._meet(now)

    def down(self, now: Instant) -> None:
        """There is none."""
        self._is_up = False
        self._step(now, Disconnected())

    def registered(self, now: Instant) -> None:
        """The cluster takes this broker (back)."""
        self._is_member = True
        self._meet(now)

    def lost(self, now: Instant) -> None:
        """This broker was given up: whatever it is asked, others do now."""
        self._is_member = False
        self._step(now, Disconnected())

    def _meet(self, now: Instant) -> None:
        if self._is_up and self._is_member:
            self._step(now, Connected())

    def received(self, now: Instant, frame: bytes) -> None:
        self._step(now, Received(frame))

    def image_changed(self, now: Instant) -> None:
        """The image has moved on, and the replicas have followed it."""
        self._step(now, EpochHeard(self._around.image.transactions_epoch))
        self._look_at_parked(now)

    def _look_at_parked(self, now: Instant) -> None:
        """What can be done by now is done; of an earlier session nothing is any more."""
        parked, self._parked = self._parked, []
        for served in parked:
            if served.request.session == self._link.session:
                self._serve(now, served)
            else:
                self._reply(now, served, refusal(served, ErrorCode.REQUEST_TIMED_OUT))

    def ring(self, now: Instant) -> Instant | None:
        """Do what is due; when this is wanted next."""
        due = self._link.deadline()
        if due is not None and due <= now:
            self._step(now, Tick())
        return self._link.deadline()

    def _step(self, now: Instant, event: Event) -> None:
        for effect in self._link.step(now, event):
            match effect:
                case Send(message):
                    self._say(message)
                case Finished(call, result):
                    self._done.pop(call)(now, result)
                case Serve():
                    self._serve(now, effect)
                case Admit():
                    self._around.admissions.take(effect)
                case _:
                    assert_never(effect)
        if self._parked and self._parked[0].request.session != self._link.session:
            self._look_at_parked(now)
        due = self._link.deadline()
        if due is not None:
            self._around.alarm(due)

    def _say(self, message: ToTransactions) -> None:
        if not self._around.is_lost():
            self._around.send(message)

    # -- what it is asked

    def _serve(self, now: Instant, served: Serve) -> None:
        request = served.request
        if request.epoch < self._link.epoch:
            self._reply(now, served, refusal(served, ErrorCode.TRANSACTION_COORDINATOR_FENCED))
        elif self._is_ahead(request):
            self._parked.append(served)
        elif isinstance(request, Append):
            self._around.state_log.append(now, request, partial(self._appended, served))
        elif isinstance(request, Mark):
            marks, epoch = self._around.marks, request.epoch
            marks.mark(now, epoch, request.markers, partial(self._marked, served))
        else:
            self._reply(now, served, self._read(served, request))

    def _is_ahead(self, request: Request) -> bool:
        """Whether it is about a leader epoch that our image has not come to."""
        if isinstance(request, Mark):
            return any(
                self._is_newer(one.topic, one.partition, one.leader_epoch)
                for one in request.markers
            )
        return self._is_newer(STATE_TOPIC, request.partition, request.leader_epoch)

    def _is_newer(self, topic: str, partition: int, leader_epoch: Epoch) -> bool:
        """Of a partition that is not there nobody can say that it will be."""
        view = self._around.image.names.get(topic)
        return (
            view is not None
            and 0 <= partition < len(view.partitions)
            and leader_epoch > view.partitions[partition].leader_epoch
        )

    def _read(self, served: Serve, request: Read) -> Reply:
        try:
            found = self._around.state_log.read(request)
        except Rejected as refused:
            return refusal(served, refused.code)
        return Chunk(served.to, request.call, ErrorCode.NONE, *found)

    def _appended(self, served: Serve, now: Instant, code: ErrorCode, end: Offset) -> None:
        self._reply(now, served, Appended(served.to, served.request.call, code, end))

    def _marked(self, served: Serve, now: Instant, outcomes: tuple[ErrorCode, ...]) -> None:
        self._reply(now, served, Marked(served.to, served.request.call, outcomes))

    def _reply(self, now: Instant, served: Serve, reply: Reply) -> None:
        self._step(now, Served(served, reply))
