"""A node of Kafka and some of its clients do a little of all that tests do, so that their JVMs load
the classes, and keep them at their end.

Run as a program by `harness.kafka.quick_java`, which has no archives yet: it starts each JVM with
options of its own.
"""

import shutil
import sys
from pathlib import Path

from harness.clients import built
from harness.clients.tools_jvm import ToolsJvm
from harness.kafka.node import TRANSACTIONS, KafkaNode, format_folders, free_ports, properties
from harness.kafka.quick_java import CLIENTS, FORMATTED, NODE, java

TOOLS = "org.apache.kafka.tools"
ANY = "-Xshare:auto"
"""The option of a JVM that needs none."""


def main(folder: Path) -> None:
    work = folder / "work"
    work.mkdir()
    ports = free_ports(2)
    config = work / "node.properties"
    config.write_text(properties(work / "logs", ports, TRANSACTIONS), encoding="ascii")
    format_folders(java(ANY), config)
    shutil.copytree(work / "logs", folder / FORMATTED)
    command = [*java(_kept_in(folder, NODE)), "kafka.Kafka", str(config)]
    node = KafkaNode(command, work / "said", ports[0])
    try:
        use(node.bootstrap, java(_kept_in(folder, CLIENTS), "Tools", program=built.tools()))
    finally:
        node.stop()
    shutil.rmtree(work)


def _kept_in(folder: Path, archive: str) -> str:
    return f"-XX:ArchiveClassesAtExit={folder / archive}.jsa"


def use(bootstrap: str, command: list[str]) -> None:
    """A topic, records, groups of both protocols, and transactions, by Kafka's tools."""
    here = ("--bootstrap-server", bootstrap)
    reading = (
        *(f"{TOOLS}.consumer.ConsoleConsumer", *here, "--topic", "t"),
        *("--from-beginning", "--max-messages", "1"),
    )
    copying = (
        *(f"{TOOLS}.TransactionalMessageCopier", "--broker-list", bootstrap),
        *("--input-topic", "t", "--input-partition", "0", "--output-topic", "t"),
        *("--transactional-id", "x", "--consumer-group", "x", "--max-messages", "1"),
    )
    jvm = ToolsJvm(command)
    for words, text in (
        ((f"{TOOLS}.TopicCommand", *here, "--create", "--topic", "t"), ""),
        ((f"{TOOLS}.ConsoleProducer", *here, "--topic", "t"), "one\ntwo\n"),
        ((*reading, "--group", "g"), ""),
        ((*reading, "--group", "h", "--consumer-property", "group.protocol=consumer"), ""),
        ((f"{TOOLS}.consumer.group.ConsumerGroupCommand", *here, "--describe", "--all-groups"), ""),
        (copying, ""),
        ((f"{TOOLS}.GetOffsetShell", *here), ""),
        (("kafka.admin.ConfigCommand", *here, "--describe", "--entity-type", "topics"), ""),
    ):
        said = jvm.run(words, text)
        assert said.code == 0, (words, said)
    jvm.end()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
