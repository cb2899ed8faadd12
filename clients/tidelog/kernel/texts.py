"""How a stranger's text is quoted: never at full length."""

from tidelog.kernel.limits import QUOTED_CHARS_MAX

_ELLIPSIS = "..."


def quoted(text: str, chars_max: int = QUOTED_CHARS_MAX) -> str:
    """A client's text for an error message or a name; cut, and an ellipsis says so.

    An error message has to fit into an answer, whose strings end at 32,767 bytes; a client's own
    text may already be as long as that.

    >>> quoted("orders")
    'orders'
    >>> quoted("a" * 300, 8)
    'aaaaa...'
    """
    if len(text) <= chars_max:
        return text
    return text[: chars_max - len(_ELLIPSIS)] + _ELLIPSIS
