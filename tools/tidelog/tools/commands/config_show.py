"""`tidelog config show`: the settings that a start would take, and where they are given."""

import os
from collections.abc import Sequence
from pathlib import Path

import click
from msgspec import Struct

from tidelog.kernel.config import SettingError
from tidelog.tools.output import Command, emit_json, json_option, profile_option, table
from tidelog.tools.supervisor.sources import Flags, Origin, origins

VERSION = 1
ALL_BROKERS = "all"


class _Row(Struct):
    """One setting of all brokers or of one; the place that counts comes first."""

    name: str
    broker: int
    places: list[Origin]

    @property
    def scope(self) -> str:
        return ALL_BROKERS if self.broker < 0 else str(self.broker)

    def document(self) -> dict[str, object]:
        return {
            "name": self.name,
            "broker": None if self.broker < 0 else self.broker,
            "value": self.places[0].text,
            "origins": [{"value": one.text, "from": one.where} for one in self.places],
        }

    def cells(self, *, origin: bool) -> tuple[object, ...]:
        counts, *weaker = self.places
        short = (self.scope, self.name, counts.text)
        if not origin:
            return short
        return (*short, counts.where, [f"{one.text} ({one.where})" for one in weaker])


@click.command(
    "show",
    cls=Command,
    examples=("tidelog config show", "tidelog config show --origin"),
)
@click.option("--origin", is_flag=True, help="Say where each comes from, and what it wins over.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="As of tidelog up.")
@click.option("--config", "file", metavar="FILE", envvar="TIDELOG_CONFIG", help="As of tidelog up.")
@profile_option
@json_option
def show(
    settings: Sequence[str],
    file: str | None,
    profile: str | None,
    *,
    origin: bool,
    as_json: bool,
) -> None:
    """Show the settings that tidelog up would start a cluster with.

    They come from a file, a profile in it, the environment and flags; each wins over those before.
    """
    rows = _rows(Flags(settings=settings, config=file, profile=profile))
    if as_json:
        emit_json({"version": VERSION, "settings": [row.document() for row in rows]})
        return
    columns = ("BROKER", "SETTING", "VALUE", "FROM", "WINS OVER")
    table([row.cells(origin=origin) for row in rows], columns if origin else columns[:3])


def _rows(flags: Flags) -> list[_Row]:
    from tidelog.node.settings import BROKER  # noqa: PLC0415 -- only this needs the tables

    try:
        given = origins(flags, os.environ, Path.cwd(), BROKER)
    except SettingError as error:
        raise click.UsageError(str(error)) from error
    found: dict[tuple[int, str], _Row] = {}
    for one in given:
        row = found.setdefault((one.broker, one.name), _Row(one.name, one.broker, []))
        row.places.insert(0, one)
    return [found[key] for key in sorted(found)]
