"""Kafka's console tools as tests call them, in the JVM of the test process."""

from typing import Self

from harness.clients.tools_jvm import Said, run_tool
from harness.kafka.jars import need_kafka


class KafkaTools:
    """Calls the tools for one cluster."""

    def __init__(self, bootstrap: str) -> None:
        need_kafka()
        self.bootstrap = bootstrap

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """The JVM stays for other tests."""

    def tool(self, name: str, *arguments: str) -> str:
        """What the tool prints; it must succeed, and log no error."""
        return _good(self.run(name, "--bootstrap-server", self.bootstrap, *arguments))

    def verb(self, name: str, verb: str, *arguments: str) -> str:
        """As `tool`, of one that wants the bootstrap behind its verb."""
        return _good(self.run(name, verb, "--bootstrap-server", self.bootstrap, *arguments))

    def refused(self, name: str, *arguments: str) -> str:
        """All that is said by a tool that must fail."""
        said = self.run(name, "--bootstrap-server", self.bootstrap, *arguments)
        assert said.code != 0, said
        return said.out + said.err

    def run(self, *words: str) -> Said:
        """A main class and its arguments."""
        return run_tool(*words)


def _good(said: Said) -> str:
    assert said.code == 0, said
    # The log of the tools goes to standard error: warnings are findings too.
    assert " ERROR " not in said.err, said
    return said.out
