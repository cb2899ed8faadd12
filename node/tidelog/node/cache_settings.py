"""The settings of the page cache: each a broker's, and a topic's that wins over it."""

from typing import Final

from tidelog.kernel.config import Setting, one_of
from tidelog.kernel.limits import MIB
from tidelog.node.log.cache_rules import AHEAD, BEHIND, CACHE_BYTES_DEFAULT, KEEP, READ
from tidelog.node.setting_rows import LONG_MAX, whole


def _choice(name: str, words: tuple[str, ...], doc: str) -> Setting:
    """The first word is the default."""
    return Setting(name, one_of(*words), words[0], f"must be {' or '.join(words)}", doc)


CACHE_ROWS: Final = (
    _choice(
        "cache.keep",
        KEEP,
        "Which bytes of logs stay in the page cache. all: those the kernel likes; tail: the newest "
        "ones, together up to cache.max.bytes; none: none that is on the disk. What is dropped is "
        "written to the disk before, and read from there again.",
    ),
    whole(
        "cache.max.bytes",
        CACHE_BYTES_DEFAULT,
        0,
        LONG_MAX,
        "What a broker's logs under cache.keep=tail may hold of the page cache, together; set for "
        "a topic, what its logs on each broker may, beside those of others.",
    ),
    _choice(
        "cache.read",
        READ,
        "How bytes get from a log to a consumer: sendfile: without a copy; pread: by a buffer of "
        "the broker's; mmap: from the mapped file.",
    ),
    _choice(
        "cache.read.behind",
        BEHIND,
        "What a consumer leaves in the page cache that reads what is not there: keep: what it "
        "read; drop: nothing, so that one that catches up does not push out what others read.",
    ),
    _choice(
        "cache.readahead",
        AHEAD,
        "What the kernel is told of reads from the disk: normal: nothing; sequential: to read "
        "twice as far ahead; random: not to read ahead; willneed: to read what comes next, as "
        "much as was asked for.",
    ),
    whole(
        "cache.writeback.bytes",
        LONG_MAX,
        MIB // 16,
        LONG_MAX,
        "So many bytes appended to a log are given to the disk at once, behind the writer, so that "
        "not so many gather that the kernel holds writers up. That forces nothing: flush.policy "
        "does.",
    ),
)
