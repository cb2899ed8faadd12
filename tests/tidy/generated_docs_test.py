"""The pages made from rows are what the rows say now."""

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from harness.processes.command_tree import leaves
from harness.suite.tidy_checks import ROOT
from tidelog.kernel.config import Table
from tidelog.node import settings
from tidelog.node.api import dispatch
from tidelog.tools import cli, doc_tables


def test_the_generated_pages_are_current() -> None:
    stale = doc_tables.stale(ROOT / "docs")
    assert stale == [], "run: python -m tidelog.tools.doc_tables"


def test_a_page_that_was_changed_by_hand_is_stale(tmp_path: Path) -> None:
    doc_tables.main(tmp_path)
    assert doc_tables.stale(tmp_path) == []
    page = tmp_path / "settings.md"
    page.write_text(page.read_text(encoding="utf-8") + "by hand\n", encoding="utf-8")
    assert doc_tables.stale(tmp_path) == ["settings.md"]
    page.unlink()
    assert "settings.md" in doc_tables.stale(tmp_path)


@pytest.mark.parametrize("table", [settings.TOPIC, settings.BROKER], ids=["topic", "broker"])
def test_every_setting_is_on_its_page(table: Table) -> None:
    page = doc_tables.settings_page()
    assert [name for name in table.rows if f"| `{name}` |" not in page] == []


def test_every_command_and_option_is_on_its_page() -> None:
    page = doc_tables.pages()["commands.md"]
    sections = page.split("\n## tidelog ")[1:]
    names = {section.partition("\n")[0] for section in sections}
    assert {"up", "topic create", "config lint", "log verify", "wait ready"} <= names
    options = {flag for command in leaves(cli.cli).values() for flag in _flags(command)}
    assert [flag for flag in sorted(options) if f"`{flag}" not in page] == []
    assert names == {" ".join(path) for path in leaves(cli.cli)}


def _flags(command: click.Command) -> Iterator[str]:
    for one in command.params:
        if isinstance(one, click.Option):
            yield from one.opts


def test_every_request_that_is_answered_is_on_its_page() -> None:
    page = doc_tables.protocol_page()
    routes = dispatch.routes().routes.values()
    assert [route.api.name for route in routes if f"[{route.api.name}](" not in page] == []
