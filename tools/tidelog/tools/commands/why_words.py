"""How every `tidelog why` tells its reasons: a sentence first, commands that help, then facts."""

from collections.abc import Sequence

import click

from tidelog.tools.output import emit_json
from tidelog.tools.reasons import Reason

VERSION = 1


def say(reasons: Sequence[Reason], fine: str) -> None:
    for one in reasons:
        click.echo(one.sentence)
    if not reasons:
        click.echo(fine)
    remedies = _remedies(reasons)
    for command in remedies:
        click.echo(f"  try: {command}")
    click.echo("")


def _remedies(reasons: Sequence[Reason]) -> list[str]:
    return list(dict.fromkeys(remedy for one in reasons for remedy in one.remedies))


def emit(reasons: Sequence[Reason], fine: str, facts: dict[str, object]) -> None:
    rows = [{"code": one.code, "broker": one.broker, "sentence": one.sentence} for one in reasons]
    sentence = reasons[0].sentence if reasons else fine
    document = {"version": VERSION, "well": not reasons, "sentence": sentence}
    emit_json({**document, "reasons": rows, "remedies": _remedies(reasons), **facts})
