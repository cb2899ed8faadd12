"""What the checkpoints of a log directory tell, kept up to date row by row.

Of ten thousand logs few change between two checkpoints: only their rows are looked at, and only
tables that changed are written.
"""

from collections.abc import Mapping

from tidelog.kernel.ids import TopicPartition
from tidelog.wire.checkpoints import CLEANED, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS

NAMES = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANED)

Table = Mapping[TopicPartition, int]


class OffsetTables:
    """One table for each checkpoint file.

    Invariant: a file in force says what its table says, or the table is among `changed()`.
    """

    def __init__(self, files: Mapping[str, Table]) -> None:
        """As the files say it; a table that has none is to be written in any case."""
        self._tables = {name: dict(files.get(name, {})) for name in NAMES}
        self._versions = dict.fromkeys(NAMES, 1)
        self._in_force = {name: int(name in files) for name in NAMES}
        self._files: dict[str, Table] = {name: files.get(name, {}) for name in NAMES}

    def get(self, name: str, key: TopicPartition) -> int:
        return self._tables[name].get(key, 0)

    def get_in_force(self, name: str, key: TopicPartition) -> int:
        """As the file says it that the next life would read."""
        return self._files[name].get(key, 0)

    def put(self, name: str, key: TopicPartition, offset: int | None) -> None:
        """Set a row, or take it away."""
        table = self._tables[name]
        if table.get(key) == offset:
            return
        if offset is None:
            del table[key]
        else:
            table[key] = offset
        self._versions[name] += 1

    def drop(self, key: TopicPartition) -> None:
        for name in NAMES:
            self.put(name, key, None)

    def keep_only(self, keys: "set[TopicPartition]") -> "set[TopicPartition]":
        """Drop the rows of logs that are not there, and say which these were."""
        dropped = {key for table in self._tables.values() for key in table} - keys
        for key in dropped:
            self.drop(key)
        return dropped

    def changed(self) -> dict[str, int]:
        """Tables whose files are older, each with its version."""
        return {
            name: version
            for name, version in self._versions.items()
            if version != self._in_force[name]
        }

    def versions(self) -> dict[str, int]:
        return dict(self._versions)

    def copy(self, name: str) -> Table:
        """For another thread."""
        return dict(self._tables[name])

    def put_in_force(self, versions: Mapping[str, int], tables: Mapping[str, Table]) -> None:
        """These are in their files now."""
        self._in_force.update(versions)
        self._files.update(tables)
