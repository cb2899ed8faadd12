"""`tidelog` whose processes lie about their syncs: `python -m harness.disks.lying_seam PLANT up …`.

Only with `up` does it lie; other commands have nothing to sync.
"""

import sys

from harness.faults.disk_plants import plant_in_seam
from tidelog.tools import cli

if __name__ == "__main__":
    plant_in_seam(sys.argv.pop(1))
    cli.main()
