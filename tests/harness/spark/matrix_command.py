"""A pipeline as a command of its own, under a cell of the matrix; run as a program.

python -m harness.spark.matrix_command NAME WORDS...
"""

import sys

import tidelog.spark.sessions as made_by
from harness.spark.matrix_strikes import StruckSource
from tidelog.spark.pipelines.running import run

if __name__ == "__main__":
    vars(made_by)["RegisteredSource"] = StruckSource  # every session is made with this one
    sys.exit(run(sys.argv[1], sys.argv[2:]))
