"""What the durability ledger costs: an append, and files that are made, renamed, replaced, removed.

Each run does the same with a ledger and without one; the figures are processor time. An append is
not told to the ledger, so its two figures must be the same.
"""

import argparse
import os
import tempfile

from crc_codec import seconds_each
from measuring import Arguments, Figures, Meter, middle, repeat, report, versions
from tidelog.node.ipc.ledger_memory import LedgerMemory, remove_ledger
from tidelog.node.runtime.disk import DiskDirectory, open_disk
from tidelog.node.runtime.ledger import Ledger
from tidelog.node.runtime.unrecorded import Unrecorded

_OWNER = "bench"
_BATCH = memoryview(bytes(1_000))


def parser() -> Arguments:
    asked = Arguments(str(__doc__), ["ledger.py", "ledger.py --seconds 2"])
    asked.add_argument("--seconds", type=float, default=0.5, help="for each figure (0.5)")
    return asked


def one(asked: argparse.Namespace) -> Figures:
    meter = Meter([])
    figures: Figures = {}
    run_id = os.urandom(4).hex()
    for kind in ("with", "without"):
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            top = f"{folder}/log0"
            try:
                ledger = _ledger(run_id, top) if kind == "with" else Unrecorded()
                place = open_disk(top, open_files_max=64, ledger=ledger)
                place.make()
                figures |= {f"{name}_us_{kind}": us for name, us in _each(place, asked.seconds)}
            finally:
                remove_ledger(run_id, _OWNER)
    return {**figures, "other_share": meter.stop()["other_share"]}


def _ledger(run_id: str, top: str) -> Ledger:
    memory = LedgerMemory.open(run_id, _OWNER, "boot")
    assert memory is not None
    return Ledger(memory, [top], lambda: None)


def _each(place: DiskDirectory, seconds: float) -> list[tuple[str, float]]:
    file = place.open("appended")

    def made_and_removed() -> None:
        place.open("made").close()
        place.unlink("made")

    def renamed() -> None:
        place.rename("appended", "other")
        place.rename("other", "appended")

    calls = {
        "append": lambda: file.append((_BATCH,)),
        "make_and_remove": made_and_removed,
        "rename_twice": renamed,
        "replace": lambda: place.replace("one", b"content", durable=False),
    }
    return [(name, round(1e6 * seconds_each(call, seconds), 2)) for name, call in calls.items()]


def run(asked: argparse.Namespace) -> None:
    runs = repeat(asked, lambda: one(asked))
    names = [name for name in runs[0] if name not in {"other_share", "noisy"}]
    settings = {"seconds": asked.seconds, "versions": versions("posix_ipc")}
    report("ledger", settings, {name: middle(runs, name) for name in names}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
