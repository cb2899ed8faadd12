"""Wrong requests of every API against a real cluster of three brokers, which must live on."""

import random
from pathlib import Path

import pytest

from harness.faults import fuzz_cluster
from harness.faults.fuzz_cluster import Attacked, WentWrong
from harness.faults.fuzz_frames import Said, shrunk
from harness.faults.fuzz_traffic import Traffic
from harness.faults.fuzz_values import Aims
from tidelog.wire.registry import MODULES, api_for

REQUESTS = 200_000
NIGHTLY = 10_000_000
SEED = 20_261_120
AIMS = Aims((("t", b"t" * 16),), ((("t", b"t" * 16, 0),), ()), (("g",), ("h",)), (("x",), ("y",)))


def traffic(seed: str) -> Traffic:
    apis = [api_for(key) for key in MODULES]
    return Traffic([(api, api.versions) for api in apis], AIMS, seed)


@pytest.mark.slow
@pytest.mark.timeout(14_400)
def test_no_request_ends_a_process_or_keeps_others_from_their_answers(
    tmp_path: Path, *, nightly: bool
) -> None:
    seed = random.randrange(2**32) if nightly else SEED
    figures = fuzz_cluster.run(tmp_path, seed, NIGHTLY if nightly else REQUESTS)
    print(seed, figures)  # noqa: T201 -- for whoever runs it by night, with -s
    assert figures.begun > figures.sent / 5
    assert figures.answers > figures.sent / 10


@pytest.mark.slow
def test_a_request_that_ends_a_broker_is_found_and_its_frames_are_kept(tmp_path: Path) -> None:
    """One that is planted: long names make member ids that no answer can carry."""
    planted = Attacked(program=("-m", "harness.faults.fuzz_plant"))
    with pytest.raises(WentWrong, match=r"broker-\d ended"):
        fuzz_cluster.run(tmp_path, SEED, REQUESTS, planted)
    kept = [path.read_text() for path in tmp_path.glob("*.frames")]
    assert any(kept)


def test_the_same_seed_says_the_same_whatever_is_answered() -> None:
    first, second = traffic("a"), traffic("a")
    second.learned.note(second.learned.members, "somebody")
    second.learned.note(second.learned.producers, (5, 0))
    said = [[len(one.burst(at % 2, 20)) for at in range(100)] for one in (first, second)]
    assert said[0] == said[1]
    assert first.random.getstate() == second.random.getstate()
    assert traffic("a").burst(0, 60) == traffic("a").burst(0, 60)


def test_every_api_is_asked_in_every_version() -> None:
    source = traffic("b")
    asked = {
        (int.from_bytes(frame[4:6], "big"), int.from_bytes(frame[6:8], "big"))
        for _ in range(20_000)
        for frame in [source.fresh()]
    }
    wanted = {(key, version) for key in MODULES for version in api_for(key).versions}
    assert wanted <= asked


def test_frames_are_made_few_as_long_as_they_do_harm() -> None:
    frames: list[Said] = [("c", 0, bytes([number])) for number in range(100)]

    def does_harm(some: object) -> bool:
        assert isinstance(some, list)
        return {frames[7], frames[80]} <= set(some)

    assert shrunk(frames, does_harm) == [frames[7], frames[80]]
