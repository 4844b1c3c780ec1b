"""Schemas of tools of random models, by the rules of hosts."""

from typing import Any

import jsonschema_rs
from django.db import models
from django.test.utils import isolate_apps
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_django import ModelToolset
from mcp_django.orm.tools import TOOL_TEMPLATES
from mcp_django.schema.host_rules import HostReaction, find_host_findings
from tests.orm.toolsets import shop

CHOICES: list[Any] = [
    None,
    [("a", "A"), ("", "None")],
    [("Group", [("a", "A"), ("b", "B")]), ("a", "A")],
]
KINDS: tuple[type["models.Field[Any, Any]"], ...] = (
    models.BigIntegerField,
    models.BinaryField,
    models.BooleanField,
    models.CharField,
    models.DateField,
    models.DateTimeField,
    models.DurationField,
    models.EmailField,
    models.FileField,
    models.FloatField,
    models.GenericIPAddressField,
    models.IntegerField,
    models.JSONField,
    models.PositiveSmallIntegerField,
    models.SlugField,
    models.TextField,
    models.TimeField,
    models.URLField,
    models.UUIDField,
)


def draw_columns() -> st.SearchStrategy[list[tuple[Any, dict[str, Any]]]]:
    options = st.fixed_dictionaries({"null": st.booleans(), "blank": st.booleans()})
    text = st.builds(lambda own, choices: {**own, "choices": choices}, options, st.sampled_from(CHOICES))
    kind = st.sampled_from(KINDS).flatmap(
        lambda kind: st.tuples(st.just(kind), text if kind in (models.CharField, models.TextField) else options)
    )
    return st.lists(kind, min_size=1, max_size=8)


@settings(max_examples=40)
@given(draw_columns())
def test_no_host_refuses_the_tools_of_a_model(columns: list[tuple[Any, dict[str, Any]]]) -> None:
    with isolate_apps("tests.shop"):
        fields = {f"column_{number}": kind(**options) for number, (kind, options) in enumerate(columns)}
        attributes = {"__module__": __name__, "Meta": type("Meta", (), {"app_label": "shop"}), **fields}
        model = type("Drawn", (models.Model,), attributes)
        declared = {"model": model, "fields": list(fields), "list_filter": list(fields), "tools": list(TOOL_TEMPLATES)}
        declared["tools"] = [name for name in TOOL_TEMPLATES if not name.endswith("_form")]
        entries = [tool.wire for tool in shop(type("Declared", (ModelToolset,), declared)).registry.tools]

    assert len(entries) == len(declared["tools"])
    findings = [str(one) for one in find_host_findings(entries) if one.rule.reaction is HostReaction.REFUSES]
    assert findings == []
    for entry in entries:
        # VS Code compares input schemas with this draft, the 1.x SDK of TypeScript compiles all schemas by it.
        jsonschema_rs.Draft7Validator(entry["inputSchema"])
        jsonschema_rs.Draft7Validator(entry["outputSchema"])
