"""A broker's link, and coordinators one after the other that die, come back and speak late.

Each connection is a pair of queues. What an ended one still holds is lost, or arrives as late as a
draw will have it. A coordinator decides on what it may decide on, and remembers it.
"""

from collections import Counter, deque
from collections.abc import Callable
from random import Random

from tidelog.kernel.ids import BrokerId, Epoch, Incarnation, ProducerEpoch, ProducerId
from tidelog.kernel.instant import Instant, ms
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
    Send,
    Serve,
    Served,
    Tick,
    refusal,
)
from tidelog.wire.control import Client
from tidelog.wire.errors import ErrorCode
from tidelog.wire.transactions import (
    Admit,
    Answered,
    Append,
    Appended,
    Failed,
    Forward,
    FromTransactions,
    Hello,
    ToTransactions,
    Welcome,
    decode_to_transactions,
    encode,
)

ME = Me("cluster", BrokerId(2), Incarnation(5))
CLIENT = Client("PLAINTEXT", "User:ANONYMOUS", "127.0.0.1:1")
WAIT_MS = (50, 5_000)


class Coordinator:
    """One life."""

    def __init__(self, epoch: int) -> None:
        self.epoch = Epoch(epoch)
        self.life = Incarnation(100 + epoch)
        self.session = 0
        """Of the last Hello."""
        self.open: list[Forward] = []
        """Calls that it has not answered."""
        self.wanted: dict[int, int] = {}
        """Appends that wait for their outcome, and their session."""
        self.calls = 0

    def hear(self, message: ToTransactions, decided: Counter[bytes]) -> FromTransactions | None:
        if isinstance(message, Hello):
            if message.session < self.session:
                return None  # of a connection that was followed by another one
            self.session = message.session
            self.open.clear()
            self.wanted.clear()
            return Welcome(message.session, self.life, self.epoch)
        if message.to != self.life:
            return None
        if isinstance(message, Forward) and message.call > self.session:
            decided[message.frame] += 1
            self.open.append(message)
        elif isinstance(message, Appended):
            self.wanted.pop(message.call, None)
        return None


