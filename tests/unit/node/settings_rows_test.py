"""Rows of settings: what they take, what they refuse, and what the refusal says."""

import pytest

from tidelog.kernel.config import (
    Setting,
    SettingError,
    Table,
    boolean,
    integer,
    list_of,
    number,
    one_of,
    one_of_any_case,
    or_unset,
    some_text,
    text,
    words_of,
)
from tidelog.node.settings import BROKER

SIZE = Setting("segment.bytes", integer(1, 10), "5", "must be from 1 to 10", "Size.", "int")
POLICY = Setting("flush.policy", one_of("os", "commit"), "os", "must be os or commit", "When.")
TABLE = Table([SIZE, POLICY])


def test_a_value_that_breaks_its_rule_is_told_setting_value_and_rule() -> None:
    with pytest.raises(SettingError) as refused:
        TABLE.check("segment.bytes", "11")
    assert str(refused.value) == "segment.bytes='11': must be from 1 to 10"


def test_an_unknown_name_is_told_its_nearest_neighbour() -> None:
    with pytest.raises(SettingError) as refused:
        TABLE.check("segment.byte", "5")
    assert str(refused.value) == "unknown setting 'segment.byte'; did you mean 'segment.bytes'?"


def test_a_name_like_no_other_is_told_no_neighbour() -> None:
    with pytest.raises(SettingError) as refused:
        TABLE.check("zzz", "5")
    assert str(refused.value) == "unknown setting 'zzz'"


def test_what_is_given_wins_over_the_default() -> None:
    assert TABLE.read({"segment.bytes": "7"}, "segment.bytes") == 7
    assert TABLE.read({}, "segment.bytes") == 5
    assert "flush.policy" in TABLE
    assert "flush" not in TABLE


def test_a_default_that_breaks_its_own_rule_is_found_when_the_table_is_made() -> None:
    with pytest.raises(SettingError):
        Table([Setting("a", integer(1, 2), "3", "must be 1 or 2", "Wrong.")])


def test_a_setting_may_stand_only_once_in_a_table() -> None:
    with pytest.raises(AssertionError):
        Table([SIZE, SIZE])


@pytest.mark.parametrize(("given", "taken"), [("true", True), (" False ", False), ("TRUE", True)])
def test_a_boolean_is_true_or_false_in_any_case(given: str, taken: bool) -> None:  # noqa: FBT001 -- the case's value
    assert boolean(given) is taken


@pytest.mark.parametrize("given", ["yes", "1", "on"])
def test_a_boolean_is_nothing_else(given: str) -> None:
    with pytest.raises(ValueError, match=given):
        boolean(given)


def test_a_whole_number_keeps_its_bounds_which_are_both_included() -> None:
    parse = integer(-1, 3)
    assert [parse(given) for given in ("-1", " 3 ")] == [-1, 3]
    for given in ("-2", "4", "1.5", "one", "", "1_0", "\N{ARABIC-INDIC DIGIT THREE}"):
        with pytest.raises(ValueError, match=r".*"):
            parse(given)


@pytest.mark.parametrize("given", ["-0.1", "1.1", "nan", "half", "0_1", ""])
def test_a_ratio_out_of_bounds_is_refused(given: str) -> None:
    assert number(0, 1)("0.5") == 0.5
    with pytest.raises(ValueError, match=r".*"):
        number(0, 1)(given)


def test_a_list_takes_known_words_only_and_trims_them() -> None:
    parse = words_of("delete", "compact")
    assert parse("compact, delete") == ("compact", "delete")
    assert parse("") == ()
    for given in ("compress", "delete,delete", "delete,", ","):
        with pytest.raises(ValueError, match=given):
            parse(given)


def test_a_list_may_want_an_entry_at_least() -> None:
    parse = list_of(str.islower, empty=False)
    assert parse("b, a") == ("b", "a")
    for given in ("", " ", "a,B"):
        with pytest.raises(ValueError, match=f"^{given}$"):
            parse(given)


def test_words_may_be_known_in_any_case_and_stay_as_they_were_given() -> None:
    parse = one_of_any_case("up", "down")
    assert parse("Up") == "Up"
    with pytest.raises(ValueError, match="UPP"):
        parse("UPP")


def test_a_setting_without_a_value_is_left_out_not_given_empty() -> None:
    lag = Setting(
        "lag", or_unset(integer(0, 9)), "", "must be from 0 to 9", "L.", "int", unset=True
    )
    rack = Setting("rack", or_unset(text), "", "may be any text", "Where.", unset=True)
    table = Table([lag, rack])
    assert table.read({}, "lag") is None
    assert table.check("rack", "") is None
    with pytest.raises(SettingError, match="leaves it out"):
        table.check("lag", "")


def test_free_text_is_taken_as_it_is() -> None:
    assert text(" a b ") == some_text(" a b ") == " a b "
    with pytest.raises(ValueError, match=r"^ $"):
        some_text(" ")


def test_rows_without_effect_are_made_only_when_one_is_asked_for() -> None:
    made: list[int] = []

    def more() -> list[Setting]:
        made.append(1)
        return [POLICY]

    table = Table([SIZE], more)
    table.check("segment.bytes", "5")
    assert made == []
    assert table.check("flush.policy", "commit") == "commit"
    assert "flush.policy" in table
    assert made == [1]


def test_every_broker_key_of_kafka_takes_its_own_default() -> None:
    rows = BROKER.all_rows()
    assert len(rows) >= 335
    assert not rows["num.io.threads"].effect
    for row in rows.values():
        row.read(row.default)


def test_a_value_kafka_would_refuse_is_refused_also_where_it_has_no_effect() -> None:
    with pytest.raises(SettingError):
        BROKER.check("num.io.threads", "0")
    with pytest.raises(SettingError):
        BROKER.check("security.inter.broker.protocol", "CARRIER_PIGEON")
