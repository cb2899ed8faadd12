"""subscribePattern beside java.util.regex itself: drawn patterns match the same topics."""

import random
from pathlib import Path

import pytest

from harness.kafka.jars import run_source
from harness.suite.need import need
from tidelog.spark.java_patterns import JavaPatternError, java_matcher

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parents[1] / "harness" / "kafka" / "source" / "MatchTopics.java"
PATTERNS = 4_000
NAMES = (
    *("a", "b", "B", "ab", "aB", "Ab", "ba", "aab", "a1", "1", "12", "a.b", "a_b", "a-b", "abba"),
    *("x-", "-x", "_", "__a", "A.B-C_1", "topic", "Topic-2", "tides.eu", "zz", "Z", "a" * 20),
)
ATOMS = (
    *("a", "b", "B", "x", "1", ".", "-", "_", "Z", "]", "}", "{"),
    *(r"\.", r"\-", r"\_", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\h", r"\V", r"\b", r"\B"),
    *(r"\A", r"\z", r"\Z", r"\x61", r"\u0042", r"\Qa.b\E", r"\Q", r"\E", r"\1", r"\G", r"\t"),
    *(r"\p{Lower}", r"\p{Upper}", r"\p{Alnum}", r"\p{Punct}", r"\P{Digit}", r"\p{Lu}", r"\pL"),
    *(r"\p{IsLu}", r"\p{javaLowerCase}", r"\P{IsAlphabetic}", r"\p{Nope}", r"\y", r"\cA", r"\R"),
    *("^", "$", "&&", ",", " ", "é", "|", ""),
)
IN_CLASS = (
    *("a", "b-x", "0-9", "A-Z", ".", "_", "-", "^", "&", "&&", "[", "z-a", r"\d", r"\W", r"\]"),
    *(r"\p{Upper}", r"\P{Lower}", r"\p{P}", r"\-", "[b-y]", "&&[^b]", "a-", "x&&y", r"\x41", "é"),
)
QUANTIFIERS = (
    "",
    "",
    "",
    "*",
    "+",
    "?",
    "*?",
    "++",
    "?+",
    "{2}",
    "{1,2}",
    "{0,}",
    "{,2}",
    "{1",
    "**",
)
GROUPS = (
    "(",
    "(?:",
    "(?=",
    "(?!",
    "(?>",
    "(?<n>",
    "(?i:",
    "(?i)",
    "(?x)",
    "(?-i:",
    "(?<=",
    "(?P<n>",
)
LEADING = ("", "", "", "", "(?i)", "(?s)", "(?is)", "(?m)", "(?u)")


def drawn(chance: random.Random, depth: int = 2) -> str:
    parts = []
    for _ in range(chance.randint(1, 4)):
        kind = chance.random()
        if kind < 0.2 and depth:
            part = f"{chance.choice(GROUPS)}{drawn(chance, depth - 1)})"
        elif kind < 0.45:
            members = "".join(chance.choices(IN_CLASS, k=chance.randint(0, 3)))
            part = f"[{chance.choice(('', '', '^'))}{members}]"
        else:
            part = chance.choice(ATOMS)
        parts.append(part + chance.choice(QUANTIFIERS))
    return "".join(parts)


def ours(pattern: str) -> str:
    try:
        fits = java_matcher(pattern)
    except JavaPatternError:
        return "refused"
    return "".join("1" if fits(name) else "0" for name in NAMES)


def test_a_pattern_matches_what_it_matches_in_java_or_is_refused() -> None:
    need("java")
    chance = random.Random(19)
    patterns = [chance.choice(LEADING) + drawn(chance) for _ in range(PATTERNS)]
    asked = "\n".join([" ".join(NAMES), *patterns]) + "\n"
    done = run_source(PROGRAM, text=asked, classpath=".")
    said = done.stdout.splitlines()
    assert len(said) == len(patterns), done.stderr
    differ = []
    understood = 0
    for pattern, java in zip(patterns, said, strict=True):
        found = ours(pattern)
        understood += found != "refused"
        if found not in {java, "refused"}:
            differ.append((pattern, java, found))
    assert differ == []
    accepted = sum(one != "refused" for one in said)
    assert understood > accepted // 2, f"{understood} of the {accepted} that Java takes"
