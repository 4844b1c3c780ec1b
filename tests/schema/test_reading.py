"""Texts of a language model, read as values."""

from types import FunctionType

import pytest

from mcp_django.schema import ArgumentError, DeclarationError, compile_text_parser


def test_json_is_found_with_and_without_a_fence(subtests: pytest.Subtests) -> None:
    cases = [
        '{"a": 1}',
        '  {"a": 1}\n',
        '```json\n{"a": 1}\n```',
        '```\n{"a": 1}```',
        '```{"a": 1}```',
        'Sure:\n```JSON\n{"a": 1}\n```\nDone.',
        '```python\nprint()\n```\nand\n```json\n{"a": 1}\n```',
    ]
    for text in cases:
        with subtests.test(text=text):
            assert compile_text_parser(dict[str, int]).parse(text) == {"a": 1}


def test_an_invalid_value_is_refused_with_a_message(subtests: pytest.Subtests) -> None:
    cases = [
        ("", "the answer is not JSON"),
        ("one", "the answer is not JSON"),
        ("```json\nnope\n```", "the answer is not JSON"),
        ("[" * 100 + "]" * 100, "the answer is not JSON"),
        ("\ud800", "the answer is not JSON"),
        ('{"a": true}', "a: is a boolean; give an integer"),
        ('{"a": 1e400}', "the answer is not JSON"),
    ]
    for text, reason in cases:
        with subtests.test(text=text, reason=reason):
            with pytest.raises(ArgumentError) as refused:
                compile_text_parser(dict[str, int]).parse(text)
            assert str(refused.value) == reason


def test_a_type_without_a_json_form_is_a_declaration_error() -> None:
    with pytest.raises(DeclarationError, match="result_type"):
        compile_text_parser(FunctionType)


def test_a_type_is_compiled_once() -> None:
    assert compile_text_parser(list[int]) is compile_text_parser(list[int])
