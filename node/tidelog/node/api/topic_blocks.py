"""Topics as Metadata answers have them, encoded once for as long as they stay the same.

Every client asks for metadata, and an answer for 10,000 partitions takes 20 ms to make: too long
for a loop that serves everybody. Copying what was made before takes less than one.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from tidelog.kernel.ids import Offset, Uuid
from tidelog.node.metadata.image import MetadataImage, TopicView
from tidelog.wire.compile import Writer
from tidelog.wire.messages.k03_metadata import MetadataResponseTopic

FORMS_MAX: Final = 4
"""Clients of one cluster speak few versions, and many versions have one form."""
_GONE_MAX: Final = 100

Form = tuple[Writer, bool]
"""What a block's bytes depend on beside the topic: the writer, and whether operations are asked."""


class _Block(NamedTuple):
    topic: TopicView
    topic_version: Offset
    brokers_version: Offset
    encoded: bytes


class TopicBlocks:
    """Invariant: a block is given out only while neither its topic nor a broker has changed."""

    def __init__(self) -> None:
        self._forms: dict[Form, dict[Uuid, _Block]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._forms.values()))

    def encoded(
        self,
        image: MetadataImage,
        topic: TopicView,
        form: Form,
        make: Callable[[TopicView], MetadataResponseTopic],
    ) -> bytes:
        """The topic in this form; `make` is called where it must be written."""
        blocks = self._forms.get(form)
        if blocks is None:
            blocks = self._begin(form)
        block = blocks.get(topic.id)
        if (
            block is not None
            and block.topic is topic
            and block.topic_version == topic.version
            and block.brokers_version == image.brokers_version
        ):
            return block.encoded
        if len(blocks) > 2 * len(image.topics) + _GONE_MAX:
            blocks.clear()  # most are of deleted topics
        content = bytes(form[0](make(topic), bytearray(), []))
        blocks[topic.id] = _Block(topic, topic.version, image.brokers_version, content)
        return content

    def _begin(self, form: Form) -> dict[Uuid, _Block]:
        if len(self._forms) == FORMS_MAX:
            del self._forms[next(iter(self._forms))]
        blocks: dict[Uuid, _Block] = {}
        self._forms[form] = blocks
        return blocks
