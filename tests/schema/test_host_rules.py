"""Rules of hosts for entries of `tools/list`."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import make_dataclass
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import jsonschema_rs
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from mcp_django.schema.host_rules import HOST_RULES, HostReaction, find_host_findings
from mcp_django.server.primitives.decorators import build_tool

PLAIN: dict[str, Any] = {
    "name": "find_city",
    "description": "Find a city.",
    "inputSchema": {"type": "object", "properties": {"name.with_all-signs1": {"type": "string", "format": "date"}}},
    "outputSchema": {"type": "object", "properties": {"result": {"type": "array", "items": {}}}},
}
VIOLATIONS: dict[str, list[dict[str, Any]]] = {
    "tool-name": [{"name": "city.find"}, {"name": "a" * 65}, {"name": "städte"}, {"name": "a/b"}],
    "argument-name": [
        {"inputSchema": {"type": "object", "properties": {name: {"type": "string"}}}}
        for name in ("größe", "filter[name]", "$top", "uids[]", "a b", "a" * 65, "")
    ],
    "root-alternatives": [
        {"inputSchema": {"type": "object", "properties": {}, keyword: [{"required": ["a"]}]}}
        for keyword in ("anyOf", "oneOf", "allOf")
    ],
    "root-properties": [{"inputSchema": {"type": "object"}}, {"inputSchema": {"properties": {}, "minProperties": 1}}],
    "array-items": [
        {"inputSchema": {"type": "object", "properties": {"a": schema}}}
        for schema in ({"type": "array"}, {"type": "array", "items": False}, {"anyOf": [{"type": "array"}]})
    ],
    "output-format": [{"outputSchema": {"type": "object", "properties": {"a": {"type": "string", "format": "email"}}}}],
    "outside-reference": [{"inputSchema": {"type": "object", "properties": {"a": {"$ref": "https://a.example/b"}}}}],
    "boolean-schema": [
        {"outputSchema": {"type": "object", "properties": {"a": True}}},
        {"outputSchema": {"type": "object", "properties": {"a": {"anyOf": [{"type": "null"}, False]}}}},
    ],
    "type-list": [{"inputSchema": {"type": "object", "properties": {"a": {"type": ["string", "null"]}}}}],
    "empty-schema": [{"inputSchema": {"type": "object", "properties": {"a": {"title": "A"}}}}],
    "long-description": [{"description": "a" * 1025}],
}


def list_rules(*entries: dict[str, Any]) -> list[str]:
    return [finding.rule.name for finding in find_host_findings(entries)]


def test_each_rule_finds_its_violations_and_no_others(subtests: Any) -> None:
    assert list_rules(PLAIN) == []
    assert set(VIOLATIONS) == {rule.name for rule in HOST_RULES}
    for name, changes in VIOLATIONS.items():
        for change in changes:
            with subtests.test(rule=name, change=change):
                assert list_rules({**PLAIN, **change}) == [name]


def test_names_inside_arguments_are_not_checked() -> None:
    inner = {"type": "object", "properties": {"größe": {"type": "integer"}}}
    assert list_rules({**PLAIN, "inputSchema": {"type": "object", "properties": {"values": inner}}}) == []


def test_a_finding_has_the_tool_the_path_and_a_hint() -> None:
    [finding] = find_host_findings([{**PLAIN, **VIOLATIONS["argument-name"][0]}])
    assert str(finding).startswith("the tool 'find_city': the argument 'größe' has a name other than 1 to 64 letters")
    assert "alias" in finding.rule.remedy
    assert finding.rule.reaction is HostReaction.REFUSES


def test_the_hint_for_an_argument_name_works() -> None:
    def measure(größe: Annotated[int, Field(alias="groesse")]) -> int:
        return größe

    tool = build_tool(measure)
    assert list_rules(tool.wire) == []
    tool.parameters.check({"groesse": 3})
    assert tool.parameters.convert({"groesse": 3}) == {"größe": 3}


def test_each_rule_has_a_source() -> None:
    assert all(rule.source and rule.hosts and rule.remedy.endswith(".") for rule in HOST_RULES)


class Pair(NamedTuple):
    left: dt.time
    right: "tuple[int, ...] | None" = None


def draw_annotations() -> st.SearchStrategy[Any]:
    times = (dt.datetime, dt.date, dt.time, dt.timedelta)
    leaves = st.sampled_from(
        [int, str, bool, float, None, Any, list, dict, tuple, bytes, Decimal, UUID, Pair, Literal["a", 1], *times]
    )

    def extend(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(
            inner.map(lambda kind: list[kind]),  # type: ignore[valid-type]
            inner.map(lambda kind: dict[str, kind]),  # type: ignore[valid-type]
            inner.map(lambda kind: Sequence[kind]),  # type: ignore[valid-type]
            inner.map(lambda kind: set[str] | None | kind),
            st.tuples(inner, inner).map(lambda kinds: tuple[kinds]),  # type: ignore[valid-type]
            st.lists(inner, min_size=1, max_size=3).map(
                lambda kinds: make_dataclass("Drawn", [(f"field_{number}", kind) for number, kind in enumerate(kinds)])
            ),
        )

    return st.recursive(leaves, extend, max_leaves=5)


@settings(max_examples=100)
@given(draw_annotations(), draw_annotations())
def test_no_host_refuses_the_tool_of_a_function(argument: Any, result: Any) -> None:
    def function(value):  # type: ignore[no-untyped-def]
        """Do something."""

    function.__annotations__ = {"value": argument, "return": result}
    entry = build_tool(function).wire
    findings = [str(one) for one in find_host_findings([entry]) if one.rule.reaction is HostReaction.REFUSES]
    assert findings == []
    for key in ("inputSchema", "outputSchema"):
        jsonschema_rs.Draft7Validator(entry.get(key, {}))
