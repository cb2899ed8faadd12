"""The tables of docs/groups.md are those that the code has: states, moves, triggers."""

import random
import re

import pytest

from harness.machines.consumer_groups import Client, GroupOverLog, TopicsInMemory
from harness.suite.tidy_checks import ROOT
from tidelog.node.groups.classic_states import TRANSITIONS, Phase
from tidelog.node.groups.consumer_member import Member, reconciled
from tidelog.node.groups.history import Trigger
from tidelog.node.groups.records_consumer import MemberState

PAGE = (ROOT / "docs" / "groups.md").read_text(encoding="utf-8")
Move = tuple[str, str]


def rows(head: str, number: int = 0) -> list[list[str]]:
    """Of the so-manieth table that begins so."""
    found = [part for part in PAGE.split("\n\n") if part.startswith(f"| {head}")]
    lines = found[number].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def moves(number: int, names: dict[str, list[str]]) -> set[Move]:
    """What the so-manieth table of moves allows; a word may stand for several states."""
    return {
        (start, end)
        for starts, ends, _ in rows("from | to", number)
        for one in re.split(", ", starts)
        for other in re.split(", ", ends)
        for start in names.get(one, [one])
        for end in names.get(other, [other])
    }


def test_the_states_of_a_classic_group_are_those_of_the_page() -> None:
    assert [row[0] for row in rows("state | means")] == [phase.value for phase in Phase]
    allowed = {(start.value, end.value) for start, ends in TRANSITIONS.items() for end in ends}
    assert moves(0, {}) == allowed


def test_the_triggers_are_those_of_the_page() -> None:
    assert {row[0] for row in rows("trigger |")} == set(Trigger)


def test_the_states_of_a_member_of_the_consumer_protocol_are_those_of_the_page() -> None:
    assert [row[0] for row in rows("state of a member")] == [state.name for state in MemberState]


def test_members_of_the_consumer_protocol_move_as_the_page_says_and_in_no_other_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: set[Move] = set()

    def watched(member: Member, **around: object) -> Member:
        after = reconciled(member, **around)  # type: ignore[arg-type]  # as they came
        if after is not member:
            seen.add((member.state.name, after.state.name))
        return after

    monkeypatch.setattr("tidelog.node.groups.consumer.reconciled", watched)
    for seed in range(60):
        wander(random.Random(seed))
    states = [state.name for state in MemberState]
    allowed = {move for move in moves(1, {"any": states}) if move[1] != "out"}
    stays = {(state, state) for state in states}
    assert seen - stays <= allowed
    assert allowed - stays <= seen, "what the page says happens"


def wander(rng: random.Random) -> None:
    """Members come, beat and go, and topics grow."""
    group = GroupOverLog(TopicsInMemory(t=4))
    clients: list[Client] = []
    for number in range(60):
        if rng.random() < 0.15 and len(clients) < 4:
            clients.append(Client(group, f"m{number}", "t"))
        if rng.random() < 0.15:
            group.topics.set(t=min(group.topics.sizes["t"] + 1, 9))
        if rng.random() < 0.15 and clients:
            go(clients.pop(rng.randrange(len(clients))))
        if clients:
            rng.choice(clients).beat()


def go(client: Client) -> None:
    if client.epoch > 0:
        client.leave()
