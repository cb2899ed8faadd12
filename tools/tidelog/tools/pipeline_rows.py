"""The pipelines and their options, as the command line tells them.

What is not given here goes to the program with its own default; a test holds these rows against the
programs, which this part never imports: they need the extra `spark`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Row:
    """One option."""

    name: str
    help: str
    metavar: str | None = None
    """None where it is a flag."""
    choices: tuple[str, ...] = ()
    required: bool = False
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class Pipeline:
    """One program."""

    help: str
    examples: tuple[str, ...]
    rows: tuple[Row, ...]
    offline: str | None = None
    """The option with which no cluster is needed."""
    reads_files: bool = False
    """Of a cluster that is stopped."""


COMMON: Final = (
    Row("--master", "Where Spark runs: local[N], local-cluster[N,CORES,MB] or spark://….  "
        "[default: local[*]]", "URL"),
    Row("--conf", "A setting of Spark; may be given several times.", "NAME=VALUE", repeats=True),
)  # fmt: skip

_TOPIC = Row("--topic", "The topic.", "T", required=True)

PRODUCE: Final = Pipeline(
    "Write load, or the rows of files, into a topic; say rows a second and latencies.",
    (
        "tidelog pipeline produce --topic load --partitions 6 --rows 10M --size 100",
        "tidelog pipeline produce --topic load --keys 10000 --skew 1.1 --rate 50000",
        "tidelog pipeline produce --topic orders --input orders.csv --format csv --key id",
    ),
    (
        _TOPIC,
        Row("--rows", "How many are made up.  [default: 1M]", "N"),
        Row("--size", "Bytes of a value, as 100 or 1KiB.  [default: 100]", "SIZE"),
        Row("--keys", "How many keys there are; 0 is none.  [default: 0]", "N"),
        Row("--skew", "Key number R is drawn in proportion to R to the power of -S.", "S"),
        Row("--rate", "Rows a second of all tasks; 0 is as fast as it goes.  [default: 0]", "N"),
        Row("--seed", "Equal seeds make equal rows.  [default: 1]", "N"),
        Row("--tasks", "How many write at a time; 0 is one a core.  [default: 0]", "N"),
        Row("--codec", "How batches are compressed.  [default: none]", "CODEC",
            ("none", "gzip", "snappy", "lz4", "zstd")),
        Row("--acks", "Who has a row before it counts.  [default: all]", "A", ("all", "1", "0")),
        Row("--batch-size", "Of a batch of records.  [default: 256KiB]", "SIZE"),
        Row("--partitions", "Create the topic with so many, if it is not there.", "N"),
        Row("--input", "Write the rows of these files instead.", "PATH"),
        Row("--format", "What they are.  [default: parquet]", "F", ("parquet", "csv", "json")),
        Row("--value", "Their column for values; without it the whole row as JSON.", "COLUMN"),
        Row("--key", "Their column for keys.", "COLUMN"),
        Row("--history", "An empty folder for what became of each row, for verify.", "DIR"),
    ),
)  # fmt: skip

_CHECKPOINT = "How far it has come, where Spark can reach it."

EXPORT: Final = Pipeline(
    "Write topics as Parquet, with offsets, timestamps and headers; go on where it stopped.",
    (
        "tidelog pipeline export --topics orders,audit --dest lake/orders",
        "tidelog pipeline export --topics orders --dest lake/orders --by-date --follow",
    ),
    (
        Row("--topics", "The topics, with commas between.", "T,…", required=True),
        Row("--dest", "The folder for Parquet.", "DIR", required=True),
        Row("--checkpoint", f"{_CHECKPOINT}  [default: DIR/_checkpoint]", "DIR"),
        Row("--by-date", "A folder for each day of a partition's records, too."),
        Row("--follow", "Go on until Ctrl-C; without it ends with what there is."),
        Row("--batch-offsets", "Offsets of a micro-batch at most.  [default: 1M]", "N"),
        Row("--uncommitted", "Take records of open and aborted transactions too."),
    ),
)

REPLAY: Final = Pipeline(
    "Write what export wrote into topics: same partitions, order, keys, headers, timestamps.",
    (
        "tidelog pipeline replay --source lake/orders --verify",
        "tidelog pipeline replay --source lake/orders --topic orders-again --job-id again-1",
    ),
    (
        Row("--source", "The folder that export wrote.", "DIR", required=True),
        Row("--topic", "Write into this topic, not into those of the same names.", "T"),
        Row("--job-id", "Exactly once: the same id again writes nothing twice.", "ID"),
        Row("--verify", "Compare counts, contents and order of each partition with the files, "
            "not the counts alone.  Exit 5 if they differ."),
    ),
)  # fmt: skip

MIRROR: Final = Pipeline(
    "Copy topics into another cluster, exactly once, and the offsets of groups with them.",
    (
        "tidelog pipeline mirror --to other:9092 --topics orders --checkpoint cp --groups billing",
        "tidelog pipeline mirror --to other:9092 --topics orders --checkpoint cp --follow",
    ),
    (
        Row("--to", "The other cluster.", "HOST:PORT,…", required=True),
        Row("--topics", "The topics, with commas between.", "T,…", required=True),
        Row("--checkpoint", _CHECKPOINT, "DIR", required=True),
        Row("--name", "Of this mirror: its sink, and the group that shows how far it is.  "
            "[default: the checkpoint's, or one of the source's id, topics and prefix]", "NAME"),
        Row("--prefix", "Of the copies' names.", "TEXT"),
        Row("--groups", "Groups whose offsets are translated, with commas between.", "G,…"),
        Row("--replicas", "Of topics that are created.  [default: the cluster's]", "N"),
        Row("--batch-offsets", "Offsets of a micro-batch at most.  [default: 1M]", "N"),
        Row("--follow", "Go on until Ctrl-C: again and again what there is."),
        Row("--interval", "How long to wait between.  [default: 5s]", "TIME"),
    ),
)  # fmt: skip

VERIFY: Final = Pipeline(
    "Hold a history of producers against topics: lost, duplicated, reordered records; exit 5.",
    (
        "tidelog pipeline verify --history acks --topics load",
        "tidelog pipeline verify --history acks.jsonl --records lake/load --faults faults.jsonl",
    ),
    (
        Row("--history", "What producers were told: id, topic, partition, offset, status, at_ms.",
            "PATH", required=True),
        Row("--topics", "The topics to read, with commas between.", "T,…"),
        Row("--records", "Or what export wrote.", "DIR"),
        Row("--reads", "What consumers have read: id, at_ms.", "PATH"),
        Row("--faults", "When what was broken: name, from_ms, to_ms.", "PATH"),
        Row("--id", "A record's id, as an SQL expression.  [default: of values by produce]", "SQL"),
        Row("--ids-of", "How many ids each producer has.  [default: 2**40]", "N"),
        Row("--dest", "A folder for all that is found, as Parquet.", "DIR"),
        Row("--show", "Examples of each kind.  [default: 3]", "N"),
    ),
    offline="--records",
    reads_files=True,
)  # fmt: skip

ASOF: Final = Pipeline(
    "Show a topic as it was: all of it, the latest of each key, or what two moments differ in.",
    (
        "tidelog pipeline asof --topic orders --at @-1h --latest-by-key --dest orders-then",
        "tidelog pipeline asof --topic orders --diff-from @2026-01-31T12:00 --at end --show 10",
    ),
    (
        _TOPIC,
        Row("--at", "The moment: @ISO, @-1h, an offset, end.  [default: end]", "OFFSET"),
        Row("--diff-from", "An earlier one: keys that came, went or changed since.", "OFFSET"),
        Row("--latest-by-key", "What a compacted topic would have had."),
        Row("--dest", "A folder for the rows, as Parquet.", "DIR"),
        Row("--show", "Print so many of them.  [default: 0]", "N"),
    ),
)

LAG: Final = Pipeline(
    "Say how far groups are behind: in records, in time, by partition and by key.",
    (
        "tidelog pipeline lag --groups billing",
        "tidelog pipeline lag --groups billing,audit --samples 60 --interval 10s",
    ),
    (
        Row("--groups", "The groups, with commas between.", "G,…", required=True),
        Row("--samples", "How often, a line each.  [default: 1]", "N"),
        Row("--interval", "How long to wait between.  [default: 10s]", "TIME"),
        Row("--top", "How many of the hottest keys.  [default: 5]", "N"),
    ),
)

COMPACTION: Final = Pipeline(
    "Say what compaction would take from a topic, by partition and by key.",
    (
        "tidelog pipeline compaction --topic orders",
        "tidelog pipeline compaction --topic orders --top 20 --data stopped",
    ),
    (
        _TOPIC,
        Row("--top", "How many of the keys that are rewritten most.  [default: 5]", "N"),
    ),
    reads_files=True,
)

PIPELINES: Final[Mapping[str, Pipeline]] = {
    "produce": PRODUCE,
    "export": EXPORT,
    "replay": REPLAY,
    "mirror": MIRROR,
    "verify": VERIFY,
    "asof": ASOF,
    "lag": LAG,
    "compaction": COMPACTION,
}
