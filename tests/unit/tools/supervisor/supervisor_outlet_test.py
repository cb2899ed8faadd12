"""Lines for people: written where there is room, kept for a while, then left out and counted."""

import fcntl
import os
import pty
import socket
import termios
from pathlib import Path

import pytest

from harness.processes.other_user import as_other_user, needs_root
from tidelog.tools.supervisor.outlet import WAITING_BYTES_MAX, Outlet

MANY = 4 * WAITING_BYTES_MAX // 100
SMALLEST_PIPE = 4096


def lines_of(*numbers: int) -> list[str]:
    return [f"line {number:094}" for number in numbers]


def small_pipe() -> tuple[int, int]:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, SMALLEST_PIPE)
    return reader, writer


def drained(outlet: Outlet, reader: int) -> list[str]:
    """Everything that has been written and is still waiting."""
    os.set_blocking(reader, False)
    found = b""
    try:
        while True:
            found += os.read(reader, 65_536)
            outlet.flush()
    except BlockingIOError:
        return found.decode().splitlines()


def test_lines_wait_for_room_in_a_full_pipe_and_keep_their_order() -> None:
    reader, writer = small_pipe()
    outlet = Outlet(writer)
    for line in lines_of(*range(200)):
        outlet.say(line)
    assert drained(outlet, reader) == lines_of(*range(200))


def test_the_oldest_lines_are_left_out_and_counted() -> None:
    reader, writer = small_pipe()
    outlet = Outlet(writer)
    for line in lines_of(*range(MANY)):
        outlet.say(line)
    found = drained(outlet, reader)
    (gap,) = (index for index, line in enumerate(found) if "left out" in line)
    before, after = found[:gap], found[gap + 1 :]
    count = int(found[gap].removeprefix("(").split()[0])
    assert before == lines_of(*range(len(before)))
    assert after == lines_of(*range(MANY - len(after), MANY))
    assert len(before) + count + len(after) == MANY
    assert found[gap].endswith("lines were left out here: see tidelog logs supervisor)")


def test_the_flags_of_the_open_file_stay_as_they_were() -> None:
    reader, writer = small_pipe()
    outlet = Outlet(writer)
    outlet.say("x" * 2 * SMALLEST_PIPE)
    assert not fcntl.fcntl(writer, fcntl.F_GETFL) & os.O_NONBLOCK
    drained(outlet, reader)


def test_a_terminal_that_was_stopped_shows_all_when_it_goes_on() -> None:
    ours, theirs = pty.openpty()
    outlet = Outlet(theirs)
    termios.tcflow(theirs, termios.TCOOFF)
    for line in lines_of(*range(10)):
        outlet.say(line)
    os.set_blocking(ours, False)
    with pytest.raises(BlockingIOError):
        os.read(ours, 1)
    termios.tcflow(theirs, termios.TCOON)
    outlet.flush()
    assert drained(outlet, ours) == lines_of(*range(10))


def test_a_reader_that_is_gone_is_not_waited_for() -> None:
    reader, writer = small_pipe()
    outlet = Outlet(writer)
    outlet.say("read by nobody")
    os.close(reader)
    for line in lines_of(*range(MANY)):
        outlet.say(line)
    Outlet(writer).say("from the beginning")


def test_a_socket_that_nobody_reads_is_not_waited_for() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        outlet = Outlet(theirs.fileno())
        for line in lines_of(*range(MANY)):
            outlet.say(line)
        found = drained(outlet, ours.fileno())
        assert found[0] == lines_of(0)[0]
        assert found[-1] == lines_of(MANY - 1)[0]


def test_a_file_takes_every_line(tmp_path: Path) -> None:
    with (tmp_path / "out").open("a") as file:
        outlet = Outlet(file.fileno())
        for line in lines_of(*range(MANY)):
            outlet.say(line)
    assert (tmp_path / "out").read_text().splitlines() == lines_of(*range(MANY))


def test_what_the_terminal_cannot_show_is_shown_escaped(tmp_path: Path) -> None:
    with (tmp_path / "out").open("a") as file:
        Outlet(file.fileno(), "ascii").say("tea \xe9")
    assert (tmp_path / "out").read_text() == "tea \\xe9\n"


@needs_root
def test_a_pipe_of_another_user_is_asked_before_each_write() -> None:
    reader, writer = small_pipe()

    def say() -> str:
        outlet = Outlet(writer)
        for line in lines_of(*range(200)):
            outlet.say(line)
        return "it did not wait"

    assert as_other_user(say) == "'it did not wait'"
    assert os.read(reader, 100).decode() == f"{lines_of(0)[0]}\n"


@needs_root
def test_a_terminal_of_another_user_is_asked_before_each_write() -> None:
    ours, theirs = pty.openpty()

    def say() -> str:
        outlet = Outlet(theirs)
        outlet.say("it goes")
        termios.tcflow(theirs, termios.TCOOFF)
        for line in lines_of(*range(MANY)):
            outlet.say(line)
        return "it did not wait"

    assert as_other_user(say) == "'it did not wait'"
    assert os.read(ours, 100) == b"it goes\r\n"
