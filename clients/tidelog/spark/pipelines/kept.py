"""A document that a program keeps beside its checkpoint: written whole, or not at all."""

from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from tidelog.spark.initial_file import InitialFile
from tidelog.spark.pipelines.failures import UsageError

if TYPE_CHECKING:
    from tidelog.spark.offsets import Json


class Kept:
    """By its path."""

    def __init__(self, path: str) -> None:
        self._file = InitialFile(path)

    def read(self) -> dict[str, Any] | None:
        return cast("dict[str, Any] | None", self._file.read())

    def write(self, document: dict[str, Any]) -> None:
        self._file.write(cast("Json", document))


def check_local(checkpoint: str) -> None:
    """UsageError for a checkpoint that this process cannot write."""
    if urlsplit(checkpoint).scheme not in {"", "file"}:
        raise UsageError(
            f"--checkpoint={checkpoint}: must be a folder that this machine can write, because the "
            "program keeps beside it where the stream began and what it has counted"
        )
