"""The markers of an exactly-once sink: what is kept beside the offsets that its groups commit.

Each part of a sink has a group `SINK/PART`, and the sink itself has the group `SINK`. An offset of
N + 1 says that micro-batch N is written: by this part, or by all of them. The metadata beside it is
JSON that says whose rows these are. Releases before this format kept less; what they left must
still be understood, because a query may be upgraded in the middle of a micro-batch.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from tidelog.clients.admin.group_offsets import CommittedOffset
from tidelog.spark.tasks import Total

_VERSION: Final = 2
_MALFORMED: Final = (AttributeError, KeyError, OverflowError, TypeError, ValueError)
"""What metadata leads to that has not the form that was expected."""


@dataclass(frozen=True, slots=True)
class PartMarker:
    """What one part has committed last."""

    offset: int
    query: str | None = None
    total: Total | None = None
    is_foreign: bool = False
    """No release up to this one has written it: another program has committed this offset."""

    @property
    def is_old(self) -> bool:
        """Whether an earlier version of tidelog wrote it."""
        return self.total is None or self.total.sum is None


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a whole micro-batch."""

    batch: int
    total: Total
    plan: str | None = None
    """A digest of the offsets that Spark planned, where the driver can read its checkpoint."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The driver is ending the transactions of a micro-batch: some parts may be committed."""

    rows: Rows
    parts: int


@dataclass(frozen=True, slots=True)
class SinkMarker:
    """What the sink has committed last."""

    offset: int
    query: str | None = None
    parts: int = 0
    """The largest number of tasks that any micro-batch has had."""
    last: Rows | None = None
    """The micro-batch that was completed last."""
    ending: Ending | None = None
    is_whole: bool = False
    """The last micro-batch was written in one transaction (exactly-once-atomic)."""
    renewed_ms: int | None = None
    """The markers of all `parts` have been committed since then, by the clock of the driver; None
    if that is not known."""
    is_old: bool = False
    """An earlier version of tidelog wrote it, which said neither whose it is nor what is ending."""
    is_foreign: bool = False
    """No release up to this one has written it: another program has committed this offset."""

    def is_ending(self, batch: int) -> bool:
        return self.ending is not None and self.ending.rows.batch == batch


def part_metadata(query: str, total: Total) -> str:
    return json.dumps({"query": query, **_total(total)})


def sink_metadata(marker: SinkMarker) -> str:
    """All but the offset, which is committed beside it."""
    ending = marker.ending
    found: dict[str, Any] = {"v": _VERSION, "query": marker.query, "parts": marker.parts}
    if marker.last is not None:
        found |= _rows(marker.last)
    if ending is not None:
        found["ending"] = {**_rows(ending.rows), "parts": ending.parts}
    if marker.is_whole:
        found["whole"] = True
    if marker.renewed_ms is not None:
        found["renewed"] = marker.renewed_ms
    return json.dumps(found)


def part_marker(committed: CommittedOffset | None) -> PartMarker | None:
    if committed is None:
        return None
    said = _parsed(committed.metadata)
    try:
        return PartMarker(committed.offset, str(said["query"]), _total_of(said))
    except _MALFORMED:
        return PartMarker(committed.offset, is_foreign=True)


def sink_marker(committed: CommittedOffset | None) -> SinkMarker | None:
    if committed is None:
        return None
    said = _parsed(committed.metadata)
    try:
        if "v" not in said:
            return _old_sink_marker(committed.offset, said)
        if said["v"] == _VERSION:
            return _sink_marker(committed.offset, said)
    except _MALFORMED:
        pass
    return SinkMarker(committed.offset, is_foreign=True)


def _sink_marker(offset: int, said: dict[str, Any]) -> SinkMarker:
    ending, renewed = said.get("ending"), said.get("renewed")
    return SinkMarker(
        offset,
        str(said["query"]),
        int(said["parts"]),
        _rows_of(said) if "batch" in said else None,
        None if ending is None else Ending(_rows_of(ending), int(ending["parts"])),
        is_whole=bool(said.get("whole")),
        renewed_ms=None if renewed is None else int(renewed),
    )


def _old_sink_marker(offset: int, said: dict[str, Any]) -> SinkMarker:
    """With the number of parts; or, of a micro-batch in one transaction, with that of its rows and
    the name of the sink in place of the query's."""
    last = Rows(offset - 1, _total_of(said)) if "rows" in said else None
    parts = 0 if last is not None else int(said["parts"])
    return SinkMarker(offset, None, parts, last, is_whole=last is not None, is_old=True)


def _total(total: Total) -> dict[str, Any]:
    return {"rows": total.rows, "sum": None if total.sum is None else f"{total.sum:016x}"}


def _total_of(said: dict[str, Any]) -> Total:
    known = said.get("sum")
    return Total(int(said["rows"]), None if known is None else int(known, 16))


def _rows(rows: Rows) -> dict[str, Any]:
    return {"batch": rows.batch, **_total(rows.total), "plan": rows.plan}


def _rows_of(said: dict[str, Any]) -> Rows:
    plan = said.get("plan")
    return Rows(int(said["batch"]), _total_of(said), None if plan is None else str(plan))


def _parsed(metadata: str) -> dict[str, Any]:
    try:
        said = json.loads(metadata)
    except (RecursionError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}
