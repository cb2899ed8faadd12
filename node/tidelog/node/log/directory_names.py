"""What the names in a log directory mean."""

from typing import Final

from tidelog.kernel.ids import Partition, TopicPartition
from tidelog.kernel.limits import TOPIC_NAME_CHARS_MAX

DELETED_SUFFIX: Final = "-delete"
STRAY_SUFFIX: Final = "-stray"
PENDING_SUFFIX: Final = ".pending"


def key_of(directory_name: str) -> TopicPartition | None:
    """`<topic>-<partition>`; None for any other name."""
    topic, dash, partition = directory_name.rpartition("-")
    if not dash or not topic or not (partition.isascii() and partition.isdecimal()):
        return None
    if len(topic) > TOPIC_NAME_CHARS_MAX or str(int(partition)) != partition:
        return None
    return topic, Partition(int(partition))
