"""A few bytes that tell whether two images are the same, for logs: each holder of an image tells
its own at its end, and whoever has the metadata log can replay it and compare."""

from hashlib import sha256

from tidelog.node.metadata.image import MetadataImage, snapshot
from tidelog.wire.metadata_records import encode

_SHOWN_DIGITS = 16


def digest(image: MetadataImage) -> str:
    """Of all that a snapshot would hold, in whatever order the image came by it."""
    records = sorted(encode(record) for record in snapshot(image))
    return sha256(b"".join(records)).hexdigest()[:_SHOWN_DIGITS]
