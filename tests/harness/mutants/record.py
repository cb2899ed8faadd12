"""What is known of the mutants of each function, and how a run compares with it.

`tests/mutants.json` has, for each function whose mutants were all tried: a digest of its text, the
tests that killed them, and the changes that no test notices. It is written by a command.
`tests/mutants_accepted.json` has the changes that may survive, each with its reason.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec

from harness.mutants.changes import Function
from harness.mutants.session import TESTS
from harness.mutants.trying import Mutant, Outcome

RECORD: Final = TESTS / "mutants.json"
ACCEPTED: Final = TESTS / "mutants_accepted.json"


class Known(msgspec.Struct, frozen=True, omit_defaults=True):
    """Of one function, when all its mutants were tried."""

    digest: str
    mutants: int
    killed_by: tuple[str, ...] = ()
    """The test that killed most of them first."""
    survivors: tuple[str, ...] = ()


class Record(msgspec.Struct, frozen=True):
    """Both tables, by the keys of the functions."""

    functions: dict[str, Known]
    accepted: dict[str, dict[str, str]]
    """By function and change: why it may survive."""

    @classmethod
    def read(cls, path: Path = RECORD, accepted: Path = ACCEPTED) -> "Record":
        return cls(
            msgspec.json.decode(path.read_bytes(), type=dict[str, Known]) if path.exists() else {},
            msgspec.json.decode(accepted.read_bytes(), type=dict[str, dict[str, str]])
            if accepted.exists()
            else {},
        )

    def write(self, path: Path = RECORD) -> None:
        """One line for each function, so that a change shows which one it is about."""
        lines = [
            f"{json.dumps(key)}: {json.dumps(msgspec.to_builtins(one))}"
            for key, one in sorted(self.functions.items())
        ]
        path.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")

    def is_clean(self, function: Function) -> bool:
        """Whether all mutants of the function, as its text is now, were killed or accepted."""
        known = self.functions.get(function.key)
        return (
            known is not None
            and known.digest == function.digest
            and not {*known.survivors} - self.accepted.get(function.key, {}).keys()
        )

    def is_accepted(self, mutant: Mutant) -> bool:
        return mutant.text in self.accepted.get(mutant.function.key, {})

    def tests_for(self, mutant: Mutant, reaching: Iterable[str]) -> list[str]:
        """First those that killed a mutant of this function before, then the others."""
        known = self.functions.get(mutant.function.key)
        return list(dict.fromkeys([*(known.killed_by if known else ()), *reaching]))

    def with_results(self, functions: Iterable[Function], results: Iterable[Outcome]) -> "Record":
        """The functions that are gone go, and those that were tried as they are now are new."""
        of: defaultdict[tuple[str, str], dict[str, Outcome]] = defaultdict(dict)
        for one in results:
            of[one.function, one.digest][one.change] = one
        known = {}
        for function in functions:
            tried = of.get((function.key, function.digest), {})
            if tried.keys() >= function.changes.keys():
                outcomes = [tried[text] for text in function.changes]
                known[function.key] = _known(function.digest, outcomes)
            elif function.key in self.functions:
                known[function.key] = self.functions[function.key]
        return Record(known, self.accepted)


def _known(digest: str, outcomes: list[Outcome]) -> Known:
    killers = Counter(one.killed_by for one in outcomes if one.killed_by)
    survivors = [one.change for one in outcomes if not one.killed_by]
    order = sorted(killers, key=lambda test: (-killers[test], test))
    return Known(digest, len(outcomes), tuple(order), tuple(survivors))


class Results:
    """The outcomes of a long run, a line each: a run that was interrupted goes on from them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # A run that was killed may have left a piece of a line: its mutant is tried again.
        text = path.read_bytes() if path.exists() else b""
        lines, self._torn = text.split(b"\n")[:-1], bool(text) and not text.endswith(b"\n")
        self.all = [one for one in map(_outcome_in, lines) if one is not None]
        self._tried = {(one.function, one.digest, one.change) for one in self.all}

    def has(self, mutant: Mutant) -> bool:
        return (mutant.function.key, mutant.function.digest, mutant.text) in self._tried

    def add(self, outcome: Outcome) -> None:
        self.all.append(outcome)
        self._tried.add((outcome.function, outcome.digest, outcome.change))
        with self._path.open("ab") as stream:
            stream.write(b"\n" * self._torn + msgspec.json.encode(outcome) + b"\n")
        self._torn = False


def _outcome_in(line: bytes) -> Outcome | None:
    try:
        return msgspec.json.decode(line, type=Outcome)
    except msgspec.DecodeError:
        return None
