"""A few bytes that tell whether two images are the same, for logs: each holder of an image tells
its own at its end, and whoever has the metadata log can replay it and compare.

Made of the image's own fields, not of its snapshot: what a snapshot forgot would not be missed.
"""

from dataclasses import fields
from hashlib import sha256

import msgspec

from tidelog.node.metadata.image import MetadataImage, TopicView

_SHOWN_DIGITS = 16


def digest(image: MetadataImage) -> str:
    """Equal for equal images, in whatever order they came by what they hold."""
    content = _compared(image)
    del content["names"]  # the topics once more
    # Only where the keys are texts are they put in order.
    content["topics"] = {key.hex(): _compared(topic) for key, topic in image.topics.items()}
    content["brokers"] = {str(key): broker for key, broker in image.brokers.items()}
    content["other_configs"] = {kind.name: some for kind, some in image.other_configs.items()}
    encoded = msgspec.msgpack.encode(content, order="sorted")
    return sha256(encoded).hexdigest()[:_SHOWN_DIGITS]


def _compared(thing: MetadataImage | TopicView) -> dict[str, object]:
    """What takes part in comparing two of them."""
    return {one.name: getattr(thing, one.name) for one in fields(thing) if one.compare}
