"""Every row of docs/reference/coming-from.md, checked."""

import inspect
from collections import Counter

import pytest
from asgiref.sync import async_to_sync

from tests.coming_from import calls, declarations, doors, others, words
from tests.coming_from.table import EXERCISES, NAMED, PAGE, Row, check, named, rows

ROWS = list(rows(PAGE.read_text(encoding="utf-8")))
MOST_LEFT_OUT = 10
_modules = (calls, declarations, doors, others, words)


def _names(row: Row) -> str:
    return f"{row.section.rpartition(' ')[2]}-{row.theirs[:40]}"


@pytest.mark.parametrize("row", ROWS, ids=_names)
def test_a_row_says_what_is_so(row: Row) -> None:
    assert row.theirs
    assert row.ours
    assert row.checks, "the row names no check"
    for line in row.checks:
        if line != "not":
            check(line)
    for path in NAMED.findall(row.ours):
        named(path)
    assert ("not" in row.verbs) == ("**By design not**" in row.ours)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercise_is_done(name: str) -> None:
    run = EXERCISES[name]
    if inspect.iscoroutinefunction(run):
        async_to_sync(run)()
    else:
        run()


def test_each_exercise_is_for_a_row() -> None:
    wanted = {line.removeprefix("does ") for row in ROWS for line in row.checks if line.startswith("does ")}
    assert wanted == set(EXERCISES)


def test_what_is_left_out_by_design_is_little_and_has_a_reason() -> None:
    left_out = [row for row in ROWS if "not" in row.verbs]
    assert len(left_out) <= MOST_LEFT_OUT
    assert all("because" in row.ours for row in left_out)


def test_no_row_is_there_twice() -> None:
    assert [what for what, times in Counter((row.section, row.theirs) for row in ROWS).items() if times > 1] == []


def test_every_section_has_rows() -> None:
    assert {row.section for row in ROWS} == {
        "Coming from lauren-mcp",
        "Coming from the Python SDK's server runner",
        "Coming from the Python API of 2025-06-18",
        "Coming from Urchin",
    }


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("has mcp_django.no_such_name", "no_such_name"),
        ("has mcp_django.tool(no_such_option)", "no_such_option"),
        ("set SERVERS.NO_SUCH", "no setting"),
        ("set LIMITS.EVENTS=7", "EVENTS is 1000"),
        ("command no_such_command", "no command"),
        ("does no_such_thing", "no exercise"),
        ("", "no check"),
    ],
)
def test_a_check_that_does_not_hold_fails(line: str, why: str) -> None:
    with pytest.raises((AssertionError, AttributeError), match=why):
        check(line)
