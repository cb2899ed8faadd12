"""Commands of a golden text as a person would type them, with input where it is given."""

import re
import shlex

from harness.processes.cluster import Cluster
from harness.processes.commands import Finished
from harness.processes.golden import spoken

_MASKS = (
    (r'"topic_id": "[\w-]{22}"', '"topic_id": "ID"'),
    (r'"timestamp": ?\d{13}', '"timestamp": MS'),
)


def heard(cluster: Cluster, *words: str, text: str | None = None) -> Finished:
    """A command to its end; it never waits for a terminal."""
    return cluster.command(*words, text=text)


def script(cluster: Cluster, *lines: str | tuple[str, str]) -> str:
    """Several commands one after the other; a pair is a command and its standard input."""
    parts = []
    for line in lines:
        words, text = (line, None) if isinstance(line, str) else line
        split = shlex.split(words)
        parts.append(spoken([words], heard(cluster, *split, text=text), cluster.folder))
    found = "".join(parts)
    for pattern, name in _MASKS:
        found = re.sub(pattern, name, found)
    return found
