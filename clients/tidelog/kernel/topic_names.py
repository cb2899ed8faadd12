"""What a topic may be called: its name becomes the name of a directory."""

from typing import Final

from tidelog.kernel.limits import TOPIC_NAME_CHARS_MAX

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""The cluster's own: clients neither write nor resize them."""

_ALLOWED: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def fault_of_name(name: str) -> str | None:
    """Why a topic may not have this name; None where it may.

    >>> fault_of_name("orders.eu-1")
    >>> fault_of_name("..")
    "'..' is no topic name: it may not be . or .."
    """
    if not name:
        return "a topic name may not be empty"
    if name in {".", ".."}:
        return f"{name!r} is no topic name: it may not be . or .."
    if len(name) > TOPIC_NAME_CHARS_MAX:
        return f"a topic name of {len(name)} characters: at most {TOPIC_NAME_CHARS_MAX} may be used"
    if not _ALLOWED.issuperset(name):
        return f"{name!r} is no topic name: only letters, digits, '.', '_' and '-' may be used"
    return None


def collides(name: str, other: str) -> bool:
    """Whether two names differ only in '.' and '_': Kafka's metrics cannot tell them apart.

    >>> collides("a.b", "a_b")
    True
    """
    return name.replace(".", "_") == other.replace(".", "_")
