"""A timeline as a page: a lane for each process, time downwards. No I/O."""

from collections.abc import Sequence
from html import escape

from tidelog.tools.timeline import Entry

_STYLE = (
    "body{font:14px sans-serif;margin:2em}table{border-collapse:collapse}"
    "th,td{padding:.3em .8em;text-align:left;vertical-align:top;border-left:1px solid #ccc}"
    "tr:nth-child(odd) td{background:#f6f8fa}td:first-child{font-family:monospace;border:0}"
    "b{display:block}"
)


def page(title: str, entries: Sequence[Entry]) -> str:
    """One file that needs nothing else; whatever came from outside is escaped."""
    lanes = sorted({entry.process for entry in entries})
    heads = "".join(f"<th>{escape(lane)}</th>" for lane in lanes)
    rows = "".join(_row(entry, lanes) for entry in entries)
    name = escape(title)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{name}</title>'
        f"<style>{_STYLE}</style><h1>{name}</h1>"
        f"<table><tr><th>time</th>{heads}</tr>{rows}</table></html>\n"
    )


def _row(entry: Entry, lanes: Sequence[str]) -> str:
    cells = "".join(f"<td>{_said(entry) if lane == entry.process else ''}</td>" for lane in lanes)
    return f"<tr><td>{escape(entry.at)}</td>{cells}</tr>"


def _said(entry: Entry) -> str:
    return f"<b>{escape(entry.event.replace('_', ' '))}</b>{escape(said(entry))}"


def said(entry: Entry) -> str:
    """An event's fields, for people."""
    return " ".join(f"{name}={_shown(value)}" for name, value in entry.fields.items())


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value)) or "-"
    return str(value)
