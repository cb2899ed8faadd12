"""When what was appended is forced to disk, and whether acknowledgements wait for that.

Under `commit` a replica answers for no byte that is not on stable storage. Under all others it
answers for what is in the page cache, and what is forced out bounds what a power loss may take.
"""

from typing import Final

from msgspec import Struct

from tidelog.kernel.instant import Instant, ms

LONG_MAX: Final = 2**63 - 1
_MESSAGES, _INTERVAL, _BYTES, _OS, _COMMIT = "messages", "interval", "bytes", "os", "commit"
_LIMITS: Final = (_MESSAGES, _INTERVAL, _BYTES)
_WORDS: Final = (_OS, _COMMIT, *_LIMITS)
RULE: Final = "must be os or commit, or messages, interval, bytes joined by +"


class FlushRules(Struct, frozen=True):
    """One topic's, on one broker."""

    commit: bool = False
    """Nothing is vouched for before it is flushed, and what comes is flushed at once."""
    messages: int = LONG_MAX
    """So many records unflushed make a log be flushed."""
    interval_ms: int = LONG_MAX
    """So long is the oldest record unflushed at most."""
    bytes: int = LONG_MAX
    """So many bytes unflushed make a log be flushed."""

    @property
    def word(self) -> str:
        """As people know it."""
        if self.commit:
            return _COMMIT
        limits = (self.messages, self.interval_ms, self.bytes)
        given = [name for name, limit in zip(_LIMITS, limits, strict=True) if limit < LONG_MAX]
        return "+".join(given) or _OS

    @property
    def code(self) -> int:
        """`word` as a number; never 0."""
        return sum(1 << _WORDS.index(one) for one in self.word.split("+"))

    @property
    def window(self) -> str:
        """What a power loss of all replicas may take of a partition, in words."""
        if self.commit:
            return "nothing that was acknowledged"
        limits = (
            (self.messages, f"{self.messages} records"),
            (self.interval_ms, f"{self.interval_ms} ms"),
            (self.bytes, f"{self.bytes} bytes"),
        )
        given = " or ".join(text for limit, text in limits if limit < LONG_MAX)
        if not given:
            return "all that the kernel had not written back"
        return f"what came after the last flush: {given}, and what came while that was under way"

    def is_due(self, records: int, size: int) -> bool:
        """Whether so much unflushed is too much, whatever its age."""
        return self.commit or records >= self.messages or size >= self.bytes

    def deadline(self, since: Instant) -> Instant | None:
        """When what is unflushed since then is too old."""
        return None if self.interval_ms == LONG_MAX else Instant(since + ms(self.interval_ms))


OS: Final = FlushRules()
"""The kernel writes back when it likes. This very object: a hot path asks by identity."""


def word_of(code: int) -> str:
    """What `FlushRules.code` stands for."""
    return "+".join(word for at, word in enumerate(_WORDS) if code >> at & 1)


def parse_policy(text: str) -> frozenset[str]:
    """The words of a policy; ValueError where they are none, or cannot stand together."""
    words = text.strip().split("+")
    found = frozenset(words)
    if len(found) < len(words) or not (found in ({_OS}, {_COMMIT}) or found <= set(_LIMITS)):
        raise ValueError(text)
    return found


def flush_rules(
    policy: frozenset[str] | None, messages: int, interval_ms: int, size: int
) -> FlushRules:
    """What the settings come to. `policy` is None where nobody gave one: then Kafka's own two
    settings mean what they mean in Kafka.

    Kafka flushes within the append, before it answers: with one message as the limit nobody is
    answered before his record is flushed. That is `commit`.
    """
    words = frozenset(_LIMITS[:2]) if policy is None else policy
    if _COMMIT in words or (_MESSAGES in words and messages == 1):
        return FlushRules(commit=True)
    rules = FlushRules(
        messages=messages if _MESSAGES in words else LONG_MAX,
        interval_ms=interval_ms if _INTERVAL in words else LONG_MAX,
        bytes=size if _BYTES in words else LONG_MAX,
    )
    return OS if rules == OS else rules


def lacking(policy: frozenset[str], messages: int, interval_ms: int) -> str | None:
    """The setting that a policy counts on, and that sets no limit."""
    if _MESSAGES in policy and messages == LONG_MAX:
        return "flush.messages"
    return "flush.ms" if _INTERVAL in policy and interval_ms == LONG_MAX else None
