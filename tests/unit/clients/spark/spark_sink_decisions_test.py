"""What an exactly-once sink decides, given its markers and what its tasks say."""

from dataclasses import replace

import pytest

from tidelog.clients.producer.sender import Identity
from tidelog.clients.producer.transactional import OpenTransaction
from tidelog.spark.sink_decisions import (
    RENEWED_AFTER_MS,
    Batch,
    Rules,
    check_committed,
    check_no_part_written,
    check_permit,
    check_same,
    decide,
    must_renew,
    part_is_written,
    parts_known,
    whole_is_written,
)
from tidelog.spark.sink_markers import Ending, PartMarker, Rows, SinkMarker
from tidelog.spark.sink_permits import NEVER_REPLACED
from tidelog.spark.tasks import Kept, Open, SinkError, TaskInfo, Total, Written

RULES = Rules("s")
JOB = Rules("j", is_job=True)
KEEPS = Rules("s", keeps_other_rows=True)
FORGETS = Rules("s", writes_without_marker=True)
N = 7
NOW = 1_700_000_000_000
MINE = Total(5, 11)
OTHER = Total(5, 12)
OLD = Total(5, None)


def task(part: int = 0, batch: int = N, query: str = "q") -> TaskInfo:
    return TaskInfo(query, batch, part)


def opened(part: int, began_ms: int = 0, total: Total = MINE) -> Written:
    transaction = OpenTransaction(f"s/{part}", Identity(part, 0), takes_epochs=True)
    return Written(part, total.rows, total=total, open=Open(transaction, began_ms))


def skipped(part: int, kept: Total | None = MINE, total: Total = MINE) -> Written:
    return Written(part, 0, skipped=True, total=total, kept=Kept(kept))


def complete(batch: int, total: Total = MINE, plan: str | None = None) -> SinkMarker:
    return SinkMarker(batch + 1, "q", 2, Rows(batch, total, plan))


def ending(batch: int, parts: int = 2, known: int = 2) -> SinkMarker:
    return SinkMarker(batch, "q", known, Rows(batch - 1, MINE), Ending(Rows(batch, MINE), parts))


