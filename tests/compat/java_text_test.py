"""Bytes that need not be UTF-8, beside Java itself: the same text comes of them."""

import random
from pathlib import Path

import pytest

from harness.kafka.jars import run_source
from harness.suite.need import need
from tidelog.wire.java_text import java_text

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parents[1] / "harness" / "kafka" / "source" / "DecodeTexts.java"
TEXTS = 20_000
POOL = bytes.fromhex("41 80 8f 90 9f a0 bf c0 c2 df e0 e2 ed ef f0 f4 f5 ff")


def test_bytes_that_are_not_utf_8_become_the_text_that_java_makes_of_them() -> None:
    need("java")
    chance = random.Random(8)
    texts = [bytes(chance.choices(POOL, k=chance.randint(1, 7))) for _ in range(TEXTS)]
    asked = "\n".join(text.hex() for text in texts)
    done = run_source(PROGRAM, text=asked, classpath=".")
    assert done.stderr.count("rror") == 0, done.stderr
    found = [java_text(text).encode("utf-16-be").hex() for text in texts]
    assert found == done.stdout.splitlines()
