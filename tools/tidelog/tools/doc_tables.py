"""Writes the documents that are made from the code: `python -m tidelog.tools.doc_tables`.

The rows are the truth: the settings tables and the API registry are what the broker itself reads.
A test fails while a page in docs/ differs from what these functions give.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tidelog.kernel.config import Setting, Table
from tidelog.node import settings
from tidelog.node.api import dispatch
from tidelog.node.api.registry import Route
from tidelog.node.resource_settings import CLIENT_METRICS, GROUP, GROUP_BOUNDS
from tidelog.spark import option_rows
from tidelog.tools.doc_commands import commands_page
from tidelog.tools.metrics_rows import all_metrics

MADE = """\
<!-- Made from the code by `python -m tidelog.tools.doc_tables`: change the rows, not this page. -->
"""

_GROUP_SYNONYMS = {
    name: (settings.Synonym(bounds.default),) for name, bounds in GROUP_BOUNDS.items()
}

SETTINGS_PAGE = """{made}
# Settings

Names are Kafka's, or ours where Kafka has none. Give a broker's setting with
`tidelog up --set KEY=VALUE` (`--set broker.1:KEY=VALUE` for one broker) or in a file with
`--config`; give a topic's with `tidelog topic create NAME -c KEY=VALUE`. A value that breaks its
rule, or an unknown name, is refused with a sentence that says what is right.

A setting marked *no* under *acts* is known, checked and listed, but nothing follows from it yet.

## Topic settings

A topic's own value wins over the broker setting named beside it, which wins over the default.

{topic}

## Broker settings

{broker}

## Settings of groups, and of subscriptions to clients' metrics

Kafka's clients may describe and change them, with any name. What a group does not set itself, the
broker setting named beside it says for all groups.

{group}

{metrics}
"""

SPARK_PAGE = """{made}
# Options of Spark's format `tidelog`

Names count in any case. Those without `tidelog.` in front are the Kafka connector's and Kafka's
own, and mean what they mean there; [spark.md](spark.md) shows their use. An option that is not
known is an error that names the nearest one.

## Reading

{source}

## Writing

{sink}

## Taken without effect

So that a program of the connector need not change. When reading: {inert_source}.

When writing: {inert_sink}.

## Refused

When reading:

{refused_source}

When writing:

{refused_sink}
"""

PROTOCOL_PAGE = """{made}
# Protocol

The requests of Kafka's protocol that a broker answers. A request with another key or version ends
its connection, as Apache Kafka does it; ApiVersions alone says instead which versions it speaks.
Bytes after the end of a request are ignored, as Apache Kafka ignores them; the broker's log names
each client that sends some once (`request_has_trailing_bytes`).

*Served* is what works; *advertised* is what ApiVersions says. They differ for Produce only: old
librdkafka compresses only where a broker advertises version 0. From the *flexible* version on, a
message has compact lengths and tagged fields.

{table}

Semantics are Apache Kafka 4.3's. The fields of each message and the versions they appear in stand
in the linked files, which are also what the codec is compiled from.
"""


METRICS_PAGE = """{made}
# Metrics

`tidelog metrics` prints what is known of a cluster in Prometheus' text form, `--port PORT` serves
it on loopback, at `/metrics`, until Ctrl-C; `--json` prints the same for scripts. All but `--json`
needs Prometheus' own library: install `tidelog[metrics]`.

Nobody is asked for them: they are read from the processes' shared memory, the files of the logs and
the metadata log, with each scrape and at most twice a second. A cluster that is down still tells
what its files say. What is not known has no sample: dirty bytes on a kernel before Linux 6.5, the
last flush of a log that was never flushed.

```yaml
scrape_configs:
  - job_name: tidelog
    static_configs: [{{targets: ["127.0.0.1:9464"]}}]
```

Counters begin anew with each start of their process. `tidelog_log_*` is of one replica on one
broker, as `tidelog disk` shows it ([durability.md](durability.md)); sums over brokers and topics
are Prometheus' affair. There are no labels for segments or clients.

