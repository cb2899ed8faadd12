"""How a start speaks to the one who asked for it: on the terminal, or through a pipe to it."""

import json
import os
from collections.abc import Mapping
from typing import Any, Protocol


class Report(Protocol):
    """Progress, then either ready or failed."""

    def progress(self, text: str) -> None: ...

    def ready(self, document: Mapping[str, Any]) -> None: ...

    def failed(self, sentence: str, code: int) -> None: ...

    def look(self) -> None:
        """Say what could not be said before, as there was no room for it. Never waits."""


class PipeReport:
    """The detached supervisor's: the one who asked reads it and ends with the last word.

    What it says is little and the pipe has room for it, also where the one who asked is stopped.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    def progress(self, text: str) -> None:
        self._send({"progress": text})

    def ready(self, document: Mapping[str, Any]) -> None:
        self._send({"ready": document})
        self._close()

    def failed(self, sentence: str, code: int) -> None:
        self._send({"failed": sentence, "code": code})
        self._close()

    def look(self) -> None:
        """Nothing waits: what the pipe does not take at once is lost."""

    def _send(self, document: Mapping[str, Any]) -> None:
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, json.dumps(document).encode() + b"\n")
        except OSError:
            self._close()  # nobody waits any more; the cluster lives on

    def _close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def relay(descriptor: int, report: Report) -> int:
    """Read a PipeReport to its end and say the same; the exit code."""
    code: int | None = None
    with os.fdopen(descriptor, encoding="utf-8") as lines:
        for line in lines:
            code = _say(json.loads(line), report, code)
    if code is None:
        report.failed("the supervisor ended without a word: this is a bug", 1)
        return 1
    return code


def _say(document: Mapping[str, Any], report: Report, code: int | None) -> int | None:
    match document:
        case {"progress": str(text)}:
            report.progress(text)
        case {"ready": dict(ready)}:
            report.ready(ready)
            return 0
        case {"failed": str(sentence), "code": int(failed)}:
            report.failed(sentence, failed)
            return failed
        case _:
            raise AssertionError(document)
    return code
