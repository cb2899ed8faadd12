"""What a pipeline says: its result as one JSON document, everything else on standard error."""

import json
import sys
from collections.abc import Mapping
from typing import Any


def emit(document: Mapping[str, Any]) -> None:
    """The result."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, default=str) + "\n")
    sys.stdout.flush()


def note(text: str) -> None:
    """A remark or an error."""
    sys.stderr.write(text + "\n")


def progress(text: str) -> None:
    """How far it is: in the place of what was said last, where a person looks on."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\033[K{text}")
        sys.stderr.flush()


def progress_ends() -> None:
    """The line is free again."""
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")
