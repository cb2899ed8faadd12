"""The command `tidelog`, also as `python -m tidelog.tools`."""

import os
import signal
from types import FrameType


def main() -> None:
    """Ctrl-C while the command's modules are imported ends it without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    from tidelog.tools.cli import main as run  # noqa: PLC0415 -- as said

    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _end(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)


if __name__ == "__main__":
    main()
