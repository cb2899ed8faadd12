"""How long a word of the transaction coordinator is good for, and how many are waited for."""

from tidelog.kernel.ids import Epoch
from tidelog.node.log.verifications import Verifications

LEADER = Epoch(3)


def test_all_who_ask_about_a_producer_and_its_epoch_wait_for_the_same() -> None:
    known = Verifications()
    first = known.begin(7, 0, 5, LEADER)
    assert known.begin(7, 0, 2, LEADER) is first
    assert known.begin(7, 0, 9, LEADER) is first
    assert first.sequence == 2, "none that comes later may be the first"
    assert known.begin(7, 1, 0, LEADER) is not first
    assert known.begin(8, 0, 0, LEADER) is not first
    assert len(known) == 3


def test_the_end_of_a_transaction_takes_away_what_was_said_of_its_producer() -> None:
    known = Verifications()
    mine, next_epoch, other = (known.begin(*who, 0, LEADER) for who in ((7, 0), (7, 1), (8, 0)))
    known.end(7)
    known.end(9)
    assert not known.holds(7, mine, LEADER)
    assert not known.holds(7, next_epoch, LEADER)
    assert known.holds(8, other, LEADER)
    assert len(known) == 1


def test_a_word_from_before_is_not_good_for_who_asks_behind_the_end() -> None:
    known = Verifications()
    before = known.begin(7, 0, 0, LEADER)
    known.end(7)
    again = known.begin(7, 0, 0, LEADER)
    assert not known.holds(7, before, LEADER)
    assert known.holds(7, again, LEADER)


def test_nor_is_one_under_another_leader_epoch() -> None:
    known = Verifications()
    before = known.begin(7, 0, 0, LEADER)
    assert not known.holds(7, before, Epoch(LEADER + 1))
    again = known.begin(7, 0, 0, Epoch(LEADER + 1))
    assert again is not before
    assert not known.holds(7, before, LEADER)
    assert len(known) == 1


def test_what_was_refused_is_forgotten_and_nothing_else() -> None:
    known = Verifications()
    refused, other = known.begin(7, 0, 0, LEADER), known.begin(7, 1, 0, LEADER)
    known.told(7, refused, granted=False)
    assert not known.holds(7, refused, LEADER)
    assert known.holds(7, other, LEADER)
    known.told(7, other, granted=False)
    assert len(known) == 0


def test_a_refusal_takes_nothing_away_from_who_asked_as_well() -> None:
    known = Verifications()
    late, first = known.begin(7, 0, 4, LEADER), known.begin(7, 0, 4, LEADER)
    known.told(7, late, granted=False)
    assert known.holds(7, first, LEADER)
    known.told(7, first, granted=True)
    again = known.begin(7, 0, 4, LEADER)
    known.told(7, again, granted=False)
    assert known.holds(7, first, LEADER)


def test_where_nobody_answers_it_is_known_who_asked_first() -> None:
    known = Verifications()
    first = known.begin(7, 0, 0, LEADER)
    known.told(7, first, granted=None)
    assert known.begin(7, 0, 5, LEADER) is first
    assert first.sequence == 0


def test_no_more_are_kept_than_that() -> None:
    known = Verifications(limit=3)
    asked = [known.begin(*who, 0, LEADER) for who in ((7, 0), (7, 1), (8, 0), (9, 0))]
    assert [known.holds(7 + at // 2, one, LEADER) for at, one in enumerate(asked[:3])] == [
        False,
        False,
        True,
    ], "all of who came first are asked about anew"
    assert known.holds(9, asked[3], LEADER)
    assert len(known) == 2
