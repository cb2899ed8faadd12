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
    Row("large", "mb_per_s", "produce, prebuilt requests of 1 MB", "MB/s", more_is_better=True),
    Row("large", "brokers_cpu_s_per_gb", "  brokers' processor time", "CPU s/GB"),
    Row("small", "mb_per_s", "produce, prebuilt requests of 16 KiB", "MB/s", more_is_better=True),
    Row("small", "brokers_cpu_s_per_gb", "  brokers' processor time", "CPU s/GB"),
    Row("consume", "mb_per_s", "consume, confluent-kafka", "MB/s", more_is_better=True),
    Row("consume", "brokers_cpu_s_per_gb", "  brokers' processor time", "CPU s/GB"),
    Row("consume", "client_cpu_s_per_gb", "  client's processor time", "CPU s/GB"),
    Row("latency", "p50_ms", "acknowledgement, acks=1, median", "ms"),
    Row("latency", "p99_ms", "  99th percentile", "ms"),
    Row("latency", "brokers_cpu_percent", "  brokers' processor", "% of a core"),
    Row("latency_all", "p50_ms", "acknowledgement, acks=all, median", "ms"),
    Row("latency_all", "p99_ms", "  99th percentile", "ms"),
    Row("latency_all", "brokers_cpu_percent", "  brokers' processor", "% of a core"),
    Row("memory", "loaded_pss_mb", "memory, after all of this", "MB"),
)
QUESTIONS: Final = tuple(dict.fromkeys(row.question for row in ROWS))

Goals = Mapping[tuple[str, str], float]
_ONE_BROKER: Final[Goals] = {
    ("startup", "first_ack_s"): 1 / 7,
    ("startup", "idle_pss_mb"): 1 / 5,
    ("produce", "mb_per_s"): 1.5,
    ("produce", "brokers_cpu_s_per_gb"): 1 / 4,
    ("large", "mb_per_s"): 1.5,
    ("large", "brokers_cpu_s_per_gb"): 1 / 4,
    ("small", "mb_per_s"): 1.5,
    ("small", "brokers_cpu_s_per_gb"): 1 / 4,
    ("consume", "mb_per_s"): 1.0,
    ("consume", "brokers_cpu_s_per_gb"): 3 / 4,
    ("latency", "p50_ms"): 1 / 2,
    ("memory", "loaded_pss_mb"): 1 / 5,
}
_REPLICATED: Final[Goals] = {
    ("startup", "first_ack_s"): 0.05,
    ("startup", "idle_pss_mb"): 0.13,
    ("produce", "mb_per_s"): 3.0,
    ("produce", "brokers_cpu_s_per_gb"): 0.12,
    ("small", "mb_per_s"): 3.0,
    ("consume", "mb_per_s"): 1.0,
    ("consume", "brokers_cpu_s_per_gb"): 3 / 4,
    ("latency_all", "p50_ms"): 0.41,
    ("latency_all", "p99_ms"): 0.33,
}


def goals(replication: int) -> Goals:
    """Which part of Kafka's figure, or how many times it, is to be reached."""
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
    for row, ours, theirs, by, limits in measured(found):
        goal = wanted.get((row.question, row.figure))
        yield (
            row.label,
            short(ours),
            short(theirs),
            row.unit,
            f"{by:.2f}",
            _goal(goal, by, more_is_better=row.more_is_better),
            _both_limits(limits) if row.more_is_better else "",
        )


def short(value: float) -> str:
    """Three digits are as many as anybody can repeat."""
    return f"{value:.3g}" if value < 1000 else f"{value:.0f}"


def _goal(goal: float | None, by: float, *, more_is_better: bool) -> str:
    if goal is None:
        return ""
    reached = by >= goal if more_is_better else by <= goal
    sign = "≥" if more_is_better else "≤"
    return f"{sign} {goal:.2f}{'' if reached else ' missed'}"


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
            f"Others, the idle other side among them, used {min(busy, default=0.0):.0%} to "
            f"{max(busy, default=0.0):.0%} of "
            f"the processors; {noisy} of {len(busy)} runs had more than {settings['noise']:.0%} "
            "and are left out of the medians where there is a quieter one."
        ),
    ]


def every_run(found: Found) -> list[Figures]:
    answers = found["questions"].values()
    return [run for answer in answers for name in SIDES for run in answer["runs"][name]]


def _said(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in settings.items())
