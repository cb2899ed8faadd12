"""How asking a cluster fails, apart from its own "no" (`Rejected`)."""

from typing import Any

from tidelog.clients.asking import Answered, Cause, Lost, is_transient
from tidelog.wire.errors import ErrorCode


class ClientError(Exception):
    """Something asked of a cluster did not happen; the text is one sentence."""


class UnreachableError(ClientError):
    """No broker could be spoken to."""


class TimedOutError(ClientError):
    """The time given was not enough; the text ends with what was waited for."""


class UnsupportedError(ClientError):
    """The broker does not offer an API, or not in a version that we speak."""


class TransactionError(ClientError):
    """What a transactional producer was told; `code` is None where nobody answered in time."""

    def __init__(self, sentence: str, code: ErrorCode | None, detail: str) -> None:
        said = ": ".join(part for part in (code.name if code is not None else "", detail) if part)
        super().__init__(f"{sentence} ({said})")
        self.code = code
        self.said = said


class AbortableError(TransactionError):
    """The transaction cannot be committed any more: abort it, and begin the next."""


class FatalError(TransactionError):
    """The producer can do nothing any more: open another in its place."""


def failure_of(lost: Lost) -> ClientError:
    """What to raise for a question that is not asked again."""
    match lost.cause:
        case Cause.UNSUPPORTED:
            return UnsupportedError(lost.detail)
        case Cause.TIMED_OUT:
            return TimedOutError(lost.detail)
        case Cause.UNREACHABLE | Cause.BROKEN:
            return UnreachableError(lost.detail)


def reason_to_repeat(outcome: Answered | Lost) -> str:
    """Why to ask again where there is no answer; UnsupportedError where that is of no use."""
    if isinstance(outcome, Answered):
        return ""
    if not is_transient(outcome):
        raise UnsupportedError(outcome.detail)
    return outcome.detail


def response(outcome: Answered | Lost) -> Any:  # noqa: ANN401 -- the asker knows what it asked
    """The response to a question that must not be asked twice, or its failure raised."""
    if isinstance(outcome, Answered):
        return outcome.message
    raise failure_of(outcome)
