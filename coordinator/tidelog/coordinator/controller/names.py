"""What a topic may be called: Kafka's rules."""

from typing import Final

from tidelog.kernel.limits import TOPIC_NAME_CHARS_MAX

CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
METADATA_TOPIC: Final = "__cluster_metadata"


def fault(name: str) -> str | None:
    """What is wrong with a name; None where it is fine. It becomes part of a directory's name."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in {".", ".."}:
        return "Topic name is invalid: '.' or '..' is not allowed"
    if len(name) > TOPIC_NAME_CHARS_MAX:
        return (
            f"Topic name is invalid: it has {len(name)} characters, "
            f"the most allowed is {TOPIC_NAME_CHARS_MAX}"
        )
    if not CHARACTERS.issuperset(name):
        return (
            f"Topic name is invalid: {name!r} contains one or more characters other than "
            "ASCII alphanumerics, '.', '_' and '-'"
        )
    return None


def unified(name: str) -> str:
    """Two names with the same unified form collide: metrics show '.' and '_' alike."""
    return name.replace(".", "_")
