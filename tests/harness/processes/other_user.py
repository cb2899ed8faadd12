"""Does something as another user of the machine; a test that needs this is skipped without root."""

import os
import signal
import traceback
from collections.abc import Callable

import pytest

OTHER_UID = 65_534
"""Nobody: a user that may do nothing here."""
_ENDS_WITHIN_S = 20

needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can act as another user of the machine"
)


def as_other_user(act: Callable[[], object]) -> str:
    """The `repr` of what it returned, or of the exception it raised."""
    return in_its_own_process(act, become=_become_other_user)


def in_its_own_process(act: Callable[[], object], become: Callable[[], None] = lambda: None) -> str:
    """As above; what it changes of the process is gone afterwards."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os._exit(_child(act, become, writer))
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as result:
        text = result.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, status
    return text


def _become_other_user() -> None:
    os.setgroups([])
    os.setgid(OTHER_UID)
    os.setuid(OTHER_UID)


def _child(act: Callable[[], object], become: Callable[[], None], writer: int) -> int:
    signal.alarm(_ENDS_WITHIN_S)  # it would hold up the test that waits for it, and others
    try:
        become()
        try:
            result = repr(act())
        except Exception as error:  # noqa: BLE001 -- it is what the test asks for
            result = repr(error)
        os.write(writer, result.encode())
    except BaseException:  # noqa: BLE001 -- the last frame of this process
        traceback.print_exc()
        return 1
    return 0
