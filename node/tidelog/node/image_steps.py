"""What a broker does when its image of the cluster changed: the steps, and their order. No I/O.

The process and its simulated twin in the tests both do these, so that what is tested is what runs.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidelog.kernel.ids import TopicPartition
from tidelog.kernel.instant import Instant
from tidelog.node.log.directories import LogDirectories
from tidelog.node.metadata.image import Changes, MetadataImage
from tidelog.node.replica.hosting import Hosting
from tidelog.wire.control import DamagedLog


class Parts(NamedTuple):
    """What the steps use of their broker."""

    hosting: Hosting
    logs: LogDirectories
    is_lost: Callable[[], bool]
    """Looks at the fence word, and gives up this life if it says so."""
    follow_settings: Callable[[MetadataImage], None]
    on_swept: Callable[[Sequence[TopicPartition]], None]
    """Told once of the logs that were deleted, for their topics were while this broker was away."""
    on_disk_failed: Callable[[OSError], None]
    look_at_storage: Callable[[], None]
    others: Sequence[Callable[[Instant, MetadataImage, Changes], None]]
    """Replication first, and all else that follows the image once the replicas are what it says."""
    after: Sequence[Callable[[Instant, MetadataImage, Changes], None]]
    """Those that come when damage was seen to."""
    is_serving: Callable[[], bool]
    tell_damage: Callable[[tuple[DamagedLog, ...]], None]
    note_heard: Callable[[], None]
    """The cluster has heard of all that this broker lost."""


class ImageSteps:
    """Takes each change of the image."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.swept = False
        """Whether the first image was taken."""

    def take(self, now: Instant, image: MetadataImage, changes: Changes) -> None:
        parts = self._parts
        parts.is_lost()
        # Before the replicas: logs that are opened below must have the settings of now.
        parts.follow_settings(image)
        try:
            if not self.swept:
                self.swept = True
                parts.on_swept(parts.hosting.sweep(image))
            parts.hosting.follow(now, changes)
        except OSError as error:
            # A directory could not be put aside: a topic of its name must never meet its files.
            parts.on_disk_failed(error)
        parts.look_at_storage()
        parts.hosting.configured(now, image, changes)
        for follow in parts.others:
            follow(now, image, changes)
        self.tend(now, image)
        for follow in parts.after:
            follow(now, image, changes)

    def tend(self, now: Instant, image: MetadataImage) -> None:
        """Damaged replicas begin anew; those that the cluster may count on it is told of."""
        parts = self._parts
        if not parts.hosting.has_damage:
            return
        told = parts.hosting.tend(now, image)
        if told:
            parts.tell_damage(told)
        elif self._is_all_told(image):
            parts.note_heard()  # the image says so
        parts.look_at_storage()

    def _is_all_told(self, image: MetadataImage) -> bool:
        parts = self._parts
        return parts.is_serving() and parts.logs.has_untold and parts.hosting.has_told_all(image)
