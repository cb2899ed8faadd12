"""Every command is held by a golden text, as people see it and as programs do."""

import re
from collections.abc import Iterator

import pytest

from harness.processes.command_tree import Path, leaves
from harness.processes.golden import FOLDER
from tidelog.tools import cli

DONE_OR_WARNED = {0, 5}
NOT_TOLD = {("completion",), ("wait", "stable")}
"""A script that click writes, another with each version; and what is the same in both forms."""


LEAVES = set(leaves(cli.cli))


def spoken() -> Iterator[tuple[Path, bool, int]]:
    """Of each command in a golden text: which, whether with --json, and its exit code."""
    for file in sorted(FOLDER.glob("cli_*.txt")):
        blocks = re.split(r"(?m)^\$ tidelog ", file.read_text(encoding="utf-8"))
        for block in blocks[1:]:
            words = block.partition("\n")[0].split()
            code = int(re.findall(r"(?m)exit (\d+)$", block)[-1])
            for length in (3, 2, 1):
                if tuple(words[:length]) in LEAVES:
                    yield tuple(words[:length]), "--json" in words, code


SPOKEN = set(spoken())


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "json"])
@pytest.mark.parametrize("path", sorted(LEAVES - NOT_TOLD), ids=" ".join)
def test_what_a_command_prints_when_done_is_in_a_golden_text(path: Path, *, as_json: bool) -> None:
    assert any((path, as_json, code) in SPOKEN for code in DONE_OR_WARNED)


def test_every_exit_code_of_the_contract_but_an_interruption_is_in_a_golden_text() -> None:
    assert {code for _, _, code in SPOKEN} == {0, 1, 2, 3, 4, 5}
