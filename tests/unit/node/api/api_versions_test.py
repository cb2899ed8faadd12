"""ApiVersions against the routes: what a broker says it serves, and what it serves."""

from pathlib import Path

import pytest

from harness.machines.brokers import HandlerBench
from tidelog.node.metadata.features import TRANSACTION_VERSION
from tidelog.wire.messages import k18_api_versions
from tidelog.wire.metadata_records import FeatureChanged


@pytest.fixture
def bench(tmp_path: Path) -> HandlerBench:
    return HandlerBench(tmp_path / "log0")


@pytest.mark.parametrize("version", range(5))
def test_api_versions_tells_exactly_the_routes(bench: HandlerBench, version: int) -> None:
    request = k18_api_versions.ApiVersionsRequest(
        client_software_name="a-b.c", client_software_version="1.0"
    )
    answer = bench.ask(k18_api_versions.API, version, request)
    told = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert told == {
        0: (0, 13),
        1: (4, 18),
        2: (1, 11),
        3: (0, 13),
        8: (2, 10),
        9: (1, 10),
        10: (0, 6),
        11: (0, 9),
        12: (0, 4),
        13: (0, 5),
        14: (0, 5),
        15: (0, 6),
        16: (0, 5),
        18: (0, 4),
        19: (2, 7),
        20: (1, 6),
        21: (0, 2),
        22: (0, 5),
        23: (2, 4),
        24: (0, 3),
        25: (0, 4),
        26: (0, 5),
        27: (1, 1),
        28: (0, 5),
        29: (1, 3),
        30: (1, 3),
        31: (1, 3),
        32: (1, 4),
        33: (0, 2),
        34: (1, 2),
        35: (1, 5),
        37: (0, 3),
        42: (0, 2),
        43: (0, 2),
        44: (0, 1),
        45: (0, 1),
        46: (0, 0),
        47: (0, 0),
        55: (0, 2),
        57: (0, 2),
        60: (0, 2),
        61: (0, 0),
        64: (0, 0),
        65: (0, 0),
        66: (0, 2),
        68: (0, 1),
        69: (0, 1),
        74: (0, 1),
        75: (0, 0),
    }


def test_a_feature_at_its_lowest_level_is_not_there(bench: HandlerBench) -> None:
    """Java clients before 4.0 do not take a lowest level of 0."""
    request = k18_api_versions.ApiVersionsRequest(
        client_software_name="a", client_software_version="1"
    )
    for level, told in ((1, {TRANSACTION_VERSION: 1}), (0, {})):
        bench.replay(FeatureChanged(TRANSACTION_VERSION, level))
        for version in (3, 4):
            answer = bench.ask(k18_api_versions.API, version, request)
            names = {row.name: row.min_version for row in answer.supported_features}
            assert (TRANSACTION_VERSION in names) == (version == 4)
            levels = {row.name: row.max_version_level for row in answer.finalized_features}
            assert levels == told
