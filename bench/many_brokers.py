"""What more brokers cost: start, memory and processor idle, creation, a replicated GB, clean stop.

Topics have three replicas. One line of JSON holds the figures for each number of brokers.
"""

import argparse

from cluster_wide import REPLICAS_MAX, first_record, idle_cost
from clusters import Tidelog
from creation import creation_run
from measuring import MB, Arguments, Figures, cpu_s, curve, report, versions
from workloads import Load, produce_run

_BROKERS = (3, 5, 7, 9)
_CREATED = ("create_one_ms", "create_many_s")
_PRODUCED = ("mb_per_s", "brokers_cpu_s_per_gb")


def parser() -> Arguments:
    examples = ["many_brokers.py", "many_brokers.py --brokers 3 9 --runs 3"]
    asked = Arguments(str(__doc__), examples, runs=1)
    asked.add_argument(
        "--brokers", type=int, nargs="+", default=_BROKERS, help="how many, point by point"
    )
    asked.add_argument("--idle", type=float, default=10.0, metavar="S", help="seconds idle (10)")
    asked.add_argument("--partitions", type=int, default=1_000, help="of the large topic (1000)")
    asked.add_argument("--seconds", type=float, default=5.0, help="of producing (5)")
    asked.add_argument("--mb", type=int, default=2000, help="producing writes at most (2000)")
    return asked


def one(brokers: int, asked: argparse.Namespace) -> Figures:
    replication = min(REPLICAS_MAX, brokers)
    load = Load(replication=replication, seconds=asked.seconds, bytes_max=round(asked.mb * MB))
    cluster = Tidelog(brokers=brokers)
    try:
        first = first_record(cluster, replication=replication)
        start_cpu = cpu_s(cluster.pids)
        cluster.wait_ready()
        idle = idle_cost(cluster, asked.idle, settle=asked.idle / 3)
        made = creation_run(cluster, partitions=asked.partitions, times=20, replication=replication)
        produced = produce_run(cluster, load)
    finally:
        stop = cluster.stop()
    shares = [figures["other_share"] for figures in (made, produced)]
    return {
        "brokers": brokers,
        "first_ack_s": round(first, 3),
        "start_cpu_s": round(start_cpu, 3),
        "idle_pss_mb": idle["idle_pss_mb"],
        "idle_cpu_percent": idle["idle_cpu_percent"],
        **{name: made[name] for name in _CREATED},
        **{name: produced[name] for name in _PRODUCED},
        "stop_s": round(stop, 3),
        "other_share": max(shares),
    }


def run(asked: argparse.Namespace) -> None:
    warm = Tidelog(brokers=min(asked.brokers))
    first_record(warm)  # compiles the modules, fills the page cache
    warm.stop()
    points, every = curve(asked, asked.brokers, one)
    settings = {
        "replication": REPLICAS_MAX,
        "idle_s": asked.idle,
        "partitions": asked.partitions,
        "versions": versions("confluent-kafka", "uvloop", "pyzmq"),
    }
    report("many_brokers", settings, {"points": points}, every)


if __name__ == "__main__":
    run(parser().parse_args())
