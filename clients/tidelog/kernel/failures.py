"""Corrupt data, forced writes that failed, and what cannot be started: ways to fail that are not
bugs."""


class CorruptError(Exception):
    """Disk or wire lies. Who catches it isolates the place: cuts the tail or fences the replica."""

    def __init__(self, *, file: str, position: int, reason: str) -> None:
        super().__init__(f"{file} at byte {position}: {reason}")
        self.file = file
        self.position = position
        self.reason = reason


class FailedSyncError(OSError):
    """What was to be on stable storage may not be, for whatever reason: also where there was no
    room. The kernel may have dropped the pages, and would say next time that all is well, so
    nothing may be tried again: the directory is at its end."""


class CannotStartError(Exception):
    """A process cannot come up; the text is one sentence that says what to do."""
