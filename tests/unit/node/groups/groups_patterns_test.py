"""Subscription patterns: what they match, what they refuse, and that no expression blows up."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.node.groups.pattern_syntax import Alphabet, PatternError
from tidelog.node.groups.patterns import Pattern

NAMES = ["a", "b", "ab", "aab", "abc", "orders", "orders-eu", "Orders.1", "x_y", "__a", "a" * 249]


@pytest.mark.parametrize(
    ("text", "matched"),
    [
        ("a", {"a"}),
        ("a|b", {"a", "b"}),
        ("a*b", {"b", "ab", "aab"}),
        ("(?:a)+b?", {"a", "ab", "aab", "a" * 249}),
        ("orders.*", {"orders", "orders-eu"}),
        ("(?i)orders.*", {"orders", "orders-eu", "Orders.1"}),
        ("(?i:o)rders", {"orders"}),
        ("^orders$", {"orders"}),
        (r"\Aorders\z", {"orders"}),
        ("(^|x)a($|y)", {"a"}),
        ("a^b", set()),
        ("$a", set()),
        ("[^a-z].*", {"Orders.1", "__a"}),
        (r"\w+\.\d", {"Orders.1"}),
        (r"[[:upper:]][[:^digit:]]+\pN", {"Orders.1"}),
        (r"\p{Lu}.*|\P{L}+a", {"Orders.1", "__a"}),
        (r"\Qx_\Ey", {"x_y"}),
        (r"\x61b\x{63}", {"abc"}),
        ("a{2}b", {"aab"}),
        ("a{249}", {"a" * 249}),
        ("a{1,2}b{0,1}", {"a", "ab", "aab"}),
        ("(?P<first>a)(?<second>b)", {"ab"}),
        ("[]a]", {"a"}),
        ("x[-_]y", {"x_y"}),
        ("orders[_-]eu", {"orders-eu"}),
        ("[a-a]b", {"ab"}),
        ("", set()),
        ("é|a", {"a"}),
    ],
)
def test_a_whole_name_matches_or_does_not(text: str, matched: set[str]) -> None:
    pattern = Pattern(text)
    assert {name for name in NAMES if pattern.matches(name)} == matched


IDS = ["app:0/1", "app 1", "Äpfel", "äpfel", "Лидия", "x\ty", "app-0_1"]


@pytest.mark.parametrize(
    ("text", "matched"),
    [
        ("app.*", {"app:0/1", "app 1", "app-0_1"}),
        (r"app\W.*", {"app:0/1", "app 1", "app-0_1"}),
        (r"app\s1", {"app 1"}),
        (r"x[[:blank:]]y", {"x\ty"}),
        (r"[^[:ascii:]].*", {"Äpfel", "äpfel", "Лидия"}),
        (r"\p{Latin}+", {"Äpfel", "äpfel"}),
        (r"\p{Lu}\pL*", {"Äpfel", "Лидия"}),
        ("(?i)ÄPFEL", {"Äpfel", "äpfel"}),
        ("[д-яД-Я]+", {"Лидия"}),
        ("app[:-;]0/1", {"app:0/1"}),
        (r"app\PL.*", {"app:0/1", "app 1", "app-0_1"}),
        ("[[:punct:][:alnum:]]+", {"app:0/1", "app-0_1"}),
    ],
)
def test_names_may_be_of_any_alphabet(text: str, matched: set[str]) -> None:
    pattern = Pattern(text, Alphabet.of(IDS))
    assert {name for name in IDS if pattern.matches(name)} == matched


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(a", "no ')'"),
        ("a)", "unexpected ')'"),
        ("*a", "nothing before '*'"),
        ("a**", "repetition repeated"),
        ("[a", "no ']'"),
        ("[b-a]", "runs backwards"),
        ("a\\", "ends within an escape"),
        (r"(a)\1", "not supported"),
        (r"\ba", "not supported"),
        ("(?=a)", "not supported"),
        (r"\p{Greek}", "not supported"),
        ("[[:nothing:]]", "no class"),
        ("a{2,1}", "no count"),
        ("a{1001}", "no count"),
        ("(?P<a", "name"),
        (r"\xZZ", "no character"),
        ("(a{100}){100}", "more than 500 characters"),
        ("((){1000}){1000}", "parts"),
        ("(" * 200 + ")" * 200, "deep"),
        ("a" * 1001, "1001 characters"),
    ],
)
def test_what_is_no_expression_is_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(PatternError, match=re.escape(reason)):
        Pattern(text)


EXPRESSIONS = st.recursive(
    st.sampled_from(["a", "b", ".", "[ab]", "[^a]", "^", "$", r"\d", "c?"]),
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{0,2}", "{2}"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
    ),
    max_leaves=8,
)


@given(EXPRESSIONS, st.lists(st.text("abc1", max_size=6), max_size=6))
def test_it_matches_what_a_backtracking_matcher_matches(text: str, names: list[str]) -> None:
    pattern = Pattern(text)
    for name in names:
        if name:
            expected = re.fullmatch(text.replace("$", r"\Z"), name) is not None
            assert pattern.matches(name) == expected, (text, name)


def test_what_blows_up_a_backtracking_matcher_takes_steps_as_long_as_the_name() -> None:
    pattern = Pattern("(?:a|a)*(?:a|aa)*(?:a*)*(?:a?){50}b")
    assert not pattern.matches("a" * 249)
    assert pattern.matches("a" * 248 + "b")


def test_moves_that_are_kept_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelog.node.groups.patterns.MOVES_KEPT_MAX", 4)
    pattern = Pattern("[a-z]*x[0-9]*")
    assert pattern.matches("abcdefghx0123456789")
    assert not pattern.matches("abcdefgh0123456789")
