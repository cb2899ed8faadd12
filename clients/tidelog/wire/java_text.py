"""Text that others wrote and that need not be UTF-8, read as Java's clients read it.

A header's name is bytes on the wire. Brokers store whatever a client sends, so a reader must not
stop at a name that is not UTF-8: it shows U+FFFD in the place of what cannot be read.
"""

import codecs
from typing import Final

JAVA_REPLACES: Final = "tidelog.java_replaces"
"""The error handler for `str` and `bytes.decode`."""

_REPLACEMENT: Final = "\ufffd"
_BEFORE_A_SURROGATE: Final = 0xED


def _replace(error: UnicodeError) -> tuple[str, int]:
    """One U+FFFD for each sequence that is cut or wrong, as Python's own `replace` has it.

    Java takes a surrogate in three bytes for one wrong character, where Python sees three.
    """
    if not isinstance(error, UnicodeDecodeError):
        raise error
    rest = error.object[error.start : error.start + 3]
    if rest[0] != _BEFORE_A_SURROGATE or not 0xA0 <= rest[1:2].ljust(1, b"\0")[0] <= 0xBF:
        return _REPLACEMENT, error.end
    is_whole = len(rest) == 3 and 0x80 <= rest[2] <= 0xBF
    return _REPLACEMENT, error.start + (3 if is_whole else 2)


codecs.register_error(JAVA_REPLACES, _replace)


def java_text(content: bytes) -> str:
    """
    >>> java_text(b"tide \\xff\\xfe")
    'tide \\ufffd\\ufffd'
    """
    return str(content, "utf-8", JAVA_REPLACES)
