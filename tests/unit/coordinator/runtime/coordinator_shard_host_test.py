"""The host of a shard: records first, replies once those are committed, in order."""

from dataclasses import dataclass, field

import pytest

from tidelog.kernel.ids import Offset, RequestId
from tidelog.kernel.instant import Instant
from tidelog.kernel.shard import Decision
from tidelog.node.runtime.shard_host import (
    AppendFailed,
    AppendRecords,
    GiveUpHeld,
    LogAppended,
    LogCommitted,
    LogGrown,
    Refusal,
    Reply,
    Requested,
    RequestFailed,
    Resign,
    ShardHost,
    Tick,
)
from tidelog.wire.errors import ErrorCode, Rejected

NOW = Instant(0)


@dataclass
class Words:
    """A shard that writes what it is told; "read" asks, "wait" is answered at the next expiry."""

    words: list[str] = field(default_factory=list)
    waiting: list[RequestId] = field(default_factory=list)

    def decide(self, now: Instant, asked: RequestId, request: str) -> Decision[str, str]:
        del now
        if request == "no":
            raise Rejected(ErrorCode.INVALID_REQUEST, "no")
        if request == "fail":
            raise KeyError(request)
        if request == "wait":
            self.waiting.append(asked)
            return Decision()
        if request == "read":
            return Decision((), ((asked, " ".join(self.words)),))
        return Decision(tuple(request.split()), ((asked, "ok"),))

    def expire(self, now: Instant) -> Decision[str, str]:
        del now
        waited, self.waiting = self.waiting, []
        return Decision((), tuple((asked, "waited") for asked in waited))

    def replay(self, record: str) -> None:
        if record == "broken":
            raise IndexError(record)
        self.words.append(record)

    def deadline(self) -> Instant | None:
        return Instant(5) if self.waiting else None


def asks(number: int, request: str) -> Requested[str]:
    return Requested(RequestId(number), request)


def says(number: int, reply: str) -> Reply[str]:
    return Reply(RequestId(number), reply)


def test_a_decision_is_appended_at_once_and_answered_when_it_is_committed() -> None:
    host = ShardHost(Words())
    assert host.step(NOW, asks(1, "a b")) == [AppendRecords(1, ("a", "b"))]
    assert host.step(NOW, LogAppended(1, Offset(2))) == []
    assert host.step(NOW, LogCommitted(Offset(2))) == [says(1, "ok")]


def test_the_next_decision_sees_what_is_not_committed_yet() -> None:
    shard = Words()
    host = ShardHost(shard)
    host.step(NOW, asks(1, "a"))
    assert shard.words == ["a"]


def test_what_was_read_is_told_only_when_what_it_came_from_is_committed() -> None:
    host = ShardHost(Words())
    host.step(NOW, asks(1, "a"))
    assert host.step(NOW, asks(2, "read")) == []
    host.step(NOW, LogAppended(1, Offset(1)))
    assert host.step(NOW, LogCommitted(Offset(1))) == [says(1, "ok"), says(2, "a")]


def test_with_nothing_to_wait_for_a_reply_goes_at_once() -> None:
    host = ShardHost(Words())
    assert host.step(NOW, asks(1, "read")) == [says(1, "")]


def test_a_refusal_waits_too_for_it_may_tell_of_what_is_not_committed() -> None:
    host = ShardHost(Words())
    host.step(NOW, asks(1, "a"))
    assert host.step(NOW, asks(2, "no")) == []
    host.step(NOW, LogAppended(1, Offset(1)))
    refusal: Reply[str] = Reply(RequestId(2), Refusal(ErrorCode.INVALID_REQUEST, "no"))
    assert host.step(NOW, LogCommitted(Offset(1))) == [says(1, "ok"), refusal]


def test_a_refusal_waits_for_what_nobody_asked_for() -> None:
    """What time brought about, or somebody else wrote, has no reply in front of the refusal."""
    refusal: Reply[str] = Reply(RequestId(1), Refusal(ErrorCode.INVALID_REQUEST, "no"))
    shard = Words()
    host = ShardHost(shard)
    shard.replay("a")
    host.step(NOW, LogGrown(Offset(1)))
    assert host.step(NOW, asks(1, "no")) == []
    assert host.step(NOW, LogCommitted(Offset(1))) == [refusal]


