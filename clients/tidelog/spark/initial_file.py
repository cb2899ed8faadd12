"""Where a stream began, in a file beside its checkpoint: written once, read ever after."""

import json
import os
from pathlib import Path

from tidelog.spark.offsets import Json
from tidelog.spark.options import OptionError


class InitialFile:
    """A stream's memory of its beginning."""

    def __init__(self, path: str) -> None:
        scheme, colon, rest = path.partition(":")
        if colon and scheme != "file" and "/" not in scheme:
            raise OptionError(
                f"option tidelog.initialOffsets={path!r}: must be a local path, of the driver's "
                "machine; with a checkpoint elsewhere give read_stream tidelog__initialOffsets=PATH"
            )
        self._path = Path(rest if colon and scheme == "file" else path)

    def read(self) -> Json | None:
        try:
            text = self._path.read_text(encoding="ascii")
        except FileNotFoundError:
            return None
        found: Json = json.loads(text)
        return found

    def write(self, offsets: Json) -> None:
        """All of it or nothing, whenever the machine stops."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with fresh.open("w", encoding="ascii") as file:
            json.dump(offsets, file)
            file.flush()
            os.fsync(file.fileno())
        fresh.rename(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
