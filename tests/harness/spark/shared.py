"""One JVM of Spark for all tests of a process that do not kill it.

Most of what a test of Spark costs is the start of a JVM, and that it does each thing for the first
time. `harness.suite.sharing` has one worker run all files that share it.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.spark.programs import COMPLAINTS, Session
from harness.spark.setup import connector_jars
from harness.suite.need import need

TOLD_CHARACTERS = 6_000
PATIENCE_CELLS = 24
"""Two hours: a test has a limit of its own."""


class SharedSpark:
    """Starts its program when it is first needed, and again after one that has died or hangs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """Where relative paths lead."""
        self._program: Session | None = None

    def answers(self, module: str, /, **asked: Any) -> Any:
        """What the function `answers` of that module of the harness returns, as JSON has it."""
        return self._said({"module": f"harness.spark.{module}", "asked": asked})

    def printed(self, script: Path) -> list[str]:
        """By a script that makes its own session, and stops it."""
        text: str = self._said({"script": str(script)})
        return text.splitlines()

    def clear(self) -> None:
        """Of what programs before have left in the folder."""
        for one in self.folder.iterdir():
            if one.name.startswith(("checkpoint", "lake")):
                shutil.rmtree(one)
            elif one.is_file() and one.name != COMPLAINTS:
                one.unlink()

    def end(self) -> None:
        if self._program is not None:
            self._program.end()
            self._program = None

    def _said(self, asked: dict[str, Any]) -> Any:
        program = self._program = self._program or self._started()
        try:
            program.ask(asked)
            found = program.answer(PATIENCE_CELLS)
            assert found is not None, self._complaints()
            assert "error" not in found, f"{self._complaints()}\n{found['error']}"
        except BaseException:
            # Its next answer would be that to this request, or its JVM may have died.
            self.end()
            raise
        return found["said"]

    def _started(self) -> Session:
        need("java")
        jars = [*connector_jars().glob("*.jar")] if shutil.which("mvn") else []
        self.folder.mkdir(exist_ok=True)
        return Session(
            self.folder, "harness.spark.shared_program", ",".join(map(str, sorted(jars)))
        )

    def _complaints(self) -> str:
        return (self.folder / COMPLAINTS).read_text()[-TOLD_CHARACTERS:]


@pytest.fixture(scope="session")
def shared_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSpark]:
    """Leave its context and its JVM alive."""
    shared = SharedSpark(tmp_path_factory.mktemp("spark"))
    try:
        yield shared
    finally:
        shared.end()
