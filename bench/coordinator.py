"""How soon a change of the metadata is answered after the coordinator was killed.

Three brokers; a producer writes to three replicas at a steady rate meanwhile, and its longest wait
for an acknowledgement says whether the data's way was disturbed. The change is a new topic, asked
for at once and until it is made.
"""

import argparse
import itertools
import os
import signal
import time

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from clusters import Tidelog, running
from failover import Steady
from measuring import Arguments, Figures, middle, percentile, repeat, report, versions

GOALS = {"changed_s": 0.2}
_BROKERS = 3
_PATIENCE_S = 60.0
_BETWEEN_S = 1.5


def parser() -> Arguments:
    asked = Arguments(str(__doc__), ["coordinator.py"], runs=20)
    asked.add_argument("--rate", type=int, default=200, help="records a second (200)")
    return asked


def made(admin: AdminClient, name: str) -> None:
    """At the first try that is not refused: the coordinator may not be back at the first one."""
    wanted = NewTopic(name, 1, _BROKERS, config={"min.insync.replicas": "2"})
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            admin.create_topics([wanted])[name].result(_PATIENCE_S)
        except confluent_kafka.KafkaException as refused:
            if time.monotonic() > deadline:
                raise SystemExit(f"no topic was made for {_PATIENCE_S} s: {refused}") from refused
            continue
        return


def one(cluster: Tidelog, admin: AdminClient, steady: Steady, topic: str) -> Figures:
    steady.wait_for(time.monotonic() + _BETWEEN_S)
    pid, refused = cluster.coordinator_pid(), len(steady.refused)
    killed = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    made(admin, topic)
    changed = time.monotonic()
    steady.wait_for(changed)
    times = [moment for moment, _ in steady.acks]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times) if later > killed]
    return {
        "changed_s": round(changed - killed, 3),
        "ack_gap_s": round(max(gaps), 3),
        "refused": len(steady.refused) - refused,
    }


def run(asked: argparse.Namespace) -> None:
    numbers = itertools.count()
    with running(brokers=_BROKERS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        made(admin, "data")
        steady = Steady(cluster.bootstrap, "data", asked.rate)
        try:
            runs = repeat(asked, lambda: one(cluster, admin, steady, f"change-{next(numbers)}"))
        finally:
            steady.finish()
    changes = [figures["changed_s"] for figures in runs]
    figures = {
        "changed_s": middle(runs, "changed_s"),
        "changed_p99_s": percentile(changes, 0.99),
        "ack_gap_s": max(figures["ack_gap_s"] for figures in runs),
        "refused": sum(figures["refused"] for figures in runs),
    }
    settings = {
        "rate": asked.rate,
        "brokers": _BROKERS,
        "librdkafka": confluent_kafka.libversion()[0],
        "versions": versions("confluent-kafka", "uvloop", "pyzmq"),
    }
    report("coordinator", settings, {**figures, "goals": GOALS}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