class TestATask:
    @pytest.mark.parametrize(
        ("part", "sink", "is_written"),
        [
            (PartMarker(N, "q", MINE), complete(N - 1), False),
            (PartMarker(N + 1, "q", MINE), ending(N), True),
            (PartMarker(N, "q", MINE), ending(N), False),
            (PartMarker(N + 1, "q", MINE), None, True),
            # The sink's own marker counts where it is ahead, as after exactly-once-atomic.
            (PartMarker(3, "q", MINE), complete(N), True),
            (None, complete(N), True),
            (None, complete(N - 1), False),
        ],
    )
    def test_is_skipped_if_either_marker_says_that_its_rows_are_there(
        self, part: PartMarker | None, sink: SinkMarker | None, *, is_written: bool
    ) -> None:
        assert part_is_written(RULES, task(), part, sink) is is_written

    def test_begins_with_the_present_permit_or_where_none_is_known(self) -> None:
        check_permit(RULES, task(), Identity(1, 2))
        check_permit(RULES, replace(task(), permit=Identity(1, 2)), Identity(1, 2))

    @pytest.mark.parametrize("now", [Identity(1, 3), Identity(2, 2)])
    def test_is_refused_once_its_permit_was_replaced(self, now: Identity) -> None:
        late = replace(task(3), permit=Identity(1, 2))
        with pytest.raises(SinkError, match=f"gave micro-batch {N} up before task 3 began"):
            check_permit(RULES, late, now)

    def test_begins_if_the_coordinator_has_forgotten_its_permit(self) -> None:
        """An id that is not used for a week expires: while a query runs that failed before."""
        check_permit(RULES, replace(task(), permit=Identity(1, 2)), NEVER_REPLACED)

    def test_is_refused_if_a_permit_was_made_since_its_job_was_planned(self) -> None:
        with pytest.raises(SinkError, match="gave micro-batch"):
            check_permit(RULES, replace(task(), permit=NEVER_REPLACED), Identity(1, 0))

    def test_of_a_new_sink_is_written(self) -> None:
        assert not part_is_written(RULES, task(batch=0), None, None)

    @pytest.mark.parametrize(
        ("part", "sink"),
        [(PartMarker(N + 2, "q", MINE), None), (None, complete(N + 1)), (None, ending(N + 2))],
    )
    def test_of_an_older_checkpoint_is_refused(
        self, part: PartMarker | None, sink: SinkMarker | None
    ) -> None:
        with pytest.raises(SinkError, match="the checkpoint is older than the sink"):
            part_is_written(RULES, task(), part, sink)

    @pytest.mark.parametrize("batch", [N - 1, N, N + 1])
    def test_of_another_query_is_refused_whatever_the_number(self, batch: int) -> None:
        for part, sink in ((PartMarker(N, "p", MINE), None), (None, complete(N - 1))):
            with pytest.raises(SinkError, match="and this is query other"):
                part_is_written(RULES, task(batch=batch, query="other"), part, sink)

    @pytest.mark.parametrize("offset", [N, N + 1, N + 2])
    def test_is_refused_if_another_program_has_committed_in_place_of_a_marker(
        self, offset: int
    ) -> None:
        """As the offsets of a consumer group with the name of the sink would be."""
        pairs: list[tuple[PartMarker | None, SinkMarker | None]] = [
            (PartMarker(offset, is_foreign=True), complete(N - 1)),
            (PartMarker(N, "q", MINE), SinkMarker(offset, is_foreign=True)),
        ]
        for rules in (RULES, KEEPS, FORGETS):
            for part, sink in pairs:
                with pytest.raises(SinkError, match="another program commits offsets"):
                    part_is_written(rules, task(), part, sink)

    @pytest.mark.parametrize(
        ("sink", "part", "is_refused"),
        [
            (None, 0, True),
            (complete(N - 1), 0, False),
            (complete(3), 0, False),
            (ending(N), 1, True),
            (ending(N, parts=3, known=2), 2, False),
            (SinkMarker(N, None, 2, is_old=True), 1, True),
            (SinkMarker(N, None, 2, is_old=True), 2, False),
        ],
    )
    def test_without_a_marker_is_refused_where_its_rows_may_be_committed(
        self, sink: SinkMarker | None, part: int, *, is_refused: bool
    ) -> None:
        if is_refused:
            with pytest.raises(SinkError, match=f"is written by task {part}"):
                part_is_written(RULES, task(part), None, sink)
        else:
            assert not part_is_written(RULES, task(part), None, sink)
        assert not part_is_written(FORGETS, task(part), None, sink)

    def test_of_a_job_needs_no_marker_of_an_earlier_micro_batch(self) -> None:
        assert not part_is_written(JOB, task(), None, None)
        assert not part_is_written(JOB, task(), PartMarker(3, "q", MINE), complete(2))

    @pytest.mark.parametrize(
        ("part", "sink"),
        [(PartMarker(1, "q", OLD), None), (None, SinkMarker(1, None, 1, is_old=True))],
    )
    def test_of_a_job_that_an_earlier_version_wrote_in_foreach_batch_is_refused(
        self, part: PartMarker | None, sink: SinkMarker | None
    ) -> None:
        with pytest.raises(SinkError, match=r"give it another tidelog\.job\.id"):
            part_is_written(JOB, task(), part, sink)
        assert part_is_written(JOB, task(batch=0), part, sink)


