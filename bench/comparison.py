"""What a comparison found: medians, ratios, what was to be reached; as JSON and as a table."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypedDict

import msgspec

from measuring import Figures, middle

SIDES: Final = ("tidelog", "kafka")
Runs = dict[str, list[Figures]]
"""Of both sides, each run's figures."""
Medians = dict[str, float | None]


class Settings(TypedDict):
    """What a reader of the ratios must know; each part is printed as it is."""

    replication: int
    noise: float
    kafka: dict[str, Any]
    tidelog: dict[str, Any]
    both: dict[str, Any]
    client: dict[str, Any]
    producer: dict[str, Any]
    consumer: dict[str, Any]


class Answer(TypedDict):
    """What was found for one question."""

    tidelog: Medians
    kafka: Medians
    tidelog_by_kafka: Medians
    limited_by: dict[str, str]
    runs: Runs


class Found(TypedDict):
    """The document that `compare --json` writes and `compare --from` reads."""

    bench: str
    date: str
    command: str
    settings: Settings
    machine: dict[str, Any]
    questions: dict[str, Answer]


def read(path: Path) -> Found:
    """A document written before; refused where it has another shape."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Found)
    except msgspec.DecodeError as error:
        raise SystemExit(f"{path} is no document of bench/compare: {error}") from None


class Row(NamedTuple):
    """One figure of one question."""

    question: str
    figure: str
    label: str
    unit: str
    more_is_better: bool = False


ROWS: Final = (
    Row("startup", "first_ack_s", "start to the first acknowledged record", "s"),
    Row("startup", "start_cpu_s", "processor time of the start", "CPU s"),
    Row("startup", "idle_pss_mb", "memory, idle", "MB"),
    Row("startup", "idle_cpu_percent", "processor, idle", "% of a core"),
    Row("startup", "stop_s", "clean stop", "s"),
    Row("produce", "mb_per_s", "produce, confluent-kafka", "MB/s", more_is_better=True),
    Row("produce", "brokers_cpu_s_per_gb", "  brokers' processor time", "CPU s/GB"),
    Row("produce", "client_cpu_s_per_gb", "  client's processor time", "CPU s/GB"),
    Row("produce_lz4", "mb_per_s", "produce lz4, confluent-kafka", "MB/s", more_is_better=True),
    Row("produce_lz4", "brokers_cpu_s_per_gb", "  brokers' processor time", "CPU s/GB"),
    Row("produce_lz4", "client_cpu_s_per_gb", "  client's processor time", "CPU s/GB"),
    Row(
        "produce_100",
        "records_per_s",
        "produce values of 100 bytes",
        "a second",
        more_is_better=True,
    ),
    Row("produce_100", "brokers_cpu_s_per_gb", "  brokers' processor time", "CPU s/GB"),
    Row("produce_100", "client_cpu_s_per_gb", "  client's processor time", "CPU s/GB"),
    Row("large", "mb_per_s", "produce, prebuilt requests of 1 MB", "MB/s", more_is_better=True),
    Row("large", "brokers_cpu_s_per_gb", "  brokers' processor time", "CPU s/GB"),
    Row("small", "mb_per_s", "produce, prebuilt requests of 16 KiB", "MB/s", more_is_better=True),
    Row("small", "brokers_cpu_s_per_gb", "  brokers' processor time", "CPU s/GB"),
    Row("small", "broker_ms_per_request", "  brokers' processor time, each", "CPU ms"),
    Row("consume", "mb_per_s", "consume, confluent-kafka", "MB/s", more_is_better=True),
    Row("consume", "brokers_cpu_s_per_gb", "  brokers' processor time", "CPU s/GB"),
    Row("consume", "client_cpu_s_per_gb", "  client's processor time", "CPU s/GB"),
    Row(
        "consume_100",
        "records_per_s",
        "consume values of 100 bytes",
        "a second",
        more_is_better=True,
    ),
    Row("consume_100", "brokers_cpu_s_per_gb", "  brokers' processor time", "CPU s/GB"),
    Row("consume_100", "client_cpu_s_per_gb", "  client's processor time", "CPU s/GB"),
    Row("latency", "p50_ms", "acknowledgement, acks=1, median", "ms"),
    Row("latency", "p99_ms", "  99th percentile", "ms"),
    Row("latency", "brokers_cpu_percent", "  brokers' processor", "% of a core"),
    Row("latency_all", "p50_ms", "acknowledgement, acks=all, median", "ms"),
    Row("latency_all", "p99_ms", "  99th percentile", "ms"),
    Row("latency_all", "p999_ms", "  99.9th percentile", "ms"),
    Row("latency_all", "brokers_cpu_percent", "  brokers' processor", "% of a core"),
    Row("memory", "loaded_pss_mb", "memory, after all of this", "MB"),
    Row("create", "create_one_ms", "1 partition created, known to every broker", "ms"),
    Row("create", "create_many_s", "1,000 partitions created, known to every broker", "s"),
    Row("failover", "ack_gap_s", "leader killed: longest time without an acknowledgement", "s"),
    Row("failover", "in_sync_s", "  started again until all replicas are in sync", "s"),
)
QUESTIONS: Final = tuple(dict.fromkeys(row.question for row in ROWS))
_ASKED_OF_ONE: Final = (
    "startup",
    "produce",
    "large",
    "small",
    "consume",
    "latency",
    "latency_all",
    "memory",
)
_NOT_ASKED_OF_REPLICAS: Final = {"large", "latency"}


def asked_unless_told(replication: int) -> set[str]:
    """What is asked where nobody says which questions."""
    if replication == 1:
        return set(_ASKED_OF_ONE)
    return set(QUESTIONS) - _NOT_ASKED_OF_REPLICAS


class Times(NamedTuple):
    """A goal: which part of Kafka's figure, or how many times it."""

    bound: float


