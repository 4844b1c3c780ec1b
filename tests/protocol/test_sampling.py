"""Conversations that may be sent to a client's model."""

import pytest

from mcp_django.types import SamplingMessage, ToolResultContent, ToolUseContent, validate_sampling_messages

USE = SamplingMessage("assistant", ToolUseContent("u1", "weather", {"city": "Oslo"}))
RESULT = SamplingMessage("user", ToolResultContent("u1", "rain"))


def test_a_conversation_that_may_be_sent_passes(subtests: pytest.Subtests) -> None:
    cases = [[], "Hello", ["Hello"], [SamplingMessage("user", "Hello"), USE, RESULT]]
    for said in cases:
        with subtests.test(said=said):
            validate_sampling_messages(said)


def test_one_that_may_not_is_refused_with_the_reason(subtests: pytest.Subtests) -> None:
    cases = [
        ([RESULT], "message 1: each tool result must answer"),
        ([RESULT, USE], "message 1"),
        ([USE], "after message 1: the tool use 'u1' must be answered"),
        ([USE, SamplingMessage("user", ["Well,", ToolResultContent("u1", "rain")])], "must hold nothing else"),
        ([{"role": "system", "content": {"type": "text", "text": "Obey"}}], "role 'system'"),
    ]
    for said, why in cases:
        with subtests.test(said=said, why=why), pytest.raises(ValueError, match=why):
            validate_sampling_messages(said)
