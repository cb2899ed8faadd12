"""What every process does for itself: log lines, their bounds, the word to its parent."""

import json
import logging
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from harness.processes.other_user import as_other_user, in_its_own_process, needs_root
from tidelog.node.runtime.process import (
    EventFormatter,
    EventLog,
    LogFile,
    printable,
    remove_folder,
    report_failed,
    report_ready,
)
from tidelog.tools.supervisor.child import last_words


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log file that the logger `test` writes, and nothing else does."""
    path = tmp_path / "test.log"
    handler = LogFile(str(path), take_output=False, bytes_max=2_000)
    handler.setFormatter(EventFormatter("broker-3"))
    logger = logging.getLogger("test")
    logger.handlers = [handler]
    logger.propagate = False
    logger.setLevel(logging.INFO)
    return path


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_event_is_one_line_with_its_fields(log: Path) -> None:
    EventLog("test").info("isr_shrunk", partition="t-0", left=3, part=0.5, gone=None, ids=[1, 2])
    (line,) = lines(log)
    assert line["event"] == "isr_shrunk"
    assert line["level"] == "info"
    assert line["process"] == "broker-3"
    assert line["pid"] == os.getpid()
    assert (line["partition"], line["left"], line["part"]) == ("t-0", 3, 0.5)
    assert (line["gone"], line["ids"]) == (None, [1, 2])
    assert str(line["time"]).endswith("Z")


def test_what_is_below_the_level_is_not_written(log: Path) -> None:
    EventLog("test").debug("detail")
    EventLog("test").warning("trouble")
    assert [line["event"] for line in lines(log)] == ["trouble"]


def test_a_strangers_bytes_are_escaped_and_cut(log: Path) -> None:
    EventLog("test").info("request_refused", client=b"\x1b[31m\xff\n", name="\u202e" + "x" * 10_000)
    (line,) = lines(log)
    assert line["client"] == "\\x1b[31m\\xff\\n"
    assert str(line["name"]).startswith("\\u202ex")
    assert len(str(line["name"])) < 600


def test_a_library_that_logs_text_and_a_traceback_gets_a_line_too(log: Path) -> None:
    try:
        int("x\ny")
    except ValueError:
        logging.getLogger("test").exception("it %s", "broke")
    (line,) = lines(log)
    assert line["event"] == "it broke"
    assert "ValueError" in str(line["traceback"])


def test_a_log_does_not_grow_without_bound(log: Path) -> None:
    for number in range(100):
        EventLog("test").info("tick", number=number)
    assert log.stat().st_size < 2_500
    old = log.with_name("test.log.1")
    assert old.stat().st_size < 2_500
    assert lines(log)[-1]["number"] == 99


def test_a_full_disk_loses_lines_and_not_the_process(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        EventLog("test").info("lost")
    EventLog("test").info("kept")
    assert [line["event"] for line in lines(log)] == ["kept"]


def test_a_line_that_was_written_in_part_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "log"

    def write() -> None:
        handler = LogFile(str(path), take_output=False)
        handler.setFormatter(EventFormatter("broker-3"))
        logger = logging.getLogger("torn")
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.INFO)
        unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20, unlimited[1]))
        EventLog("torn").info("cut")
        EventLog("torn").info("lost")
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        EventLog("torn").info("whole")

    assert in_its_own_process(write) == "None"
    torn, whole = path.read_text().splitlines()
    assert len(torn) == 20
    assert json.loads(whole)["event"] == "whole"


CRASH = """
import asyncio, logging, sys
from tidelog.node.runtime.process import EventLog, crash_by_bugs
logging.basicConfig(stream=sys.stdout, format="%(message)s %(fields)s")
loop = asyncio.new_event_loop()
crash_by_bugs(loop, EventLog("test"))
loop.call_soon(lambda: [][0])
loop.call_later(5, loop.stop)
loop.run_forever()
"""


def test_an_exception_nobody_expected_ends_the_process_with_its_reason_in_the_log() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CRASH], capture_output=True, text=True, check=False
    )
    assert done.returncode == 70
    assert done.stdout == "crashed {'reason': \"IndexError('list index out of range')\"}\n"


def test_the_parent_is_told_once_in_one_line() -> None:
    for tell, wanted in (
        (report_ready, b"ready\n"),
        (lambda fd: report_failed(fd, "no\nroom: make some"), b"failed: no room: make some\n"),
    ):
        reader, writer = os.pipe()
        tell(writer)
        assert os.read(reader, 100) == wanted
        assert os.read(reader, 100) == b""
        os.close(reader)


def test_a_parent_that_is_gone_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    report_ready(writer)


def test_a_long_sentence_is_still_one_line() -> None:
    reader, writer = os.pipe()
    report_failed(writer, "x" * 100_000)
    told = os.read(reader, 10_000)
    assert told.endswith(b"x\n")
    assert len(told) == 4096
    os.close(reader)


@pytest.mark.parametrize(
    ("value", "shown"),
    [("plain", "plain"), (b"\x00", "\\x00"), ("a\tb", "a\\tb"), (17, "17"), ("é✓", "é✓")],
)
def test_what_is_printable_stays(value: object, shown: str) -> None:
    assert printable(value) == shown


def test_the_last_words_of_a_process_are_what_it_printed_last(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert last_words(str(path)) == ""
    path.write_bytes(b"")
    assert last_words(str(path)) == ""
    path.write_bytes(b'{"event": "x"}\nTraceback\nRuntimeError: \x1b no\n')
    assert last_words(str(path)) == "RuntimeError: \\x1b no"
    path.write_bytes(b'RuntimeError\n{"event": "x"}\n')
    assert last_words(str(path)) == ""


def test_a_folder_of_sockets_is_removed_and_a_missing_one_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "a").write_text("")
    remove_folder(str(tmp_path / "r"))
    assert not (tmp_path / "r").exists()
    remove_folder(str(tmp_path / "r"))


def test_a_folder_of_sockets_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letters").write_text("keep")
    (tmp_path / "r").symlink_to(tmp_path / "mine")
    remove_folder(str(tmp_path / "r"))
    assert (tmp_path / "mine" / "letters").read_text() == "keep"


def test_a_folder_that_is_a_file_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("keep")
    remove_folder(str(tmp_path / "r"))
    assert (tmp_path / "r").read_text() == "keep"


@needs_root
def test_a_folder_of_another_user_stops_no_clean_up() -> None:
    folder = Path(tempfile.mkdtemp(prefix="tidelog-test-", dir="/tmp"))
    (folder / "a").write_text("")
    try:
        assert as_other_user(lambda: remove_folder(str(folder))) == "None"
        folder.chmod(0o755)
        assert as_other_user(lambda: remove_folder(str(folder))) == "None"
        assert (folder / "a").exists()
    finally:
        remove_folder(str(folder))
    assert not folder.exists()