class TestADriver:
    def test_ends_what_is_open_the_oldest_first(self) -> None:
        parts = [opened(0, 30), opened(1, 10), opened(2, 20)]
        found = decide(RULES, Batch("q", N, "d"), parts, complete(N - 1))
        assert [one.partition for one in found.open] == [1, 2, 0]
        assert found.rows == Rows(N, Total(15, 33), "d")
        assert not found.is_complete

    @pytest.mark.parametrize("messages", [[None], [opened(0), None], [opened(1), opened(1)]])
    def test_waits_for_all_tasks(self, messages: list[Written | None]) -> None:
        with pytest.raises(SinkError, match="say that they are done"):
            decide(RULES, Batch("q", N), messages, complete(N - 1))

    def test_adds_fingerprints_up_without_an_end(self) -> None:
        large = Total(1, (1 << 64) - 1)
        found = decide(RULES, Batch("q", 0), [opened(0, total=large), opened(1)], None)
        assert found.rows.total == Total(6, 10)

    @pytest.mark.parametrize(
        ("known", "plan", "is_refused"),
        [
            (complete(N), None, False),
            (complete(N, OTHER), None, True),
            (complete(N, OTHER, "d"), "d", False),
            (complete(N, OTHER, "d"), "e", True),
            (complete(N, MINE, "d"), "e", False),
            (complete(N, Total(4, 11)), None, True),
            (SinkMarker(N + 1, None, 1, Rows(N, OLD), is_old=True), None, False),
        ],
    )
    def test_accepts_a_complete_micro_batch_with_the_same_plan_or_the_same_rows(
        self, known: SinkMarker, plan: str | None, *, is_refused: bool
    ) -> None:
        batch, parts = Batch("q", N, plan), [skipped(0, None)]
        if is_refused:
            with pytest.raises(SinkError, match="is written already, with other rows"):
                decide(RULES, batch, parts, known)
        else:
            assert decide(RULES, batch, parts, known).is_complete
        assert decide(KEEPS, batch, parts, known).is_complete

    def test_aborts_what_is_open_of_a_complete_micro_batch(self) -> None:
        found = decide(RULES, Batch("q", N), [opened(0)], complete(N))
        assert found.is_complete
        assert [one.partition for one in found.open] == [0]

    def test_compares_the_tasks_of_a_complete_micro_batch_of_an_earlier_version(self) -> None:
        known = SinkMarker(N + 1, None, 1, is_old=True)
        assert decide(RULES, Batch("q", N), [skipped(0, OLD)], known).is_complete
        with pytest.raises(SinkError, match="5 are written, this time there are 4"):
            decide(RULES, Batch("q", N), [skipped(0, OLD, Total(4, 1))], known)

    @pytest.mark.parametrize(
        ("renewed_ms", "tasks", "is_due"),
        [
            (None, 1, True),
            (None, 2, False),
            (NOW, 1, False),
            (NOW - RENEWED_AFTER_MS + 1, 1, False),
            (NOW - RENEWED_AFTER_MS, 1, True),
            (NOW - RENEWED_AFTER_MS, 2, False),
            (NOW + 1, 1, True),  # the clock was set back
        ],
    )
    def test_renews_the_markers_of_unused_parts_once_an_hour(
        self, renewed_ms: int | None, tasks: int, *, is_due: bool
    ) -> None:
        known = SinkMarker(N, "q", 2, Rows(N - 1, MINE), renewed_ms=renewed_ms)
        assert must_renew(known, tasks, NOW) is is_due

    def test_goes_on_where_another_one_had_begun_to_end(self) -> None:
        found = decide(RULES, Batch("q", N), [skipped(0), opened(1)], ending(N))
        assert [one.partition for one in found.open] == [1]

    def test_goes_on_with_another_number_of_tasks_then_if_no_part_is_committed(self) -> None:
        more = decide(RULES, Batch("q", N), [opened(one) for one in range(3)], ending(N))
        assert [one.partition for one in more.open] == [0, 1, 2]
        beyond = [PartMarker(N, "q", MINE)]
        assert not decide(RULES, Batch("q", N), [opened(0)], ending(N), beyond).is_complete

    def test_confirms_its_parts_if_another_driver_was_ending_other_rows(self) -> None:
        parts = [opened(0), opened(1)]
        alike = decide(RULES, Batch("q", N), parts, complete(N - 1)).rows
        for total, disputed in ((alike.total, 0), (Total(alike.total.rows + 1, 7), 2)):
            said = replace(ending(N), ending=Ending(Rows(N, total), 2))
            assert len(decide(RULES, Batch("q", N), parts, said).disputed) == disputed

    def test_confirms_the_parts_that_tasks_of_another_number_may_have_taken_over(self) -> None:
        def disputed(tasks: int) -> list[int]:
            beyond = [PartMarker(N, "q", MINE)] * max(0, 2 - tasks)
            parts = [opened(number) for number in range(tasks)]
            found = decide(RULES, Batch("q", N), parts, ending(N), beyond)
            return sorted(one.partition for one in found.disputed)

        assert [disputed(tasks) for tasks in (1, 3)] == [[0], [0, 1]]

    def test_refuses_another_number_of_tasks_if_a_part_is_or_may_be_committed(self) -> None:
        batch, after = Batch("q", N), PartMarker(N + 1, "q", MINE)
        for rules in (RULES, KEEPS):
            with pytest.raises(SinkError, match="by 2 tasks, and now has 3"):
                decide(rules, batch, [skipped(0), opened(1), opened(2)], ending(N))
            with pytest.raises(SinkError, match="by 2 tasks, and now has 1"):
                decide(rules, batch, [opened(0)], ending(N), [after])
            with pytest.raises(SinkError, match="does not know any more"):
                decide(rules, batch, [opened(0)], ending(N), [None])

    @pytest.mark.parametrize("known", [ending(N), complete(N - 1), None])
    def test_refuses_a_skipped_task_that_had_other_rows(self, known: SinkMarker | None) -> None:
        parts = [skipped(0, total=OTHER), opened(1)]
        with pytest.raises(SinkError, match=r"as many \(5\), but others"):
            decide(RULES, Batch("q", N), parts, known)
        assert not decide(KEEPS, Batch("q", N), parts, known).is_complete

    def test_refuses_a_skipped_task_whose_marker_is_gone(self) -> None:
        part = Written(0, 0, skipped=True, total=MINE)
        with pytest.raises(SinkError, match="the marker that said so is gone"):
            decide(KEEPS, Batch("q", N), [part], complete(N - 1))

    def test_refuses_a_marker_that_another_program_has_overwritten(self) -> None:
        for offset in (N, N + 1):
            foreign = SinkMarker(offset, is_foreign=True)
            with pytest.raises(SinkError, match="another program commits offsets"):
                decide(RULES, Batch("q", N), [opened(0)], foreign)
            with pytest.raises(SinkError, match="another program commits offsets"):
                whole_is_written(RULES, Batch("q", N), foreign)

    def test_refuses_another_query_and_an_older_checkpoint(self) -> None:
        with pytest.raises(SinkError, match="and this is query other"):
            decide(RULES, Batch("other", N), [opened(0)], complete(N - 1))
        with pytest.raises(SinkError, match="the checkpoint is older than the sink"):
            decide(RULES, Batch("q", N), [opened(0)], complete(N + 1))

    def test_believes_a_marker_that_says_that_a_refused_end_has_happened(self) -> None:
        part = opened(0)
        for total in (MINE, OLD):
            check_committed(RULES, N, part, PartMarker(N + 1, "q", total), "REFUSED")
        for marker in (None, PartMarker(N, "q", MINE), PartMarker(N + 1, is_foreign=True)):
            with pytest.raises(SinkError, match=r"could not be committed \(REFUSED\)"):
                check_committed(RULES, N, part, marker, "REFUSED")
        with pytest.raises(SinkError, match="has written other rows as task 0"):
            check_committed(RULES, N, part, PartMarker(N + 1, "q", OTHER), "REFUSED")


