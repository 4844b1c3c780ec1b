"""How a run of the suite is judged."""

import pytest

from tests.conformance.__main__ import CLIENT_EXPECTED, EXPECTED, Problem, expected_failures, stale, table, unexpected

FAILED = [Problem("check", "WARNING", "why")]


def test_each_expected_failure_has_a_reason() -> None:
    assert all(expected_failures(EXPECTED.read_text()).values())
    assert all(expected_failures(CLIENT_EXPECTED.read_text()).values())


def test_an_entry_without_a_reason_is_refused() -> None:
    with pytest.raises(SystemExit):
        expected_failures("server:\n  - tools-list\n")


def test_an_empty_list_is_allowed() -> None:
    assert expected_failures("# why\nserver: []\n") == {}


def test_an_unexpected_failure_is_reported_with_its_check() -> None:
    assert list(unexpected({"V": {"a": FAILED, "b": []}}, {})) == ["V a: WARNING check: why"]
    assert list(unexpected({"V": {"a": FAILED}}, {"a": "reason"})) == []


def test_an_expected_failure_that_passes_under_any_revision_is_stale() -> None:
    legs = {"V": {"a": FAILED}, "W": {"a": []}}
    assert ["W" in line for line in stale(legs, {"a": "reason"}, complete=True)] == [True]


def test_an_expected_failure_of_an_unknown_scenario_is_stale_in_a_complete_run() -> None:
    assert list(stale({"V": {}}, {"a": "reason"}, complete=False)) == []
    assert len(list(stale({"V": {}}, {"a": "reason"}, complete=True))) == 1


def test_the_table_shows_every_scenario_under_every_revision() -> None:
    lines = table({"V": {"a": []}, "W": {"a": FAILED, "b": FAILED}}, {"b": "reason"}).splitlines()
    assert [line.split() for line in lines] == [["V", "W"], ["a", "ok", "1", "FAILED"], ["b", "-", "expected"]]