class Figure(NamedTuple):
    """A goal in the figure's own unit, whatever Kafka needs."""

    bound: float


Goals = Mapping[tuple[str, str], Times | Figure]
_ONE_BROKER: Final[Goals] = {
    ("startup", "first_ack_s"): Times(1 / 7),
    ("startup", "idle_pss_mb"): Times(1 / 5),
    ("produce", "mb_per_s"): Times(1.5),
    ("produce", "brokers_cpu_s_per_gb"): Times(1 / 4),
    ("large", "mb_per_s"): Times(1.5),
    ("large", "brokers_cpu_s_per_gb"): Times(1 / 4),
    ("small", "mb_per_s"): Times(1.5),
    ("small", "brokers_cpu_s_per_gb"): Times(1 / 4),
    ("consume", "mb_per_s"): Times(1.0),
    ("consume", "brokers_cpu_s_per_gb"): Times(3 / 4),
    ("latency", "p50_ms"): Times(1 / 2),
    ("memory", "loaded_pss_mb"): Times(1 / 5),
}
_REPLICATED: Final[Goals] = {
    ("startup", "first_ack_s"): Figure(0.5),
    ("startup", "start_cpu_s"): Figure(0.7),
    ("startup", "idle_pss_mb"): Figure(120),
    ("startup", "idle_cpu_percent"): Figure(2),
    ("startup", "stop_s"): Figure(0.5),
    ("produce", "mb_per_s"): Times(3.0),
    ("produce", "brokers_cpu_s_per_gb"): Figure(1.5),
    ("produce_lz4", "mb_per_s"): Times(1.8),
    ("produce_lz4", "brokers_cpu_s_per_gb"): Figure(1.0),
    ("produce_100", "records_per_s"): Times(1.4),
    ("produce_100", "brokers_cpu_s_per_gb"): Figure(2.5),
    ("small", "mb_per_s"): Times(3.0),
    ("small", "broker_ms_per_request"): Figure(0.25),
    ("consume", "mb_per_s"): Times(1.0),
    ("consume", "brokers_cpu_s_per_gb"): Figure(0.4),
    ("consume_100", "records_per_s"): Times(1.0),
    ("consume_100", "brokers_cpu_s_per_gb"): Figure(0.8),
    ("latency_all", "p50_ms"): Figure(0.6),
    ("latency_all", "p99_ms"): Figure(2),
    ("latency_all", "p999_ms"): Figure(5),
    ("latency_all", "brokers_cpu_percent"): Figure(8),
    ("create", "create_one_ms"): Figure(15),
    ("create", "create_many_s"): Figure(0.25),
    ("failover", "ack_gap_s"): Figure(0.3),
    ("failover", "in_sync_s"): Figure(0.5),
}


def goals(replication: int) -> Goals:
    """What is to be reached."""
    return _ONE_BROKER if replication == 1 else _REPLICATED