def test_a_commit_in_between_lets_only_the_earlier_replies_go() -> None:
    host = ShardHost(Words())
    host.step(NOW, asks(1, "a"))
    host.step(NOW, asks(2, "b c"))
    host.step(NOW, LogAppended(1, Offset(1)))
    host.step(NOW, LogAppended(2, Offset(3)))
    assert host.step(NOW, LogCommitted(Offset(2))) == [says(1, "ok")]
    assert host.step(NOW, LogCommitted(Offset(3))) == [says(2, "ok")]


def test_what_somebody_else_wrote_is_told_only_when_it_is_committed() -> None:
    shard = Words()
    host = ShardHost(shard)
    host.step(NOW, asks(1, "a"))
    host.step(NOW, LogAppended(1, Offset(1)))
    shard.replay("b")
    assert host.step(NOW, LogGrown(Offset(2))) == []
    assert host.step(NOW, asks(2, "read")) == []
    assert host.step(NOW, LogCommitted(Offset(1))) == [says(1, "ok")]
    assert host.step(NOW, LogCommitted(Offset(2))) == [says(2, "a b")]


def test_a_later_decision_answers_who_waited() -> None:
    host = ShardHost(Words())
    assert host.step(NOW, asks(1, "wait")) == []
    assert host.deadline() == 5
    assert host.step(Instant(5), Tick()) == [says(1, "waited")]


def test_a_failed_append_answers_everyone_and_ends_the_host() -> None:
    host = ShardHost(Words(), resigned=ErrorCode.NOT_CONTROLLER)
    host.step(NOW, asks(1, "wait"))
    host.step(NOW, asks(2, "a"))
    gone = Refusal(ErrorCode.NOT_CONTROLLER)
    assert host.step(NOW, AppendFailed("full")) == [
        Reply(RequestId(1), gone),
        Reply(RequestId(2), gone),
        Resign("full"),
    ]
    assert host.step(NOW, asks(3, "read")) == [Reply(RequestId(3), gone)]
    assert host.step(NOW, Tick()) == []
    assert host.deadline() is None


def test_who_waits_too_long_for_a_commit_is_told_so_and_what_was_decided_stays() -> None:
    shard = Words()
    host = ShardHost(shard)
    host.step(NOW, asks(1, "a"))
    host.step(NOW, asks(2, "wait"))
    gave_up = host.step(NOW, GiveUpHeld(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert gave_up == [Reply(RequestId(1), Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE))]
    assert shard.words == ["a"]
    host.step(NOW, LogAppended(1, Offset(1)))
    assert host.step(NOW, LogCommitted(Offset(1))) == []
    assert host.step(NOW, Tick()) == [says(2, "waited")]


def test_a_request_that_the_shard_fails_at_is_refused_and_others_go_on() -> None:
    host = ShardHost(Words())
    failed, reply = host.step(NOW, asks(1, "fail"))
    assert isinstance(failed, RequestFailed)
    assert "KeyError('fail')" in failed.reason
    assert isinstance(reply, Reply)
    assert isinstance(reply.reply, Refusal)
    assert (reply.asked, reply.reply.code) == (1, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert host.step(NOW, asks(2, "read")) == [Reply(RequestId(2), "")]


def test_a_request_that_fails_is_told_behind_what_was_decided_before() -> None:
    host = ShardHost(Words())
    host.step(NOW, asks(1, "a"))
    (failed,) = host.step(NOW, asks(2, "fail"))
    assert isinstance(failed, RequestFailed)
    host.step(NOW, LogAppended(1, Offset(1)))
    first, second = host.step(NOW, LogCommitted(Offset(1)))
    assert first == Reply(RequestId(1), "ok")
    assert isinstance(second, Reply)
    assert second.asked == 2


def test_a_replay_that_fails_is_a_fault_in_our_own_state() -> None:
    host = ShardHost(Words())
    with pytest.raises(AssertionError, match="IndexError"):
        host.step(NOW, asks(1, "whole broken"))


def test_a_fault_in_what_no_client_asks_ends_the_process() -> None:
    """Refused, it would be passed over: there is nobody who asks again."""
    host = ShardHost(Words())
    with pytest.raises(AssertionError, match="str failed: KeyError"):
        host.step(NOW, Requested(RequestId(1), "fail", is_ours=True))
