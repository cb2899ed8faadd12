"""`tidelog timeline` on real processes that die and hang: what happened, from all, in order."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.processes.cluster import Cluster, until
from harness.processes.golden import Golden, told
from harness.processes.stage import staged
from tidelog.tools.timeline import gather

pytestmark = pytest.mark.slow

Event = dict[str, Any]


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(tmp_path, brokers=3) as running:
        running.done("topic", "create", "t", "-p", "1", "-r", "3")
        yield running


def timeline(cluster: Cluster) -> list[Event]:
    events: list[Event] = cluster.done("timeline", "t:0", "--json").document["events"]
    return events


def whole_story(cluster: Cluster) -> list[Event]:
    """Once all replicas are in sync again by the coordinator's own word, and nothing more comes:
    who is asked for that may not even have heard that they were not."""
    told: list[list[Event]] = [[]]

    def is_over() -> bool:
        told.append(timeline(cluster))
        changes = [event["isr"] for event in told[-1] if event["event"] == "isr_changed"]
        return told[-1] == told[-2] and changes[-1:] == [[0, 1, 2]]

    until(is_over, "all are in sync again")
    return told[-1]


def first(events: list[Event], name: str, **fields: object) -> int:
    """Where the first such event stands."""
    return next(
        index
        for index, event in enumerate(events)
        if event["event"] == name and fields.items() <= event.items()
    )


def leader_of(cluster: Cluster) -> int:
    shown = cluster.done("topic", "describe", "t", "--json").document
    return int(shown["topics"][0]["partitions"][0]["leader"])


def test_a_failover_is_told_by_all_who_took_part_in_the_order_it_happened(three: Cluster) -> None:
    old = leader_of(three)
    three.done("produce", "t", "--acks", "all", text="before\n")
    three.done("broker", "kill", str(old))
    until(lambda: leader_of(three) not in {-1, old}, "another leads")
    new = leader_of(three)
    three.done("produce", "t", "--acks", "all", text="after\n")
    three.done("broker", "start", str(old))
    events = whole_story(three)
    assert [event["at"] for event in events] == sorted(event["at"] for event in events)
    story = [
        first(events, "created", leader=old, isr=[0, 1, 2]),
        first(events, "leads", leader_epoch=0, process=f"broker-{old}"),
        first(events, "high_watermark", process=f"broker-{old}", to=1, leader_epoch=0),
        first(events, "ended", process="supervisor-0", broker=old, code=-9),
        first(events, "broker_fenced", process="coordinator-0", broker=old),
        first(events, "isr_changed", before=[0, 1, 2], isr=sorted({0, 1, 2} - {old})),
        first(events, "elected", leader=new, before=old, leader_epoch=1),
        first(events, "leads", leader_epoch=1, process=f"broker-{new}", end=1),
        first(events, "high_watermark", process=f"broker-{new}", to=2, leader_epoch=1),
        first(events, "follows", process=f"broker-{old}", leader_epoch=1),
        first(events, "isr_changed", isr=[0, 1, 2]),
    ]
    assert story == sorted(story), events
    assert len({(event["process"], event["number"]) for event in events}) == len(events)
    three.stop()
    assert timeline(three)[: len(events)] == events


def test_what_a_killed_broker_had_not_written_down_is_told_all_the_same(three: Cluster) -> None:
    """Everything is stopped while the log still waits for its next turn."""
    old = leader_of(three)
    pids = {broker: three.broker_pid(broker) for broker in range(3)}
    three.done("broker", "kill", str(old))
    until(lambda: is_led_again(three), "the next leader has heard of it")
    for broker, pid in pids.items():
        if broker != old:
            os.kill(pid, signal.SIGKILL)
    events = timeline(three)
    new = events[first(events, "elected")]["leader"]
    assert first(events, "leads", process=f"broker-{new}", leader_epoch=1)


def is_led_again(cluster: Cluster) -> bool:
    """As the board has it at once, and a log somewhat later."""
    entries = gather(cluster.runs[-1].run_id, cluster.data / "logs")
    return any(one.event == "leads" and one.fields["leader_epoch"] == 1 for one in entries)


def test_a_hang_is_told_from_the_stop_to_the_return(three: Cluster) -> None:
    old = leader_of(three)
    three.done("broker", "pause", str(old))
    until(lambda: leader_of_others(three, old) not in {-1, old}, "another leads")
    three.done("broker", "resume", str(old))
    events = whole_story(three)
    story = [
        first(events, "hung", broker=old),
        first(events, "broker_fenced", broker=old),
        first(events, "elected", before=old),
        first(events, "lost", process=f"broker-{old}", broker=old),
        first(events, "broker_unfenced", broker=old, broker_epoch=unfenced(events, old)),
        first(events, "isr_changed", isr=[0, 1, 2]),
    ]
    assert story == sorted(story), events
    assert first(events, "cut_off", broker=old) > first(events, "hung", broker=old)


def test_a_page_has_a_column_for_each_process_and_every_event(three: Cluster) -> None:
    three.done("timeline", "t:0", "--html", "page.html")
    text = (three.folder / "page.html").read_text()
    shown = timeline(three)
    assert text.count("<tr>") == len(shown) + 1
    for process in {event["process"] for event in shown}:
        assert f"<th>{process}</th>" in text


def unfenced(events: list[Event], broker: int) -> int:
    """The broker epoch of its return."""
    return max(
        int(event["broker_epoch"])
        for event in events
        if event["event"] == "broker_unfenced" and event["broker"] == broker
    )


def leader_of_others(cluster: Cluster, paused: int) -> int:
    alive = [one for n, one in enumerate(cluster.bootstrap.split(",")) if n != paused]
    shown = cluster.done("topic", "describe", "t", "--json", "-b", ",".join(alive)).document
    return int(shown["topics"][0]["partitions"][0]["leader"])


def test_its_words(tmp_path: Path, golden: Golden) -> None:
    with Cluster(tmp_path) as cluster:
        cluster.done("topic", "create", "orders")
        running = told(
            cluster,
            ["timeline", "orders:0"],
            ["timeline", "orders:0", "--json"],
            ["timeline", "order:0"],
            ["timeline", "orders:1"],
            ["timeline", "orders"],
            ["timeline", "orders:0", "--html", "no/such/folder/page.html"],
            ["timeline", "orders:0", "--cluster", "other"],
        )
        cluster.stop()
        golden("cli_timeline", running + told(cluster, ["timeline", "orders:0"]))


def test_a_truncation_is_told_with_offsets_and_epochs_among_what_led_to_it(tmp_path: Path) -> None:
    """A leader that hung comes back with records that nobody else has."""
    with staged(tmp_path, "min.insync.replicas=2") as stage:
        stage.sent(b"0")
        stage.sent(b"1")
        for other in (1, 2):
            stage.cut(0, other)
        stage.sent_to_leader(b"on 0 alone", b"and this")
        stage.pause(0)
        stage.until_led(1)
        stage.sent(b"2")
        for other in (1, 2):
            stage.join(0, other)
        stage.resume(0)
        events = whole_story(stage.cluster)
        cut = {"from": 4, "to": 2, "last_epoch": 0, "leader_epoch": 1, "committed": 0}
        story = [
            first(events, "leads", process="broker-0", leader_epoch=0, end=0),
            first(events, "high_watermark", process="broker-0", leader_epoch=0, to=1),
            first(events, "hung", broker=0),
            first(events, "broker_fenced", broker=0),
            first(events, "isr_changed", before=[0, 1, 2], isr=[1, 2]),
            first(events, "elected", before=0, leader=1, leader_epoch=1),
            first(events, "leads", process="broker-1", leader_epoch=1, end=2),
            first(events, "high_watermark", process="broker-1", leader_epoch=1),
            first(events, "lost", process="broker-0"),
            first(events, "truncated", process="broker-0", **cut),
            first(events, "isr_changed", isr=[0, 1, 2]),
        ]
        assert story == sorted(story), events
        shown = stage.cluster.done("timeline", "t:0").out
        (line,) = [line for line in shown.splitlines() if "truncated" in line]
        assert line.endswith("from=4 to=2 last_epoch=0 leader_epoch=1 committed=0")
