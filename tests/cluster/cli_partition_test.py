"""`tidelog partition reassign` on a real cluster: replicas move while records are written, and a
move that cannot end is followed and called off."""

import json
from collections.abc import Iterator

import pytest

from harness.processes.cluster import Cluster, until
from harness.processes.golden import Golden
from harness.processes.spoken import script

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Four brokers, one of which has nothing yet."""
    with Cluster(tmp_path_factory.mktemp("port"), brokers=4) as cluster:
        cluster.done("topic", "create", "tides", "--assignment", "0:1,1:2,2:0,0:1")
        cluster.done("produce", "tides", text="".join(f"{n}\n" for n in range(1000)))
        yield cluster


def replicas(cluster: Cluster, topic: str) -> list[list[int]]:
    shown = cluster.done("topic", "describe", topic, "--json").document
    return [one["replicas"] for one in shown["topics"][0]["partitions"]]


def is_fenced(cluster: Cluster, broker: int) -> bool:
    return bool(cluster.done("why", "broker", str(broker), "--json").document["fenced"])


def test_a_plan_that_is_made_is_applied_and_every_record_stays(
    port: Cluster, golden: Golden
) -> None:
    plan = port.done("partition", "reassign", "plan", "--topics", "tides")
    (port.folder / "plan.json").write_text(plan.out)
    text = script(
        port,
        "partition reassign plan --topics tides",
        "partition reassign apply plan.json --throttle 100000000 --wait",
    )
    port.until_heard()
    text += script(
        port,
        "partition reassign status --plan plan.json",
        "partition reassign status --plan plan.json --json",
        "partition reassign apply plan.json --json",
        "config describe topic tides --changed",
        "partition reassign plan --topics tides --replication-factor 3 --json",
    )
    golden("cli_partition_moved", text)
    wanted = {one["partition"]: one["replicas"] for one in plan.document["partitions"]}
    now = replicas(port, "tides")
    assert {number: now[number] for number in wanted} == wanted
    port.done("timeline", "tides:0", "--html", "moved.html")
    assert "reassigned" in (port.folder / "moved.html").read_text()
    read = port.done("consume", "tides", "-o", "start:end").out
    assert sorted(map(int, read.splitlines())) == list(range(1000))


def test_a_move_to_a_broker_that_hangs_is_followed_and_called_off(
    port: Cluster, golden: Golden
) -> None:
    """The one that hangs can copy nothing, so nothing ends by itself."""
    port.done("topic", "create", "slow", "--assignment", "0:1,1:0")
    row = {"topic": "slow", "partition": 0, "replicas": [3, 1]}
    plan = json.dumps({"version": 1, "partitions": [row]})
    port.done("broker", "pause", "3")
    alive = ",".join(port.bootstrap.split(",")[:3])
    begun = port.done("partition", "reassign", "apply", "-", "--json", "-b", alive, text=plan)
    assert begun.document["moving"] == [
        {"topic": "slow", "partition": 0, "from": [0, 1], "to": [3, 1]}
    ]
    until(lambda: is_fenced(port, 3), "broker 3 is given up")
    port.until_heard()
    text = script(
        port,
        "partition reassign status",
        "partition reassign status slow --json",
        "topic describe slow",
        "why partition slow:0",
        "partition reassign cancel slow:1",
        "partition reassign cancel slow",
        "partition reassign cancel --json",
    )
    golden("cli_partition_cancelled", text)
    assert [sorted(row) for row in replicas(port, "slow")] == [[0, 1], [0, 1]]
    port.done("broker", "resume", "3")
    port.until_heard()
    until(lambda: port.process("broker", 3)["state"] == "running", "broker 3 is back")


def test_what_is_no_plan_or_cannot_be_is_told(port: Cluster, golden: Golden) -> None:
    port.done("topic", "create", "calm", "--assignment", "0:1")
    changes: dict[str, dict[str, object]] = {
        "strange.json": {"topic": "tide"},
        "far.json": {"partition": 9},
        "nobody.json": {"replicas": [0, 9]},
    }
    for name, change in changes.items():
        row = {"topic": "calm", "partition": 0, "replicas": [0, 1], **change}
        (port.folder / name).write_text(json.dumps({"version": 1, "partitions": [row]}))
    (port.folder / "other.json").write_text("{}")
    text = script(
        port,
        "partition",
        "partition reassign apply none.json",
        "partition reassign apply other.json",
        ("partition reassign apply -", '{"version": 1, "partitions": []}'),
        "partition reassign apply strange.json",
        "partition reassign apply far.json",
        "partition reassign apply nobody.json",
        "partition reassign plan --brokers 0,9",
        "partition reassign plan --brokers one",
        "partition reassign plan --brokers 0 --topics calm",
        "partition reassign plan --topics clam",
        "partition reassign status calm:7",
        "partition reassign status",
        "partition reassign cancel calm:x",
    )
    golden("cli_partition_wrong_use", text)
