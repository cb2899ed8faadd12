"""Whatever a process of this user writes to the supervisor's socket, the supervisor lives."""

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from harness.machines.desk import Office

WORDS = (
    *("status", "watch", "wait", "down", "start", "stop", "kill", "pause", "resume", "add"),
    *("remove", "restart", "power-loss", "power-back"),
)
ROLES = ("broker", "coordinator", "standby", "transaction-coordinator", "supervisor", "none")
FIELDS = ("role", "id", "ids", "all", "force", "sync", "timeout_s", "do", "else")

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-2, 4)
    | st.integers()
    | st.floats()
    | st.sampled_from(ROLES)
    | st.text(max_size=5)
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
requests = st.builds(
    lambda word, fields: {**fields, "do": word},
    st.sampled_from(WORDS),
    st.dictionaries(st.sampled_from(FIELDS), values, max_size=4),
)
lines = (
    requests.map(json.dumps).map(str.encode)
    | requests.map(json.dumps).map(str.encode)
    | requests.map(json.dumps).map(str.encode)
    | values.map(json.dumps).map(str.encode)
    | st.binary(max_size=40).map(lambda data: data.replace(b"\n", b""))
    | st.integers(0, 200_000).map(lambda size: b"[" * size)
)


@example([b'{"do":"power-loss","ids":5}'], 100, b"\n")
@given(
    st.lists(lines, min_size=1, max_size=8), st.integers(1, 100_000), st.sampled_from((b"", b"\n"))
)
def test_odd_requests_are_answered_and_the_next_one_is_served(
    sent: list[bytes], piece: int, end: bytes
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        office = Office(Path(folder))
        stream = office.connect()
        data = b"\n".join(sent) + end
        piece = max(piece, len(data) // 20)
        for start in range(0, len(data), piece):
            office.send(stream, data[start : start + piece])
        answers: list[dict[str, Any]] = office.heard(stream)
        assert not [one for one in answers if "bug" in str(one.get("error"))]
        later = office.connect()
        office.send(later, b'{"do":"status"}\n')
        assert office.heard(later) == [{"ok": True, "status": {"state": "running"}}]
        office.close()
