"""Corrupt data, and what cannot be started: two of the ways to fail that are not bugs."""


class CorruptError(Exception):
    """Disk or wire lies. Who catches it isolates the place: cuts the tail or fences the replica."""

    def __init__(self, *, file: str, position: int, reason: str) -> None:
        super().__init__(f"{file} at byte {position}: {reason}")
        self.file = file
        self.position = position
        self.reason = reason


class CannotStartError(Exception):
    """A process cannot come up; the text is one sentence that says what to do."""