def side_by_side(runs: Runs, noise: float) -> Answer:
    """Medians of both, and tidelog's by Kafka's; noisy runs are marked and left out."""
    for run in (*runs["tidelog"], *runs["kafka"]):
        run["noisy"] = run.get("other_share", 0.0) > noise
    names = [name for name, value in runs["tidelog"][0].items() if _is_number(value)]
    ours, theirs = ({name: middle(runs[side], name) for name in names} for side in SIDES)
    return {
        "tidelog": ours,
        "kafka": theirs,
        "tidelog_by_kafka": {name: ratio(ours[name], theirs[name]) for name in names},
        "limited_by": {side: _limits(runs[side]) for side in SIDES},
        "runs": runs,
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _limits(runs: Sequence[Figures]) -> str:
    """What held the runs back; each named once where they differ."""
    return ", ".join(sorted({run["limited_by"] for run in runs if "limited_by" in run}))


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """Three digits; None where there is nothing to divide by."""
    return float(f"{ours / theirs:.3g}") if ours is not None and theirs else None


# -- as text --------------------------------------------------------------------------------------

HEAD: Final = ("", "tidelog", "Apache Kafka", "unit", "ratio", "to reach", "limited by")


class Measured(NamedTuple):
    """A row and what was found for it."""

    row: Row
    ours: float
    theirs: float
    by: float
    limited_by: Mapping[str, str]


def measured(found: Found) -> Iterator[Measured]:
    """The rows that were asked for and have a ratio."""
    for row in ROWS:
        answer = found["questions"].get(row.question)
        if answer is None:
            continue
        ours, theirs = (side.get(row.figure) for side in (answer["tidelog"], answer["kafka"]))
        by = answer["tidelog_by_kafka"].get(row.figure)
        if ours is not None and theirs is not None and by is not None:
            yield Measured(row, ours, theirs, by, answer["limited_by"])


def lines(found: Found) -> Iterator[tuple[str, ...]]:
    """The table's cells: what, both figures, unit, ratio, what to reach, what was the limit."""
    wanted = goals(found["settings"]["replication"])
    for one in measured(found):
        row = one.row
        yield (
            row.label,
            short(one.ours),
            short(one.theirs),
            row.unit,
            f"{one.by:.2f}",
            _goal(wanted.get((row.question, row.figure)), one),
            _both_limits(one.limited_by) if row.more_is_better else "",
        )


def short(value: float) -> str:
    """Three digits are as many as anybody can repeat."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _goal(goal: Times | Figure | None, found: Measured) -> str:
    """A multiple is of the ratio; what has a unit is of our own figure."""
    match goal:
        case None:
            return ""
        case Times(bound):
            value, text = found.by, f"{bound:.2f}"
        case Figure(bound):
            value, text = found.ours, f"{short(bound)} {found.row.unit}"
    more = found.row.more_is_better
    reached = value >= bound if more else value <= bound
    return f"{'≥' if more else '≤'} {text}{'' if reached else ' missed'}"


def _both_limits(limits: Mapping[str, str]) -> str:
    ours, theirs = limits["tidelog"], limits["kafka"]
    return ours if ours == theirs else f"{ours} / {theirs}"


def table(found: Found) -> str:
    """For a terminal."""
    cells = [HEAD, *lines(found)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rows = ("  ".join(map(_padded, range(len(HEAD)), row, widths)) for row in cells)
    return "\n".join([*(row.rstrip() for row in rows), "", *notes(found)])


def _padded(column: int, text: str, width: int) -> str:
    return text.rjust(width) if column in {1, 2, 4} else text.ljust(width)


def notes(found: Found) -> list[str]:
    """What a reader must know beside the figures: both sides' settings, the machine, the noise."""
    settings, machine = found["settings"], found["machine"]
    busy = [run["other_share"] for run in every_run(found) if "other_share" in run]
    noisy = sum(run.get("noisy", False) for run in every_run(found))
    return [
        f"Kafka: {_said(settings['kafka'])}.",
        f"tidelog: {_said(settings['tidelog'])}.",
        f"Both: {_said(settings['both'])}.",
        f"Client: {_said(settings['client'])}.",
        (
            f"Machine: {machine['cpus']} processors, {machine['cpu']}, Linux {machine['kernel']}, "
            f"Python {machine['python']}; {found['date']}."
        ),
        (
            f"Others, {_idle_side(found)}, used {min(busy, default=0.0):.0%} to "
            f"{max(busy, default=0.0):.0%} of "
            f"the processors; {noisy} of {len(busy)} runs had more than {settings['noise']:.0%} "
            "and are left out of the medians where there is a quieter one."
        ),
    ]


def _idle_side(found: Found) -> str:
    """A run says what the side that was not asked used meanwhile; older ones do not."""
    shares = [run["idle_side_share"] for run in every_run(found) if "idle_side_share" in run]
    if not shares:
        return "the idle other side among them"
    return f"the idle other side (up to {max(shares):.1%}) not among them"


def every_run(found: Found) -> list[Figures]:
    answers = found["questions"].values()
    return [run for answer in answers for name in SIDES for run in answer["runs"][name]]


def _said(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in settings.items())