class TestAMicroBatchInOneTransaction:
    def test_is_written_unless_the_marker_says_that_it_is(self) -> None:
        assert whole_is_written(RULES, Batch("q", N), complete(N))
        assert not whole_is_written(RULES, Batch("q", N), complete(N - 1))
        assert not whole_is_written(RULES, Batch("q", 0), None)
        assert not whole_is_written(RULES, Batch("q", N + 1), ending(N))

    def test_is_not_decided_by_the_sink_s_marker_where_tasks_have_begun_it(self) -> None:
        assert not whole_is_written(RULES, Batch("q", N), ending(N))

    def test_has_as_many_parts_as_any_driver_may_have_ended(self) -> None:
        assert parts_known(Batch("q", N), None, 2) == 2
        assert parts_known(Batch("q", N), complete(N - 1), 1) == complete(N - 1).parts
        assert parts_known(Batch("q", N), ending(N, parts=5), 3) == 5
        assert parts_known(Batch("q", N), ending(N, parts=5, known=4), 6) == 6

    @pytest.mark.parametrize("sink", [None, SinkMarker(N, None, 2, is_old=True), ending(N)])
    def test_is_refused_where_a_part_is_committed(self, sink: SinkMarker | None) -> None:
        before, after = PartMarker(N, "q", OLD), PartMarker(N + 1, "q", OLD)
        batch = Batch("q", N)
        check_no_part_written(RULES, batch, [before, before], sink)
        with pytest.raises(SinkError, match=r"its tasks \[1\] are committed: finish it"):
            check_no_part_written(RULES, batch, [before, after], sink)

    def test_is_refused_where_the_marker_of_a_part_cannot_be_told(self) -> None:
        batch, old = Batch("q", N), SinkMarker(N, None, 1, is_old=True)
        with pytest.raises(SinkError, match="is written by task 0"):
            check_no_part_written(RULES, batch, [None], old)
        check_no_part_written(FORGETS, batch, [None], old)
        check_no_part_written(RULES, batch, [PartMarker(N, "q", OLD), None], old)
        check_no_part_written(RULES, Batch("q", 0), [None, None], None)
        with pytest.raises(SinkError, match="another program commits offsets"):
            check_no_part_written(RULES, batch, [PartMarker(3, is_foreign=True)], old)

    def test_is_refused_where_the_marker_was_forgotten(self) -> None:
        with pytest.raises(SinkError, match="does not know any more"):
            whole_is_written(RULES, Batch("q", N), None)
        assert not whole_is_written(FORGETS, Batch("q", N), None)
        assert not whole_is_written(JOB, Batch("q", N), None)

    def test_is_refused_if_it_comes_again_with_other_rows(self) -> None:
        check_same(RULES, Rows(N, OTHER, "d"), complete(N, MINE, "d"))
        check_same(KEEPS, Rows(N, OTHER), complete(N))
        with pytest.raises(SinkError, match="exactly-once-atomic for those"):
            check_same(RULES, Rows(N, OTHER), complete(N))
