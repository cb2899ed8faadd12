"""What the driver can learn from the checkpoint of a stream, where that is a local folder."""

import hashlib
import json
from pathlib import Path


def plan_digest(checkpoint: str | None, batch: int) -> str | None:
    """Of what Spark has planned for a micro-batch: the same when that micro-batch is done again,
    another one when it is planned again, because it holds the time of planning."""
    folder = _folder(checkpoint)
    if folder is None:
        return None
    try:
        plan = (folder / "offsets" / str(batch)).read_bytes()
    except OSError:
        return None
    return hashlib.sha256(plan).hexdigest()[:32]


def query_id(checkpoint: str | None) -> str:
    """Of the query that has this checkpoint; empty where that cannot be read."""
    folder = _folder(checkpoint)
    if folder is None:
        return ""
    try:
        return str(json.loads((folder / "metadata").read_bytes())["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _folder(checkpoint: str | None) -> Path | None:
    """A path, or a URL of scheme `file`. Spark takes both literally: a percent sign or a hash sign
    is a part of the name. Decoded as a URL it might be the name of another query's checkpoint."""
    if not checkpoint:
        return None
    scheme, colon, rest = checkpoint.partition(":")
    if not colon or "/" in scheme:
        return Path(checkpoint)
    if scheme != "file":
        return None
    if not rest.startswith("//"):
        return Path(rest)
    host, _, path = rest[2:].partition("/")
    return Path("/", path) if host in {"", "localhost"} else None
