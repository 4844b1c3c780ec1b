from datetime import UTC, datetime

import pytest

from mcp_django.protocol.types import LOG_LEVELS, Annotations, Icon, Implementation, LoggingLevel, Role, ToolAnnotations
from tests.official_schema import definitions, validator

REVISION = "2026-07-28"


def test_levels_are_those_of_the_specification_lowest_first():
    assert sorted(LOG_LEVELS) == sorted(definitions(REVISION)["LoggingLevel"]["enum"])
    assert (LOG_LEVELS[0], LOG_LEVELS[-1]) == ("debug", "emergency")
    assert LoggingLevel("warning").rank > LoggingLevel.NOTICE.rank
    assert [level.rank for level in LoggingLevel] == list(range(8))


def test_roles_are_those_of_the_specification():
    assert sorted(Role) == sorted(definitions(REVISION)["Role"]["enum"])


def test_an_implementation_has_all_its_fields():
    icon = Icon("https://example.com/i.png", "image/png", ["48x48", "any"], "dark")
    wire = Implementation("shop", "1.0", "Shop", "Sells", (icon,), "https://example.com").to_wire()
    validator(REVISION, "Implementation")(wire)
    assert wire.keys() == definitions(REVISION)["Implementation"]["properties"].keys()
    assert wire["icons"][0].keys() == definitions(REVISION)["Icon"]["properties"].keys()


def test_omitted_fields_are_left_out():
    assert Implementation("shop", "1.0").to_wire() == {"name": "shop", "version": "1.0"}
    assert Icon("data:image/png;base64,AA==").to_wire() == {"src": "data:image/png;base64,AA=="}
    assert ToolAnnotations().to_wire() == {}
    assert Annotations().to_wire() == {}


def test_an_icon_that_clients_would_refuse_is_refused(subtests: pytest.Subtests) -> None:
    cases = ["javascript:alert(1)", "file:///etc/passwd", "/static/icon.png", "icon.png", "", "ftp://a"]
    for src in cases:
        with subtests.test(src=src), pytest.raises(ValueError, match="absolute http"):
            Icon(src)


def test_an_icon_with_a_wrong_size_or_theme_is_refused(subtests: pytest.Subtests) -> None:
    cases = [{"sizes": ["48"]}, {"sizes": ["0x0"]}, {"sizes": "48x48"}, {"theme": "blue"}]
    for wrong in cases:
        with subtests.test(wrong=wrong), pytest.raises(ValueError, match="icon"):
            Icon("https://example.com/i.png", **wrong)


def test_tool_annotations_are_read_from_their_wire_object():
    wire = {
        "title": "Add",
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }
    annotations = ToolAnnotations.of(wire)
    assert annotations == ToolAnnotations(
        title="Add", read_only=True, destructive=False, idempotent=True, open_world=False
    )
    assert annotations.to_wire() == wire
    assert wire.keys() == definitions(REVISION)["ToolAnnotations"]["properties"].keys()


def test_tool_annotations_pass_as_they_are():
    annotations = ToolAnnotations(read_only=True)
    assert ToolAnnotations.of(annotations) is annotations
    assert ToolAnnotations.of(None) is None
    assert annotations.to_wire() == {"readOnlyHint": True}


def test_a_mistyped_tool_annotation_is_refused(subtests: pytest.Subtests) -> None:
    cases = [
        ({"readonlyHint": True}, "unknown tool annotation 'readonlyHint'; known are title, readOnlyHint"),
        ({"read_only": True}, "unknown"),
        ({"readOnlyHint": "yes"}, "must be true or false"),
        ({"readOnlyHint": 1}, "must be true or false"),
        ({"title": 1}, "must be text"),
    ]
    for given, problem in cases:
        with subtests.test(given=given, problem=problem), pytest.raises(ValueError, match=problem):
            ToolAnnotations.of(given)


def test_annotations_have_all_their_fields():
    moment = datetime(2026, 7, 28, 12, tzinfo=UTC)
    wire = Annotations(audience=[Role.USER, "assistant"], priority=0.5, last_modified=moment).to_wire()
    assert wire == {"audience": ["user", "assistant"], "priority": 0.5, "lastModified": "2026-07-28T12:00:00+00:00"}
    assert [type(role) for role in wire["audience"]] == [str, str]
    validator(REVISION, "Annotations")(wire)
    assert Annotations(last_modified="2026-07-28").to_wire() == {"lastModified": "2026-07-28"}


def test_a_priority_outside_its_range_is_refused(subtests: pytest.Subtests) -> None:
    for priority in [-0.1, 1.1, float("nan")]:
        with subtests.test(priority=priority), pytest.raises(ValueError, match="between 0 and 1"):
            Annotations(priority=priority)


def test_an_unknown_audience_is_refused(subtests: pytest.Subtests) -> None:
    for audience in [["everyone"], "user"]:
        with subtests.test(audience=audience), pytest.raises(ValueError, match="audience"):
            Annotations(audience=audience)


def test_an_icon_is_accepted_in_each_form(subtests: pytest.Subtests) -> None:
    cases = ["https://a.example/i.png", {"src": "https://a.example/i.png"}, Icon("https://a.example/i.png")]
    for given in cases:
        with subtests.test(given=given):
            assert Icon.of(given) == Icon("https://a.example/i.png")


def test_an_icon_of_the_wire_keeps_all_fields() -> None:
    wire = {"src": "data:image/png;base64,AA==", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"}
    assert Icon.of(wire).to_wire() == wire


def test_an_invalid_icon_is_refused_with_the_reason(subtests: pytest.Subtests) -> None:
    cases = [
        ({}, "needs a src"),
        ({"src": 7}, "needs a src"),
        ({"src": "https://a.example", "color": "red"}, "unknown icon field 'color'"),
        ({"src": "https://a.example", "mimeType": 7}, "mimeType must be text"),
        ({"src": "https://a.example", "sizes": [48]}, "sizes are a list"),
        ({"src": "https://a.example", "sizes": "48x48"}, "sizes are a list"),
        ("/static/i.png", "absolute"),
    ]
    for given, why in cases:
        with subtests.test(given=given, why=why), pytest.raises(ValueError, match=why):
            Icon.of(given)
