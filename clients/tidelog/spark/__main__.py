"""`python -m tidelog.spark HOST:PORT` runs the first pipeline, which ends when it is told to."""

import sys

from tidelog.spark.pipelines.interrupts import INTERRUPTS


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: python -m tidelog.spark HOST:PORT")
    INTERRUPTS.install()  # first of all: the import below takes most of a second
    from tidelog.spark.first_pipeline import run  # noqa: PLC0415 -- as said

    sys.exit(run(sys.argv[1]))


if __name__ == "__main__":
    main()
