"""Lengths of time as options give them."""

import click

from tidelog.clients.consumer.offsets import duration_ms


def length(_ctx: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """An option's `callback`: milliseconds."""
    if text is None:
        return None
    found = duration_ms(text)
    if found is None:
        name = parameter.opts[0]
        raise click.UsageError(f"{name} {text!r}: must be a length of time as 90s, 5m or 1h30m")
    return found
