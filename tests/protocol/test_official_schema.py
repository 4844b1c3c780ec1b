"""The loader itself: a check that never fails would make every other test green."""

import pytest

from tests.official_schema import REVISIONS, definitions, validator


def test_all_five_revisions_have_a_schema():
    assert len(REVISIONS) == 5


def test_a_missing_required_field_is_an_assertion_error(subtests: pytest.Subtests) -> None:
    for revision in REVISIONS:
        with subtests.test(revision=revision):
            validator(revision, "Tool")({"name": "add", "inputSchema": {"type": "object"}})
            with pytest.raises(AssertionError, match="inputSchema"):
                validator(revision, "Tool")({"name": "add"})


def test_references_between_definitions_are_followed(subtests: pytest.Subtests) -> None:
    for revision in REVISIONS:
        with subtests.test(revision=revision), pytest.raises(AssertionError):
            validator(revision, "ListToolsResult")({"tools": [{"name": 1}], "resultType": "complete"})


def test_fractions_are_valid_numbers(subtests: pytest.Subtests) -> None:
    for revision in [r for r in REVISIONS if "ElicitResult" in definitions(r)]:
        with subtests.test(revision=revision):
            validator(revision, "ElicitResult")({"action": "accept", "content": {"rating": 0.5}})
            validator(revision, "NumberSchema")({"type": "number", "minimum": 0.5, "maximum": 1.5})


def test_json_values_may_be_null_and_fractions():
    validator(REVISIONS[-1], "JSONValue")({"deep": [None, 0.5]})


def test_an_unknown_definition_is_a_lookup_error():
    with pytest.raises(LookupError, match="Nonsense"):
        validator(REVISIONS[0], "Nonsense")
