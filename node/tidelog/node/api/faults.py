"""What a client's bytes may raise in a thread, brought back to the loop."""

from typing import Any, NamedTuple

from tidelog.kernel.steps import Steps
from tidelog.wire.errors import REQUEST_FAULTS


class Fault(NamedTuple):
    """What the work in a thread raised, in place of its result."""

    error: Exception


def faults_caught(work: Steps[Any]) -> Steps[Any]:
    """A fault in a client's bytes ends the request, and not the thread's loop."""
    try:
        return (yield from work)
    except REQUEST_FAULTS as error:
        return Fault(error)
