"""`tidelog why txn`: what a transaction waits for, and who waits for it."""

import click

from tidelog.clients.admin.open_transactions import OpenTransaction
from tidelog.tools.commands.why_words import emit, say
from tidelog.tools.connecting import connected
from tidelog.tools.output import Command, Target, bootstrap_options, json_option, table
from tidelog.tools.transaction_look import known_transactions, now_ms, see
from tidelog.tools.transaction_reasons import (
    Ends,
    age_ms,
    of_transaction,
    verdict,
    waits_for,
)


@click.command(
    "txn",
    cls=Command,
    examples=("tidelog why txn billing-1", "tidelog why txn billing-1 --json"),
)
@click.argument("name", metavar="ID")
@bootstrap_options
@json_option
def txn(target: Target, *, name: str, as_json: bool) -> None:
    """Say what a transaction waits for, when it ends by itself, and what it holds up."""
    with connected(target) as client:
        (known,) = known_transactions(client, [name])
        seen = see(client, known)
    now = now_ms()
    reasons = of_transaction(seen, now, target.words)
    fine = f"transaction {name!r} {waits_for(known, now)}; nothing of it is open"
    rows = [_row(one, seen.ends.get(one.partition), now) for one in seen.open_here]
    if as_json:
        facts = {
            "transactional_id": name,
            "state": known.state,
            "producer_id": known.producer_id,
            "producer_epoch": known.producer_epoch,
            "timeout_ms": known.timeout_ms,
            "started_ms": known.started,
            "age_ms": age_ms(known, now),
            "coordinator": known.coordinator,
            "partitions": [{"topic": topic, "partition": at} for topic, at in known.partitions],
            "unseen": [{"topic": topic, "partition": at} for topic, at in seen.unseen],
            "open": rows,
        }
        emit(reasons, fine, facts)
        return
    say(reasons, fine)
    if rows:
        table([list(row.values()) for row in rows], _COLUMNS)


_COLUMNS = ("TOPIC", "PARTITION", "START OFFSET", "READERS GET TO", "END", "VERDICT")


def _row(one: OpenTransaction, ends: Ends | None, now: int) -> dict[str, object]:
    return {
        "topic": one.partition[0],
        "partition": one.partition[1],
        "start_offset": one.start,
        "stable_offset": None if ends is None else ends.stable,
        "end_offset": None if ends is None else ends.end,
        "verdict": verdict(one, now),
    }