{table}
"""


def metrics_page() -> str:
    """docs/metrics.md: every metric, its labels, what it says."""
    head = ("name", "type", "labels", "what it says")
    rows = [
        (f"`{one.name}`", one.kind, ", ".join(one.labels) or "-", one.help) for one in all_metrics()
    ]
    return METRICS_PAGE.format(made=MADE, table=_table(head, rows))


def settings_page() -> str:
    """docs/settings.md: every setting, its default, what it may be, what it does."""
    topic_head = ("name", "broker's", "type", "default", "rule", "acts", "what it does")
    broker_head = ("name", "type", "default", "rule", "acts", "what it does")
    return SETTINGS_PAGE.format(
        made=MADE,
        topic=_table(topic_head, _setting_rows(settings.TOPIC, settings.SYNONYMS)),
        broker=_table(broker_head, _setting_rows(settings.BROKER, {})),
        group=_table(topic_head, _setting_rows(GROUP, _GROUP_SYNONYMS)),
        metrics=_table(broker_head, _setting_rows(CLIENT_METRICS, {})),
    )


def spark_page() -> str:
    """docs/spark-options.md: every option of the data source."""
    head = ("name", "default", "rule", "what it does")
    tables = {"source": option_rows.SOURCE, "sink": option_rows.SINK}
    acting = {side: _table(head, _option_rows(table)) for side, table in tables.items()}
    inert = {f"inert_{side}": ", ".join(_inert(table)) for side, table in tables.items()}
    refused = {
        "refused_source": _table(("name", "instead"), option_rows.REFUSED_OF_SOURCES.items()),
        "refused_sink": _table(("name", "instead"), option_rows.REFUSED_OF_SINKS.items()),
    }
    return SPARK_PAGE.format(made=MADE, **acting, **inert, **refused)


def _option_rows(table: Table) -> list[tuple[str, ...]]:
    rows = (row for row in table.rows.values() if row.effect)
    return [(f"`{row.name}`", _default(row), row.rule, row.doc) for row in rows]


def _inert(table: Table) -> list[str]:
    return [f"`{name}`" for name, row in table.all_rows().items() if not row.effect]


def protocol_page() -> str:
    """docs/protocol.md: every request that is answered, with its versions."""
    head = ("key", "request", "served", "advertised", "flexible", "notes")
    registry = dispatch.routes()
    advertised = {key: f"{low} to {high}" for key, low, high in registry.advertised()}
    rows = [_route_row(route, advertised[route.key]) for route in registry.routes.values()]
    return PROTOCOL_PAGE.format(made=MADE, table=_table(head, rows))


def pages() -> dict[str, str]:
    """Every generated page by its file name."""
    return {
        "settings.md": settings_page(),
        "protocol.md": protocol_page(),
        "metrics.md": metrics_page(),
        "commands.md": commands_page(MADE),
        "spark-options.md": spark_page(),
    }


def stale(folder: Path) -> list[str]:
    """Names of the pages in a folder that are missing or differ from what the code says now."""
    return [name for name, text in pages().items() if _content(folder / name) != text]


def main(folder: Path) -> None:
    """Write every page."""
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")


def _setting_rows(
    table: Table, synonyms: Mapping[str, Sequence[settings.Synonym]]
) -> list[tuple[str, ...]]:
    return [_setting_row(row, synonyms) for row in table.rows.values()]


def _setting_row(
    row: Setting, synonyms: Mapping[str, Sequence[settings.Synonym]]
) -> tuple[str, ...]:
    names = ", ".join(f"`{one.name}`" for one in synonyms.get(row.name, ()))
    broker_name = (names,) if synonyms else ()
    default = _default(row)
    acts = "yes" if row.effect else "no"
    return (f"`{row.name}`", *broker_name, row.kind, default, row.rule, acts, row.doc)


def _default(row: Setting) -> str:
    if row.unset:
        return "(none)"
    return f"`{row.default}`" if row.default else "(empty)"


def _route_row(route: Route, advertised: str) -> tuple[str, ...]:
    api = route.api
    module = api.request.__module__.replace(".", "/")
    link = f"[{api.name}](../clients/{module}.py)"
    served = f"{route.versions[0]} to {route.versions[-1]}"
    flexible = f"from {api.flexible_from}" if api.flexible_from <= api.versions[-1] else "never"
    return (str(api.key), link, served, advertised, flexible, route.note)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _content(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
