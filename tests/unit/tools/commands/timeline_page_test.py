"""A timeline's page shows what came from outside as text, never as markup."""

from tidelog.tools.timeline import Entry, of_partition
from tidelog.tools.timeline_page import page, said

ID = "CxTs9jyILyGwLT5ocZYHGA"


def entry(process: str, event: str, partition: int = 0, **fields: object) -> Entry:
    topic_id = ID if partition >= 0 else ""
    at = f"2026-01-31T00:00:00.{len(fields):06d}Z"
    return Entry(at, process, 1, 1, event, partition, topic_id, "", fields)


def test_a_title_is_escaped() -> None:
    text = page("<script>:0", [entry("broker-1", "isr_changed", isr=[0, 1], elr=[])])
    assert "<script>" not in text
    assert "&lt;script&gt;:0" in text
    assert "<b>isr changed</b>isr=0,1 elr=-" in text


def test_fields_are_told_in_their_order() -> None:
    assert said(entry("broker-1", "truncated", **{"from": 9, "to": 3})) == "from=9 to=3"


def test_a_partition_is_told_of_its_own_brokers_only() -> None:
    created = entry("coordinator-0", "created", replicas=[0, 1])
    own = entry("supervisor-0", "hung", -1, broker=1, life=2)
    strange = entry("supervisor-0", "hung", -1, broker=2, life=2)
    assert of_partition([created, own, strange], ID, 0) == [created, own]
    assert of_partition([created], ID, 1) == []
