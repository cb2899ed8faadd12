"""The daemon of Python workers for the matrix, whose workers also need its strikes."""

from harness.spark import daemon

if __name__ == "__main__":
    daemon.run("harness.spark.matrix_strikes")
