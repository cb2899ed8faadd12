"""Whose log directory it is: Kafka's `meta.properties`, written once and compared ever after."""

from msgspec import Struct

from tidelog.kernel.failures import CannotStartError, CorruptError
from tidelog.kernel.files import Directory
from tidelog.kernel.ids import Incarnation, Uuid, uuid_from_text, uuid_text
from tidelog.wire.checkpoints import META_PROPERTIES, decode_properties, encode_properties


class Owner(Struct, frozen=True):
    """Who opens a log directory."""

    cluster_id: str
    node_id: int
    boot_id: str
    disk_generation: int
    incarnation: Incarnation
    directory_id: Uuid
    """For a new directory; one that exists has its own."""


def claim(directory: Directory, owner: Owner, *, has_logs: bool) -> Uuid:
    """The directory's id; CannotStartError where it is somebody else's, or nobody can tell."""
    content = directory.read_all(META_PROPERTIES)
    if content is not None:
        return _compare(content, directory.path, owner)
    if has_logs:
        # Formatting it anew would hand one cluster's records to another.
        raise CannotStartError(
            f"{directory.path} holds logs but no {META_PROPERTIES}, so it cannot be told whose "
            "they are; restore that file, or move the directory away"
        )
    properties = {
        "version": "1",
        "cluster.id": owner.cluster_id,
        "node.id": str(owner.node_id),
        "directory.id": uuid_text(owner.directory_id),
    }
    directory.replace(META_PROPERTIES, encode_properties(properties))
    return owner.directory_id


def _compare(content: bytes, path: str, owner: Owner) -> Uuid:
    try:
        said = decode_properties(content, place=META_PROPERTIES)
        directory_id = uuid_from_text(said.get("directory.id", ""))
    except (CorruptError, ValueError):
        raise CannotStartError(
            f"{path}/{META_PROPERTIES} cannot be read; restore it, or move the directory away"
        ) from None
    for name, mine in (("cluster.id", owner.cluster_id), ("node.id", str(owner.node_id))):
        if said.get(name) != mine:
            raise CannotStartError(
                f"{path} belongs to {name} {said.get(name)!r}, this is {mine!r}; "
                "choose another --data, or move the directory away"
            )
    return directory_id
