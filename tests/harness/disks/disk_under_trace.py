"""A program to be traced, which works on a disk that keeps a ledger and kills itself at the end.

Run as `python -m harness.disks.disk_under_trace FOLDER RUN_ID PLANT`."""

import os
import signal
import sys
from pathlib import Path

from harness.disks.recorded_disk import RecordedDisk
from harness.faults.disk_plants import plant_in_seam


def main(folder: str, run_id: str, plant: str) -> None:
    Path(folder).mkdir()
    disk = RecordedDisk(Path(folder), run_id=run_id)
    plant_in_seam(plant)
    place = disk.directory.directory("t-0")
    place.make()
    file = place.open("00000000000000000000.log")
    file.append([b"synced"])
    file.sync()
    place.replace("leader-epoch-checkpoint", b"old")
    place.sync()
    disk.directory.sync()
    file.append([b"and not"])
    file.truncate(3)
    place.replace("leader-epoch-checkpoint", b"new", durable=False)
    place.rename("00000000000000000000.log", "00000000000000000000.log.deleted")
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
