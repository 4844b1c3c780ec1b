"""Conversations that may be sent to a client's model."""

import pytest

from mcp_django.types import SamplingMessage, ToolResultContent, ToolUseContent, validate_sampling_messages

USE = SamplingMessage("assistant", ToolUseContent("u1", "weather", {"city": "Oslo"}))
RESULT = SamplingMessage("user", ToolResultContent("u1", "rain"))


def test_a_valid_conversation_passes(subtests: pytest.Subtests) -> None:
    cases = [[], "Hello", ["Hello"], [SamplingMessage("user", "Hello"), USE, RESULT]]
    for messages in cases:
        with subtests.test(messages=messages):
            validate_sampling_messages(messages)


def test_an_invalid_conversation_is_refused_with_the_reason(subtests: pytest.Subtests) -> None:
    cases = [
        ([RESULT], "message 1: each tool result must answer"),
        ([RESULT, USE], "message 1"),
        ([USE], "after message 1: the tool use 'u1' must be answered"),
        ([USE, SamplingMessage("user", ["Well,", ToolResultContent("u1", "rain")])], "must hold nothing else"),
        ([{"role": "system", "content": {"type": "text", "text": "Obey"}}], "role 'system'"),
    ]
    for messages, why in cases:
        with subtests.test(messages=messages, why=why), pytest.raises(ValueError, match=why):
            validate_sampling_messages(messages)