class World:
    """One history."""

    def __init__(self, seed: int, make: Callable[[Me], Link] = Link) -> None:
        self.random = Random(seed)
        self.link = make(ME)
        self.now = Instant(0)
        self.epoch = 0
        self.coordinators: list[Coordinator] = []
        self.at: Coordinator | None = None
        """Whom the connection leads to."""
        self.to: deque[bytes] = deque()
        self.back: deque[bytes] = deque()
        self.late_to: list[tuple[Coordinator, bytes]] = []
        self.late_back: list[bytes] = []
        self.asked: dict[int, Instant] = {}
        """Calls without an end, and their deadlines."""
        self.results: dict[int, bytes | ErrorCode] = {}
        self.sent: Counter[bytes] = Counter()
        self.decided: Counter[bytes] = Counter()
        self.serving: list[Serve] = []
        self.replies: list[Appended] = []
        self._calls = 0
        self.begin_coordinator()

    # -- what happens

    def step(self) -> None:
        draw, now = self.random, self.now
        actions: list[tuple[int, Callable[[], None]]] = [
            (6, self._ask),
            (8, self._deliver_to),
            (8, self._deliver_back),
            (5, self._answer),
            (3, self._want),
            (3, self._serve),
            (2, self._late),
            (2, lambda: self.wait(draw.choice((1, 20, 200)))),
            (1, self._abandon),
            (1, self.connect),
            (1, self.disconnect),
            (1, self._garbage),
        ]
        if draw.random() < 0.02:
            self.begin_coordinator()
        elif draw.random() < 0.03:
            self._drive(EpochHeard(Epoch(self.epoch)))
        else:
            weights = [weight for weight, _ in actions]
            draw.choices(actions, weights)[0][1]()
        assert self.now >= now
        self.check()

    def begin_coordinator(self) -> None:
        """Another life; the ones before may not know it yet."""
        self.epoch += 1
        self.coordinators.append(Coordinator(self.epoch))

    def connect(self, to: Coordinator | None = None) -> None:
        """To the latest one, nearly always; without seeing the end of the last one, at times."""
        if self.random.random() < 0.7:
            self.disconnect()
        else:
            self._break()
        old = self.random.random() < 0.1
        self.at = to or (self.random.choice(self.coordinators) if old else self.coordinators[-1])
        self._drive(Connected())

    def disconnect(self) -> None:
        self._break()
        self._drive(Disconnected())

    def _break(self) -> None:
        """What is on the way is lost, or comes late."""
        for frame in self.to:
            if self.at is not None and self.random.random() < 0.5:
                self.late_to.append((self.at, frame))
        self.late_back += [frame for frame in self.back if self.random.random() < 0.5]
        self.to.clear()
        self.back.clear()
        self.at = None

    def wait(self, milliseconds: int) -> None:
        """Time passes; the timer rings when it was set to."""
        until = Instant(self.now + ms(milliseconds))
        while (due := self.link.deadline()) is not None and due <= until:
            self.now = max(self.now, due)
            self._drive(Tick())
        self.now = until

    def _ask(self) -> None:
        self._calls += 1
        deadline = Instant(self.now + ms(self.random.choice(WAIT_MS)))
        self.asked[self._calls] = deadline
        frame = b"%d" % self._calls
        self._drive(ForwardAsked(self._calls, CLIENT, frame, deadline))

    def _abandon(self) -> None:
        if self.asked:
            self._drive(Abandoned(self.random.choice(list(self.asked))))

    def _garbage(self) -> None:
        self._drive(Received(b"\xc1"))

    def _deliver_to(self) -> None:
        if self.to and self.at is not None:
            self._hear(self.at, self.to.popleft())

    def _hear(self, coordinator: Coordinator, frame: bytes) -> None:
        answer = coordinator.hear(decode_to_transactions(frame), self.decided)
        if answer is not None:
            self._say(coordinator, answer)

    def _say(self, coordinator: Coordinator, message: FromTransactions) -> None:
        frame = encode(message)
        if coordinator is self.at:
            self.back.append(frame)
        elif self.random.random() < 0.5:
            self.late_back.append(frame)

    def _deliver_back(self) -> None:
        if self.back:
            self._drive(Received(self.back.popleft()))

    def _late(self) -> None:
        """Something of an earlier connection comes now."""
        if self.late_to and self.random.random() < 0.5:
            self._hear(*self.late_to.pop(self.random.randrange(len(self.late_to))))
        elif self.late_back:
            frame = self.late_back.pop(self.random.randrange(len(self.late_back)))
            self._drive(Received(frame))

    def _answer(self) -> None:
        coordinator = self.random.choice(self.coordinators[-2:])
        if coordinator.open:
            call = coordinator.open.pop(self.random.randrange(len(coordinator.open)))
            failed = self.random.random() < 0.2
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            number, session = call.call, coordinator.session
            self._say(
                coordinator,
                Failed(session, number, code) if failed else Answered(session, number, call.frame),
            )

    def _want(self) -> None:
        coordinator = self.random.choice(self.coordinators[-2:])
        if coordinator.session:
            who = ProducerId(7), ProducerEpoch(0)
            self._say(coordinator, Admit(coordinator.session, coordinator.epoch, *who, ()))
            coordinator.calls += 1
            coordinator.wanted[coordinator.calls] = coordinator.session
            self._say(
                coordinator,
                Append(
                    coordinator.session,
                    coordinator.calls,
                    coordinator.epoch,
                    0,
                    Epoch(1),
                    b"%d" % coordinator.epoch,
                ),
            )

    def _serve(self) -> None:
        if self.serving:
            one = self.serving.pop(self.random.randrange(len(self.serving)))
            replied = len(self.replies)
            self._drive(Served(one, refusal(one, ErrorCode.NOT_LEADER_OR_FOLLOWER)))
            is_now = one.request.session == self.link.session and self.link.is_welcome
            assert len(self.replies) - replied == is_now, "told in another session, or not at all"

    # -- what must be so

    def _drive(self, event: Event) -> None:
        heard = self.link.epoch
        for effect in self.link.step(self.now, event):
            match effect:
                case Send(message):
                    self._sent(message)
                case Finished(call, result):
                    self._finished(call, result)
                case Serve(_, request):
                    assert request.epoch >= heard, "done for a coordinator of the past"
                    self.serving.append(effect)
                case Admit(session, epoch):
                    assert session == self.link.session, "said in another session"
                    assert epoch >= heard, "said by a coordinator of the past"
        assert self.link.epoch >= heard

    def _sent(self, message: ToTransactions) -> None:
        if self.at is not None:
            self.to.append(encode(message))
        if isinstance(message, Appended):
            self.replies.append(message)
        elif isinstance(message, Forward):
            self.sent[message.frame] += 1
            coordinator = self.coordinators[message.to - 101]
            assert coordinator.epoch >= self.link.epoch, "asked a coordinator of the past"
            assert message.call > self.link.session

    def _finished(self, call: int, result: bytes | ErrorCode) -> None:
        assert call in self.asked, f"call {call} was finished twice, or never asked"
        assert self.now <= self.asked.pop(call), f"call {call} was finished late"
        assert isinstance(result, ErrorCode) or result == b"%d" % call, "another call's answer"
        self.results[call] = result

    def check(self) -> None:
        """After every step."""
        for frame, count in self.sent.items():
            assert count == 1, f"call {frame!r} was sent {count} times"
        for frame, count in self.decided.items():
            assert count == 1, f"call {frame!r} was decided {count} times"
        assert sorted(self.link.open_calls()) == sorted(self.asked)

    def settle(self) -> None:
        """In the end somebody is there who answers, and everything has an end."""
        self.connect(self.coordinators[-1])
        self._flow()
        self._ask()
        last = self._calls
        for _ in range(10):
            self._flow()
            if self.coordinators[-1].open:
                call = self.coordinators[-1].open.pop()
                answer = Answered(self.coordinators[-1].session, call.call, call.frame)
                self._say(self.coordinators[-1], answer)
        assert self.results[last] == b"%d" % last, "nobody answers any more"
        self.wait(WAIT_MS[1])
        assert not self.asked
        self.check()

    def _flow(self) -> None:
        while self.to or self.back:
            self._deliver_to()
            self._deliver_back()
