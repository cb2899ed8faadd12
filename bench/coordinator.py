"""How soon a change of the metadata is answered after the coordinator was killed.

Three brokers; a producer writes to three replicas at a steady rate meanwhile, and its longest wait
for an acknowledgement says whether the data's way was disturbed. The change is a new topic, asked
for at once and until it is made. With --standbys another coordinator takes over, else the same one
is started again; with --how stop the one that leads is stopped (SIGSTOP) instead.
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
_EACH_MAX = 1_000


def parser() -> Arguments:
    examples = ["coordinator.py", "coordinator.py --standbys 1 --partitions 10000"]
    asked = Arguments(str(__doc__), examples, runs=20)
    asked.add_argument("--how", choices=["kill", "stop"], default="kill", help="SIGKILL or SIGSTOP")
    asked.add_argument("--standbys", type=int, default=0, metavar="N", help="standing by (0)")
    asked.add_argument(
        "--partitions",
        type=int,
        default=0,
        help="how many there are already, of three replicas (0)",
    )
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


def fill(admin: AdminClient, partitions: int) -> None:
    """Partitions that nobody writes to."""
    for first in range(0, partitions, _EACH_MAX):
        wanted = NewTopic(f"filling-{first}", min(_EACH_MAX, partitions - first), _BROKERS)
        admin.create_topics([wanted])[wanted.topic].result(_PATIENCE_S)


def one(
    cluster: Tidelog, admin: AdminClient, steady: Steady, topic: str, how: signal.Signals
) -> Figures:
    steady.wait_for(time.monotonic() + _BETWEEN_S)
    cluster.ask("wait", "ready")
    pid, refused = cluster.coordinator_pid(), len(steady.refused)
    killed = time.monotonic()
    os.kill(pid, how)
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
    how = signal.SIGKILL if asked.how == "kill" else signal.SIGSTOP
    options = ("--standby-coordinators", str(asked.standbys))
    with running(brokers=_BROKERS, options=options) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
        made(admin, "data")
        fill(admin, asked.partitions)
        steady = Steady(cluster.bootstrap, "data", asked.rate)
        try:
            runs = repeat(
                asked, lambda: one(cluster, admin, steady, f"change-{next(numbers)}", how)
            )
        finally:
            steady.finish()
    changes = [figures["changed_s"] for figures in runs]
    figures = {
        "changed_s": middle(runs, "changed_s"),
        "changed_p99_s": percentile(changes, 0.99),
        "changed_longest_s": max(changes),
        "ack_gap_s": max(figures["ack_gap_s"] for figures in runs),
        "refused": sum(figures["refused"] for figures in runs),
    }
    settings = {
        "how": asked.how,
        "standbys": asked.standbys,
        "partitions": asked.partitions,
        "rate": asked.rate,
        "brokers": _BROKERS,
        "librdkafka": confluent_kafka.libversion()[0],
        "versions": versions("confluent-kafka", "uvloop", "pyzmq"),
    }
    report("coordinator", settings, {**figures, "goals": GOALS}, runs)


if __name__ == "__main__":
    run(parser().parse_args())
