"""Texts that a test compares with a file; `--golden=write` writes them anew, to be reviewed."""

import difflib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.processes.cluster import Cluster
from harness.processes.commands import Finished
from harness.suite.tidy_checks import ROOT

FOLDER = ROOT / "tests" / "golden"
_MASKS: Sequence[tuple[str, str]] = (
    (r"\(pid \d+\)", "(pid PID)"),
    (r"; running elsewhere: .*", ""),
    (r"kill -9 \d+", "kill -9 PID"),
    (r'"(pid|its_pid|to)": ?\d+', r'"\1": PID'),
    (r"its_pid=\d+|to=\d+", "its_pid=PID"),
    (r"127\.0\.0\.1:\d+", "127.0.0.1:PORT"),
    (r'"port": ?[1-9]\d*', '"port": PORT'),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z?", "TIME"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}", "TIME"),
    (r"\d\d:\d\d:\d\d\.\d{3}", "TIME"),
    (r"\d+(\.\d+)? ms\b", "N ms"),
    (r"\d+\.\d+ s\b", "N s"),
    (r'"(seconds|uptime_s|after_s)": ?[\d.]+', r'"\1": S'),
    (r"after_s=[\d.]+", "after_s=S"),
    (r'"(rss_bytes|pss_bytes)": ?[1-9]\d*', r'"\1": BYTES'),
    (r'"(cluster|topic)_id": ?"[\w-]{22}"', r'"\1_id": "ID"'),
    (r"\([\w-]{22}\)", "(ID)"),
    # columns of tables: as wide as what was masked
    (r"(?<=\S) {2,}", "  "),
    (r"(?m)^(supervisor|(?:transaction-)?coordinator|broker \d+)  \d+", r"\1  PID"),
    (r"(?m)(  [a-z]+)  \d{4,5}  ", r"\1  PORT  "),
    (r"(?m)  \d+ s  [\d.]+ [KM]iB", "  N s  SIZE"),
)


def masked(text: str, *folders: Path) -> str:
    """The text with what differs from run to run replaced by its name."""
    for folder in folders:
        text = text.replace(str(folder), "FOLDER")
    for pattern, name in _MASKS:
        text = re.sub(pattern, name, text)
    return text


def difference(wanted: str, got: str) -> str:
    """Only the lines that differ."""
    lines = difflib.unified_diff(wanted.splitlines(), got.splitlines(), "is", "was", n=0)
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Golden:
    """`golden(name, text)` compares, or writes where the run was asked to."""

    write: bool

    def __call__(self, name: str, text: str) -> None:
        path = FOLDER / f"{name}.txt"
        if self.write:
            path.write_text(text, encoding="utf-8")
        wanted = path.read_text(encoding="utf-8") if path.exists() else ""
        if text != wanted:
            differs = f"{path.name} differs; pytest --golden=write, then review the diff"
            raise AssertionError(f"{differs}\n{difference(wanted, text)}")


def spoken(words: Sequence[str], finished: Finished, *folders: Path) -> str:
    """A command as a reader of the golden file sees it: what was typed, what came, how it ended."""
    parts = [f"$ tidelog {' '.join(words)}\n", finished.out]
    parts += [f"! {line}\n" for line in finished.err.splitlines()]
    parts.append(f"exit {finished.code}\n\n")
    return masked("".join(parts), *folders)


def told(cluster: Cluster, *commands: Sequence[str]) -> str:
    """Several commands, one after the other, as one text."""
    folder = Path(os.path.realpath(cluster.folder))
    return "".join(
        spoken(words, cluster.command(*words), folder, cluster.folder) for words in commands
    )


@pytest.fixture
def golden(pytestconfig: pytest.Config) -> Golden:
    return Golden(write=pytestconfig.getoption("--golden") == "write")
