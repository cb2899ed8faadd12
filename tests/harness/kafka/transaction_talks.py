"""What is said of transactions in both versions of the protocol, by Apache Kafka and by us alike.

Apache Kafka 4.3.1 has said what stands in `golden/transaction_talks.txt`.
"""

from collections.abc import Callable

from harness.kafka.transaction_talk import OLD, OLD_END, Talk


def each_end_takes_an_epoch(talk: Talk) -> None:
    talk.init()
    talk.write()
    talk.write()
    talk.end("commit")
    for outcome in ("commit", "abort"):
        talk.end(outcome, at=0)
    talk.end("commit")
    talk.end("abort")
    for at in (1, 3, 0):
        talk.end("abort", at=at)
    talk.end("commit", at=1)
    talk.write()
    talk.end("abort")
    talk.end("commit", at=2)
    talk.end("abort", of=talk.producer_id + 77)


def nothing_is_begun(talk: Talk) -> None:
    talk.init()
    talk.end("commit")
    talk.end("abort")
    talk.end("abort", at=0)
    talk.end("commit")


def late_requests_of_the_transaction_before(talk: Talk) -> None:
    talk.init()
    talk.write()
    talk.end("commit")
    talk.write()
    talk.add(at=0)
    talk.write(at=0, sequence=1)
    talk.write(OLD, at=0, sequence=1)
    talk.end("abort", at=0)
    talk.end("abort", OLD_END, at=0)
    talk.end("commit")


def both_versions_one_after_the_other(talk: Talk) -> None:
    talk.init()
    talk.write()
    talk.end("commit", OLD_END)
    talk.end("commit", OLD_END)
    talk.end("commit", at=0)
    talk.add()
    talk.write(OLD)
    talk.end("commit")
    talk.write(OLD)
    talk.add()
    talk.write(OLD)
    talk.end("abort", OLD_END)
    talk.end("abort", OLD_END)
    talk.end("abort")
    talk.end("abort", OLD_END)


def sequences(talk: Talk) -> None:
    talk.init()
    talk.write(sequence=4)
    talk.write(sequence=0)
    talk.write(sequence=3)
    talk.write(sequence=1)
    talk.end("commit")
    talk.write(sequence=2)
    talk.write(sequence=0)
    talk.end("abort")
    talk.add()
    talk.write(OLD, sequence=2)
    talk.write(OLD, sequence=0)
    talk.end("commit")


def offsets(talk: Talk) -> None:
    group = "talks"
    talk.init()
    talk.offsets(4, group)
    talk.offsets(5, group)
    talk.write()
    talk.end("commit")
    talk.offsets(5, group, at=0)
    talk.offsets(4, group)
    talk.offsets(5, group)
    talk.end("abort")
    talk.add_offsets(group)
    talk.offsets(4, group)
    talk.end("commit")


def another_takes_the_id(talk: Talk) -> None:
    talk.init()
    talk.write()
    talk.init()
    talk.end("commit", at=0)
    talk.write(at=0, sequence=1)
    talk.write()
    talk.end("commit")


def a_producer_says_who_it_was(talk: Talk) -> None:
    talk.init()
    talk.write()
    talk.end("commit")
    talk.init(0)
    talk.init(1)
    talk.init(1)
    talk.init(0)
    talk.end("abort")
    talk.init(2)


def the_time_is_up(talk: Talk) -> None:
    talk.init()
    talk.write()
    talk.waits_for("CompleteAbort")
    talk.end("commit", at=0)
    talk.write(at=0, sequence=1)
    talk.end("abort")
    talk.write()
    talk.end("commit")


def strangers(talk: Talk) -> None:
    talk.init()
    talk.write(at=5)
    talk.write(OLD, at=5)
    talk.add(at=5)
    talk.end("abort", at=5)
    talk.write(3)
    talk.write()
    talk.end("commit")


def the_last_epoch(talk: Talk) -> None:
    talk.init()
    first = talk.producer_id
    talk.wind(32_765)
    talk.write()
    talk.end("commit")
    talk.write()
    talk.end("commit")
    talk.end("commit", at=32_766, of=first)
    talk.end("abort", at=32_766, of=first)
    talk.end("commit", at=32_765, of=first)
    talk.write()
    talk.end("abort")


def the_time_is_up_at_the_last_epoch(talk: Talk) -> None:
    talk.init()
    talk.wind(32_766)
    talk.write()
    talk.waits_for("CompleteAbort")
    talk.end("abort")
    talk.write()
    talk.end("commit")


TALKS: tuple[Callable[[Talk], None], ...] = (
    each_end_takes_an_epoch,
    nothing_is_begun,
    late_requests_of_the_transaction_before,
    both_versions_one_after_the_other,
    sequences,
    offsets,
    another_takes_the_id,
    a_producer_says_who_it_was,
    the_time_is_up,
    strangers,
)
LONG_TALKS = (the_last_epoch, the_time_is_up_at_the_last_epoch)
_SHORT_MS = 700
_SHORT = {the_time_is_up, the_time_is_up_at_the_last_epoch}
_SHOWN = 12


def held(bootstrap: str, talk: Callable[[Talk], None], make: Callable[[str], None]) -> str:
    """One talk, of an id and a topic that nobody had before; `make` makes the topic."""
    name = talk.__name__.replace("_", "-")
    topic = f"talk-{name}"
    make(topic)
    spoken = Talk(bootstrap, name, topic, _SHORT_MS if talk in _SHORT else 60_000)
    talk(spoken)
    spoken.logs(_SHOWN if talk in LONG_TALKS else 100)
    return "\n".join([f"{talk.__name__.replace('_', ' ')}", *spoken.lines, ""])
