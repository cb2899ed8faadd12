"""Two ways to one broker: whatever goes by which, nothing is heard before what was sent earlier."""

from collections import deque

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidelog.kernel.ids import BrokerId
from tidelog.node.ipc.two_ways import HELD_MAX, STAMP_BYTES, Received, Sent, Stamp, read_stamp

ME = BrokerId(7)
ROOM_OF_THE_SHORT_WAY = 3

STEPS = st.sampled_from(["small", "large", "short arrives", "pipe arrives", "breaks", "dies"])
HISTORIES = st.lists(STEPS, max_size=60)


class Link:
    """A sender, both ways as queues, and a receiver that can die and be started again."""

    def __init__(self) -> None:
        self.session = 1
        self.sent = Sent(ME, self.session)
        self.connected = False
        self.leads_nowhere = False
        """The short way's end died, which is noticed with the next message by it."""
        self.said = 0
        self.pipe: deque[bytes] = deque()
        self.short: deque[bytes] = deque()
        self.received = Received()
        self.heard: list[int] = []
        self.lost: set[int] = set()

    def do(self, step: str) -> None:
        match step:
            case "small":
                self.say(small=True)
            case "large":
                self.say(small=False)
            case "short arrives":
                self.take_short()
            case "pipe arrives":
                self.take_pipe()
            case "breaks":
                self.connected = False
            case _:
                self.die()

    def say(self, *, small: bool) -> None:
        """As a way does: short where it can be, else through the pipe, which makes it anew."""
        self.said += 1
        frame = b"%d:" % self.said
        if small and self.leads_nowhere:
            self.connected = False
        stamp = self.sent.short_stamp()
        if small and self.connected and stamp and len(self.short) < ROOM_OF_THE_SHORT_WAY:
            self.short.append(frame + stamp)
            return
        if not self.connected:
            self.connected, self.leads_nowhere = True, False
            self.session += 1
            self.sent.begin(self.session)
        self.pipe.append(frame + self.sent.pipe_stamp())
        self.sent.piped()

    def take_short(self) -> None:
        if self.short:
            frame = self.short.popleft()
            if self.received.short(read_stamp(frame), frame):
                self.hear(frame)

    def take_pipe(self) -> None:
        if not self.pipe:
            return
        while self.short:
            self.take_short()
        frame = self.pipe.popleft()
        self.received.piped(read_stamp(frame))
        self.hear(frame)
        for (released,) in self.received.released():
            self.hear(released)

    def hear(self, frame: bytes) -> None:
        self.heard.append(int(frame.split(b":", 1)[0]))

    def die(self) -> None:
        """The receiver's next life hears the pipe's rest; what lay in its socket is gone."""
        self.short.clear()
        self.lost.update(range(1, self.said + 1))
        self.received = Received()
        self.leads_nowhere = True

    def settle(self) -> None:
        while self.pipe or self.short:
            self.take_short()
            self.take_pipe()


@given(HISTORIES)
@example(["large", "small", "large", "pipe arrives", "pipe arrives"])
@example(["large", "pipe arrives", "large", "small", "short arrives", "pipe arrives"])
def test_nothing_is_heard_before_what_was_sent_before_it(steps: list[str]) -> None:
    link = Link()
    for step in steps:
        link.do(step)
    link.settle()
    assert link.heard == sorted(set(link.heard))


@given(HISTORIES)
@example(["large", "pipe arrives", "breaks", "large", "small", "short arrives", "pipe arrives"])
def test_all_is_heard_while_the_receiver_lives(steps: list[str]) -> None:
    link = Link()
    for step in steps:
        if not step.startswith("dies"):
            link.do(step)
    link.settle()
    assert link.heard == list(range(1, link.said + 1))


@given(HISTORIES)
def test_what_is_said_to_the_last_life_is_heard(steps: list[str]) -> None:
    link = Link()
    for step in steps:
        link.do(step)
    link.settle()
    assert set(range(1, link.said + 1)) - set(link.heard) <= link.lost


def test_more_than_may_be_held_is_lost_and_what_comes_later_is_heard() -> None:
    received = Received()
    for _ in range(HELD_MAX + 1):
        assert not received.short(Stamp(ME, 5, 1), b"early")
    received.piped(Stamp(ME, 5, 1))
    assert not list(received.released())
    assert received.short(Stamp(ME, 5, 1), b"later")


def test_a_session_begins_in_the_pipe() -> None:
    sent = Sent(ME, 9)
    assert not sent.short_stamp()
    assert read_stamp(b"frame" + sent.pipe_stamp()) == (ME, 9, 1)
    sent.piped()
    assert read_stamp(b"frame" + sent.short_stamp()) == (ME, 9, 1)
    sent.begin(10)
    assert not sent.short_stamp()


@pytest.mark.parametrize("sender", [0, 65_535])
def test_a_stamp_says_who_sends(sender: int) -> None:
    sent = Sent(BrokerId(sender), 1)
    assert len(sent.pipe_stamp()) == STAMP_BYTES
    assert read_stamp(sent.pipe_stamp()).sender == sender
