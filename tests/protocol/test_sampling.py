"""Conversations that may be sent to a client's model."""

from typing import Any

import pytest

from mcp_django import SamplingMessage, ToolResultContent, ToolUseContent, validate_sampling_messages

USE = SamplingMessage("assistant", ToolUseContent("u1", "weather", {"city": "Oslo"}))
RESULT = SamplingMessage("user", ToolResultContent("u1", "rain"))


@pytest.mark.parametrize("said", [[], "Hello", ["Hello"], [SamplingMessage("user", "Hello"), USE, RESULT]])
def test_a_conversation_that_may_be_sent_passes(said: Any) -> None:
    validate_sampling_messages(said)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ([RESULT], "message 1: each tool result must answer"),
        ([RESULT, USE], "message 1"),
        ([USE], "after message 1: the tool use 'u1' must be answered"),
        ([USE, SamplingMessage("user", ["Well,", ToolResultContent("u1", "rain")])], "must hold nothing else"),
        ([{"role": "system", "content": {"type": "text", "text": "Obey"}}], "role 'system'"),
    ],
)
def test_one_that_may_not_is_refused_with_the_reason(said: Any, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        validate_sampling_messages(said)
