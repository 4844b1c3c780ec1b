"""Settings of the recorder."""

from typing import Any

import pytest

from mcp_django import conf
from mcp_django.contrib.control_room.options import CallSelection, get_settings


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("all", CallSelection(share=1.0)),
        ("none", CallSelection(failed=False, slow=False, asked=False)),
        (0.25, CallSelection(share=0.25)),
        (["failed"], CallSelection(slow=False, asked=False)),
    ],
)
def test_calls_are_selected_by_word_share_or_list(settings: Any, written: Any, expected: CallSelection) -> None:
    settings.MCP = {"RECORD": {"CALLS": written}}
    assert get_settings().calls == expected


@pytest.mark.parametrize(
    "options",
    [
        {"CALLS": "fail"},
        {"CALLS": ["fast"]},
        {"CALLS": 2},
        {"KEEP": {"weeks": 1}},
        {"KEEP": {"calls": 0}},
        {"TOOLS": {"greet": {"ARGUMENT": ["a"]}}},
        {"TOOLS": {"greet": {"ARGUMENTS": "name"}}},
        {"TOOLS": {"greet": {"QUESTIONS": "name"}}},
        {"TRACE_URL": "https://traces.example/{id}"},
        {"TRACE_URL": "javascript:alert({trace_id})"},
        {"DATABASE": None},
    ],
)
def test_a_wrong_value_is_reported_by_the_checks(settings: Any, options: dict[str, Any]) -> None:
    settings.MCP = {"RECORD": options}
    assert any("RECORD" in str(problem) for problem in conf.get_problems())
