"""`python -m tidelog.spark.pipelines NAME OPTIONS`: one program, which ends when it is told to."""

import sys

from tidelog.spark.pipelines.interrupts import INTERRUPTS


def main() -> None:
    INTERRUPTS.install()  # first of all: the import below takes most of a second
    from tidelog.spark.pipelines.running import run  # noqa: PLC0415 -- as said

    sys.exit(run(sys.argv[1] if len(sys.argv) > 1 else "", sys.argv[2:]))


if __name__ == "__main__":
    main()
