"""Reads Markdown as the tests need it: marked commands, fenced blocks, links and headings."""

import re
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#+\s+(?P<title>.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block and the language it names."""

    language: str
    body: str


def blocks(text: str, language: str) -> list[Block]:
    return [block for block in _all_blocks(text) if block.language == language]


def marked(text: str, name: str) -> str:
    """The one command line of the block below `<!-- command: NAME -->`."""
    marker = f"<!-- command: {name} -->\n"
    assert text.count(marker) == 1, f"{marker.strip()} must stand once"
    block = _all_blocks(text.split(marker, 1)[1])[0]
    lines = [line for line in block.body.splitlines() if line]
    assert len(lines) == 1, f"{name}: one command line, not {len(lines)}"
    return lines[0]


def broken_links(path: Path) -> list[str]:
    """Relative links of one document that lead nowhere, with their headings."""
    text = _FENCE.sub("", path.read_text(encoding="utf-8"))
    targets = [match["target"] for match in _LINK.finditer(text)]
    return [
        f"{path.name}: {target} leads nowhere"
        for target in targets
        if "://" not in target and not target.startswith("mailto:") and not _leads(path, target)
    ]


def _leads(document: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    place = document.parent / name if name else document
    if not place.exists():
        return False
    return not anchor or anchor in _anchors(place.read_text(encoding="utf-8"))


def _anchors(text: str) -> set[str]:
    """Headings in the form that code hosts give their anchors."""
    titles = (match["title"].lower() for match in _HEADING.finditer(_FENCE.sub("", text)))
    return {re.sub(r"[^\w\- ]", "", title).strip().replace(" ", "-") for title in titles}


def _all_blocks(text: str) -> list[Block]:
    return [Block(match["language"], match["body"]) for match in _FENCE.finditer(text)]
