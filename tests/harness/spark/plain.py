"""The data source's readers and writers called as Spark would, in a process without a JVM."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from tidelog.clients.admin.topics import NewTopic, create_topics, wait_for_topics
from tidelog.clients.client import Client
from tidelog.spark.connections import client_of
from tidelog.spark.options import (
    Mode,
    SinkOptions,
    SourceOptions,
    sink_options,
    source_options,
)
from tidelog.spark.pushdown import Pushed
from tidelog.spark.reading import plan_ranges, read_range
from tidelog.wire.errors import ErrorCode


class Place:
    """A cluster that is read and written; dots in options are underscores."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    @property
    def client(self) -> Client:
        connection = self.source_options(subscribe="any").connection
        assert connection is not None
        return client_of(connection)

    def topic(
        self, *, name: str | None = None, partitions: int = 1, replicas: int = 1, **configs: str
    ) -> str:
        """A new one, which all brokers know."""
        return self.configured(
            name or f"t-{os.urandom(4).hex()}", partitions, _dotted(configs), replicas=replicas
        )

    def configured(
        self, name: str, partitions: int, configs: Mapping[str, str], *, replicas: int = 1
    ) -> str:
        """The same, with settings by their own names."""
        new = NewTopic(name, partitions, replicas, dict(configs))
        (done,) = self.client.run(create_topics(self.client.view, [new]))
        assert done.code is ErrorCode.NONE, done
        self.client.run(wait_for_topics(self.client.view, [new.name]))
        return name

    def source_options(self, mode: Mode = Mode.BATCH, /, **given: str) -> SourceOptions:
        return source_options({**self._bootstrap, **_dotted(given)}, mode)

    def sink_options(self, mode: Mode = Mode.STREAM, /, **given: str) -> SinkOptions:
        return sink_options({**self._bootstrap, **_dotted(given)}, mode)

    def read(self, pushed: Pushed | None = None, /, **given: str) -> list[dict[str, Any]]:
        """All rows that a batch of these options reads."""
        options = self.source_options(**given)
        return rows_of(options, pushed or Pushed())

    def values(self, **given: str) -> list[bytes]:
        """Of the rows, in order of partition and offset."""
        return [row["value"] for row in self.read(tidelog_columns="value", **given)]

    @property
    def _bootstrap(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap}


def rows_of(options: SourceOptions, pushed: Pushed) -> list[dict[str, Any]]:
    """In order of partition and offset."""
    return [
        row
        for one in plan_ranges(options, pushed)
        for batch in read_range(one, options)
        for row in batch.to_pylist()
    ]


def batch_of(values: Iterable[bytes], **columns: Any) -> Any:
    """Rows as Spark hands them to a writer."""
    types = {"partition": pa.int32(), "key": pa.binary(), "topic": pa.string()}
    arrays = {"value": pa.array(list(values), pa.binary())}
    arrays |= {name: pa.array(column, types.get(name)) for name, column in columns.items()}
    return pa.RecordBatch.from_pydict(arrays)


def _dotted(given: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in given.items()}
