"""Patterns of topics: what Java's regular expressions mean, and what is refused."""

import pytest

from tidelog.spark.java_patterns import JavaPatternError, java_matcher

NAMES = ("a", "B", "tides", "Tides-1", "tides.eu_2", "42", "x.y", "_", "-", "a-b")


def matched(pattern: str) -> list[str]:
    fits = java_matcher(pattern)
    return [name for name in NAMES if fits(name)]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (r"\p{Lower}.*", ["a", "tides", "tides.eu_2", "x.y", "a-b"]),
        (r"\p{Lu}[\p{L}-]+\d", ["Tides-1"]),
        (r"\pL", ["a", "B"]),
        (r"\P{Alpha}+", ["42", "_", "-"]),
        (r"\p{IsAlphabetic}+", ["a", "B", "tides"]),
        (r"[\p{Punct}&&[^.]]", ["_", "-"]),
        (r"[a-z&&[^t]].*", ["a", "x.y", "a-b"]),
        (r"[ab[xy]]\.?.*", ["a", "x.y", "a-b"]),
        (r"\Qx.y\E|\Q-", ["x.y", "-"]),
        (r"(?<first>.)-b|\x61", ["a", "a-b"]),
        (r"(?i)TIDES.*", ["tides", "Tides-1", "tides.eu_2"]),
        (r"(?i:b)|(?i:A)", ["a", "B"]),
        (r"(?i)[^a-z].*", ["42", "_", "-"]),
        (r"tid(?>es|e)\z", ["tides"]),
        (r"[^\W\d].{0,1}+", ["a", "B", "_"]),
        (r"4(?=2).|\w-\w", ["42", "a-b"]),
    ],
)
def test_a_pattern_means_what_java_means_by_it(pattern: str, names: list[str]) -> None:
    assert matched(pattern) == names


def test_a_named_group_may_be_referred_to() -> None:
    fits = java_matcher(r"(?<half>.+)-\k<half>|(.)\2")
    assert [name for name in ("ab-ab", "ab-ba", "zz", "zy") if fits(name)] == ["ab-ab", "zz"]


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("(", "missing )"),
        ("*", "nothing to repeat"),
        ("[a", "it ends in the middle"),
        ("a\\", "it ends in the middle"),
        ("[]a]", "begins with ']' or is empty"),
        ("[a&&]", "begins with ']' or is empty"),
        ("a{,3}", "must begin a number of times"),
        ("a(?i)b", "the flags i and s may stand at the beginning"),
        ("(?x) a", "is not understood"),
        ("(?P<a>b)", "is not understood"),
        (r"\p{Klingon}", r"\p{Klingon} is not understood"),
        (r"\p{Lower", "a name must follow"),
        (r"\G", r"\G is not understood"),
        (r"\x4", "has 2 hexadecimal digits"),
        ("[z-a]", "a range must go from"),
        (r"[\Qa\E]", "in a class"),
        ("(?i)[a[b]]", "together with (?i)"),
        (r"(?i)\P{Lower}", "together with (?i)"),
        (r"(a)\11", "has one digit"),
        (r"(?<=a+)b", "look-behind requires fixed-width"),
    ],
)
def test_what_java_or_python_has_not_is_refused(pattern: str, says: str) -> None:
    with pytest.raises(JavaPatternError) as caught:
        java_matcher(pattern)
    assert says in str(caught.value)
