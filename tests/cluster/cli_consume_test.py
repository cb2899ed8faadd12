"""`tidelog consume` as a person and a script see it: records, JSON, exit codes, wrong use."""

import signal
from collections.abc import Iterator

import pytest

from harness.processes.cluster import Cluster
from harness.processes.golden import Golden
from harness.processes.spoken import script

pytestmark = pytest.mark.slow

NUMBERS = "".join(f"{number}\n" for number in range(10))


@pytest.fixture(scope="module")
def shore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("shore")) as cluster:
        cluster.done("topic", "create", "tides", "empty")
        cluster.done("produce", "tides", "-k", "pier", text=NUMBERS)
        yield cluster


def test_records_from_an_offset_on(shore: Cluster, golden: Golden) -> None:
    text = script(
        shore,
        "consume tides --max 2",
        "consume tides -o start -n 1 --json",
        "consume tides -o -2:end",
        "consume tides -o 3:5 -f '%t-%p@%o %k=%s %K %S\\n'",
        "consume tides -o -3 -n 2",
        "consume tides -o @-1h:@now -f '%s,'",
        "consume tides -o end:end",
        "consume tides -o 5:5",
        "consume tides -o @now:@now",
        "consume tides -o 1000 -n 1 --timeout 3",
        "consume tides --timeout 3 -f '%s '",
        "consume empty --timeout 0.2",
        "consume tides -n 11 --timeout 3 -f %s",
        "consume tides empty -o start:end --isolation read_committed -f '%t%o '",
        "consume tides --partition 0 -o 9:end",
    )
    golden("cli_consume_records", text)


def test_consume_that_cannot_be_done(shore: Cluster, golden: Golden) -> None:
    text = script(
        shore,
        "consume tide",
        "consume tides missing",
        "consume tides --partition 1",
        "consume tides --group sailors",
        "consume tides --cluster other",
        "consume tides --bootstrap 127.0.0.1:1",
    )
    golden("cli_consume_refused", text)


def test_wrong_use_of_consume(shore: Cluster, golden: Golden) -> None:
    text = script(
        shore,
        "consume",
        "consume tides -o beginning",
        "consume tides -o 5:",
        "consume tides -n 0",
        "consume tides --timeout 0",
        "consume tides --isolation serializable",
        "consume tides -f %q",
        "consume tides -f %s --json",
        "consume tides --partition x",
        "consume tides --follow",
    )
    golden("cli_consume_wrong_use", text)


def test_it_follows_until_it_is_interrupted(shore: Cluster) -> None:
    topic = shore.create_topic()
    with shore.open("consume", topic) as process:
        assert process.stdout is not None
        for word in ("one", "two"):
            shore.done("produce", topic, text=f"{word}\n")
            assert process.stdout.readline() == f"{word}\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err.strip()) == (130, "")


def test_a_reader_that_leaves_is_no_error(shore: Cluster) -> None:
    topic = shore.create_topic()
    shore.done("produce", topic, text="x" * 99 + "\n" + "y\n" * 200_000)
    with shore.open("consume", topic) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "x" * 99 + "\n"
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
        assert process.wait(60) == 0


def test_a_topic_that_is_deleted_meanwhile_ends_the_reading(shore: Cluster) -> None:
    topic = shore.create_topic()
    shore.done("produce", topic, text="one\n")
    with shore.open("consume", topic) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "one\n"
        shore.done("topic", "delete", topic, "--yes")
        _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "was deleted while it was read" in err


def test_a_restarted_broker_is_read_on(fresh_cluster: Cluster) -> None:
    topic = fresh_cluster.create_topic()
    fresh_cluster.done("produce", topic, text="one\n")
    with fresh_cluster.open("consume", topic, "-n", "2") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "one\n"
        fresh_cluster.done("broker", "kill", "0")
        fresh_cluster.done("broker", "start", "0")
        fresh_cluster.done("produce", topic, text="two\n")
        out, err = process.communicate(timeout=90)
    assert (out, err, process.returncode) == ("two\n", "", 0)
