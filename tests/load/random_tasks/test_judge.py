"""The judge on journals made by hand: it finds each broken promise, and excuses nothing else."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.load.random_tasks.faults import Fault, FaultKind
from tests.load.random_tasks.judge import LOST_TEXT, TaskRecord, ToolTraits, Verdict, judge
from tests.load.task_site.journal import Entry, Event, parse_lines

LEASE_SECONDS = 6.0
TOOLS = {
    "once": ToolTraits(),
    "plain": ToolTraits(is_plain=True),
    "again": ToolTraits(may_repeat=True),
    "plain again": ToolTraits(may_repeat=True, is_plain=True),
    "book": ToolTraits(is_atomic=True),
    "book again": ToolTraits(may_repeat=True, is_atomic=True),
}
RUN = "100 start, 101 effect, 102 effect, 103 end"


def make_run(run: str, text: str, process: str = "a") -> list[Entry]:
    """Return the entries of a run: `100 start, 101 effect`."""
    return [
        Entry(float(seconds), process, 1, run, Event(event))
        for seconds, event in (part.split() for part in text.split(", "))
    ]


def judge_one(
    *runs: list[Entry], faults: Sequence[Fault] = (), tool: str = "once", status: str = "completed", **values: Any
) -> Verdict:
    """Judge one task. A completed one has the result of its last run unless `run` names another one."""
    if status == "failed":
        values = {"message": f"The worker was lost, and the tool {LOST_TEXT}", **values}
    if status == "completed" and not values.get("is_error"):
        values = {"run": runs[-1][0].run if runs else "", **values}
    record = TaskRecord(number=1, tool=tool, status=status, created=99.0, **values)
    return judge([record], [entry for run in runs for entry in run], faults, TOOLS, lease=LEASE_SECONDS)


def list_problems(*runs: list[Entry], **values: Any) -> list[str]:
    return sorted(judge_one(*runs, **values).problems)


def test_lines_of_a_journal_are_read() -> None:
    (entry,) = parse_lines(["2500000000 worker-1 7 ab12 effect"])
    assert entry == Entry(2.5, "worker-1", 7, "ab12", Event.EFFECT)


def test_a_task_that_ran_and_completed_has_no_problem() -> None:
    assert list_problems(make_run("x", RUN)) == []


@pytest.mark.parametrize("status", ["", "working", "input_required", "cancelled"])
def test_a_task_without_an_end_is_lost(status: str) -> None:
    assert list_problems(make_run("x", RUN), status=status) == ["lost"]


def test_a_call_without_a_response_may_have_no_task_or_a_waiting_one() -> None:
    assert list_problems(status="", is_acknowledged=False) == []
    assert list_problems(status="input_required", is_acknowledged=False) == []
    assert list_problems(status="working", is_acknowledged=False) == ["lost"]


def test_a_terminal_status_that_changed_is_found() -> None:
    assert list_problems(make_run("x", RUN), seen="failed") == ["changed"]
    assert list_problems(make_run("x", RUN), seen="working") == []


def test_a_second_run_without_retry_is_found() -> None:
    second = make_run("y", "110 start, 111 effect, 112 end", "b")
    assert list_problems(make_run("x", "100 start, 101 effect"), second) == ["repeated"]
    assert list_problems(make_run("x", "100 start, 101 effect"), second, tool="again") == []


def test_a_question_allows_another_run_and_no_step_twice() -> None:
    asking = make_run("x", "100 start, 101 step, 102 ask")
    answered = make_run("y", "105 start, 105 ask, 106 answer, 107 end")
    assert list_problems(asking, answered, rounds=1) == []
    assert list_problems(asking, answered, rounds=0) == ["repeated"]
    with_step = make_run("y", "105 start, 105 step, 106 ask, 106 answer, 107 end")
    assert list_problems(asking, with_step, rounds=1) == ["repeated"]
    third = make_run("z", "108 start, 108 ask, 109 answer, 110 end")
    assert list_problems(asking, answered, third, rounds=2) == ["repeated"]


def test_an_entry_after_the_start_of_a_later_run_is_at_once() -> None:
    later = make_run("y", "106 start, 107 effect, 108 end", "b")
    assert list_problems(make_run("x", "100 start, 106.5 effect"), later, tool="again") == ["at once"]
    assert list_problems(make_run("x", "100 start, 105.9 effect"), later, tool="again") == []
    long_after = make_run("x", "100 start, 120 end")
    assert list_problems(long_after, later, tool="again", run="y") == ["at once"]


def test_a_plain_function_may_run_on_after_a_lease_that_its_process_could_not_extend() -> None:
    runs = make_run("x", "100 start, 112 end"), make_run("y", "110 start, 113 end", "b")
    cut = Fault(FaultKind.CUT, "a", 101.0, 110.0)
    verdict = judge_one(*runs, tool="plain again", faults=[cut])
    assert not verdict.problems
    assert verdict.unstopped == 1
    assert list_problems(*runs, tool="again", faults=[cut]) == ["at once"]
    short = Fault(FaultKind.CUT, "a", 101.0, 102.0)
    assert list_problems(*runs, tool="plain again", faults=[short]) == ["at once"]
    assert list_problems(*runs, tool="plain again") == ["at once"]


def test_each_completed_atomic_task_has_the_row_of_its_result_and_no_other_one() -> None:
    run = make_run("x", RUN)
    assert list_problems(run, tool="book", bookings=("x",)) == []
    assert list_problems(run, tool="book", bookings=()) == ["rows"]
    assert list_problems(run, tool="book", bookings=("x", "x")) == ["rows"]
    assert list_problems(run, tool="book", bookings=("y",)) == ["rows"]


def test_a_failed_atomic_task_has_no_row_even_if_its_process_was_killed() -> None:
    killed = [Fault(FaultKind.KILL, "a", 103.1, 103.1)]
    assert list_problems(make_run("x", RUN), tool="book", status="failed", faults=killed) == []
    assert list_problems(make_run("x", RUN), tool="book", status="failed", faults=killed, bookings=("x",)) == [
        "failed, finished",
        "rows",
    ]


def test_a_result_is_of_the_last_run_which_has_finished() -> None:
    assert list_problems(make_run("x", "100 start, 101 effect")) == ["wrong end"]
    again = make_run("y", "110 start, 111 end", "b")
    assert list_problems(make_run("x", RUN), again, tool="again", run="x") == ["wrong end"]


def test_an_error_result_needs_an_atomic_tool_and_a_database_out_of_reach() -> None:
    run, cut = make_run("x", "100 start, 101 effect"), Fault(FaultKind.CUT, "a", 101.0, 102.0)
    assert list_problems(run, is_error=True, faults=[cut]) == ["wrong end"]
    assert list_problems(run, tool="book", is_error=True, faults=[cut]) == []
    assert list_problems(run, tool="book again", is_error=True, faults=[cut]) == ["wrong end"]
    assert list_problems(run, tool="book", is_error=True) == ["wrong end"]
    other = Fault(FaultKind.CUT, "b", 101.0, 102.0)
    assert list_problems(run, tool="book", is_error=True, faults=[other]) == ["wrong end"]
    outage = Fault(FaultKind.POSTGRES_CRASH, "", 101.0, 102.0)
    assert list_problems(run, tool="book", is_error=True, faults=[outage]) == []
    late = Fault(FaultKind.POSTGRES_CRASH, "", 101 + 2.5 * LEASE_SECONDS, 101 + 3 * LEASE_SECONDS)
    assert list_problems(run, tool="book", is_error=True, faults=[late]) == []  # another tool blocks the loop
    too_late = Fault(FaultKind.POSTGRES_CRASH, "", 101 + 2.7 * LEASE_SECONDS, 101 + 3 * LEASE_SECONDS)
    assert list_problems(run, tool="book", is_error=True, faults=[too_late]) == ["wrong end"]


def test_a_task_that_may_run_again_never_fails() -> None:
    killed = [Fault(FaultKind.KILL, "a", 101.5, 101.5)]
    assert list_problems(make_run("x", "100 start, 101 effect"), tool="again", status="failed", faults=killed) == [
        "failed again"
    ]


def test_a_task_fails_for_no_other_reason_than_a_lost_attempt() -> None:
    killed = [Fault(FaultKind.KILL, "a", 101.5, 101.5)]
    run = make_run("x", "100 start, 101 effect")
    assert list_problems(run, status="failed", faults=killed, message="Unknown tool: once") == ["wrong end"]


UNFINISHED = "100 start, 101 effect, 102 effect"


@pytest.mark.parametrize(
    ("fault", "is_cause"),
    [
        (Fault(FaultKind.KILL, "a", 102.1, 102.1), True),
        (Fault(FaultKind.KILL, "b", 102.1, 102.1), False),
        (Fault(FaultKind.KILL, "a", 90.0, 90.0), False),
        (Fault(FaultKind.TERMINATE, "a", 99.0, 103.0), True),
        (Fault(FaultKind.PAUSE, "a", 102.1, 111.0), True),
        (Fault(FaultKind.PAUSE, "a", 102.1, 103.0), False),
        (Fault(FaultKind.STALL, "a", 98.0, 107.0), True),
        (Fault(FaultKind.CUT, "b", 98.0, 107.0), False),
        (Fault(FaultKind.POSTGRES_CRASH, "", 99.0, 107.0), True),
        (Fault(FaultKind.POSTGRES_CRASH, "", 101.0, 102.5), False),
        (Fault(FaultKind.REDIS_CRASH, "", 99.0, 107.0), False),
    ],
)
def test_an_unfinished_task_fails_only_with_its_process_or_a_whole_lease(fault: Fault, is_cause: bool) -> None:
    expected = [] if is_cause else ["failed without a cause"]
    assert list_problems(make_run("x", UNFINISHED), status="failed", faults=[fault]) == expected


@pytest.mark.parametrize(
    ("faults", "is_cause"),
    [
        ([Fault(FaultKind.KILL, "a", 103.5, 103.5)], True),
        ([Fault(FaultKind.KILL, "a", 102.5, 102.5)], False),
        ([Fault(FaultKind.KILL, "a", 107.0, 107.0)], False),
        ([Fault(FaultKind.POSTGRES_CRASH, "", 103.2, 105.0), Fault(FaultKind.KILL, "a", 107.5, 107.5)], True),
        ([Fault(FaultKind.TERMINATE, "a", 102.0, 105.0)], False),
        ([Fault(FaultKind.PAUSE, "a", 103.1, 112.0)], True),
        ([Fault(FaultKind.CUT, "a", 98.0, 107.0)], True),
        ([Fault(FaultKind.PAUSE, "a", 93.0, 102.9)], True),
        ([Fault(FaultKind.PAUSE, "a", 91.0, 100.5)], False),
        ([Fault(FaultKind.CUT, "a", 103.1, 105.0)], False),
        ([Fault(FaultKind.POSTGRES_CRASH, "", 98.0, 112.0)], False),
    ],
)
@pytest.mark.parametrize("run", [RUN, "100 start, 102 step, 103 ask"])
def test_a_finished_task_fails_only_if_its_process_could_not_store_the_end(
    run: str, faults: list[Fault], is_cause: bool
) -> None:
    expected = [] if is_cause else ["failed, finished"]
    assert list_problems(make_run("x", run), status="failed", faults=faults) == expected


def test_a_plain_function_may_finish_after_the_deadline_at_which_it_could_not_be_stopped() -> None:
    outage = [Fault(FaultKind.POSTGRES_CRASH, "", 101.0, 112.0)]
    late, in_time = make_run("x", "100 start, 106.5 end"), make_run("x", "100 start, 103 end")
    assert list_problems(late, tool="plain", status="failed", faults=outage) == []
    assert list_problems(late, tool="once", status="failed", faults=outage) == ["failed, finished"]
    assert list_problems(in_time, tool="plain", status="failed", faults=outage) == ["failed, finished"]
    assert list_problems(late, tool="plain", status="failed") == ["failed, finished"]


def test_a_task_that_never_began_fails_only_after_a_fault_that_costs_a_process() -> None:
    assert list_problems(status="failed") == ["failed without a cause"]
    assert list_problems(status="failed", faults=[Fault(FaultKind.KILL, "b", 90.0, 90.0)]) == ["failed without a cause"]
    assert list_problems(status="failed", faults=[Fault(FaultKind.KILL, "b", 101.0, 101.0)]) == []
    answered = make_run("x", "100 start, 101 step, 102 ask")
    assert list_problems(answered, status="failed", rounds=1) == ["failed without a cause"]


def test_ends_are_counted() -> None:
    killed = [Fault(FaultKind.KILL, "a", 103.1, 103.1)]
    assert judge_one(make_run("x", RUN)).ends == {"completed": 1}
    assert judge_one(make_run("x", RUN), status="failed", faults=killed).ends == {"failed, finished": 1}
    assert judge_one(make_run("x", UNFINISHED), status="failed", faults=killed).ends == {"failed, unfinished": 1}
    assert judge_one(tool="book", is_error=True).ends == {"error result": 1}
