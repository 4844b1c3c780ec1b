"""The registry of codecs: which codec a column has, and codecs of a project's own field classes."""

from dataclasses import replace
from typing import Any

import pytest
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.test.utils import isolate_apps

from mcp_django import ModelToolset
from mcp_django.orm import Codec, get_codec, register_codec
from mcp_django.orm.codecs import registry
from mcp_django.schema import DeclarationError
from tests.columns.fields import LabelPath, LabelPathField
from tests.columns.models import Paint
from tests.orm.toolsets import data, peer
from tests.repository.pages import ROOT, python_blocks, served_by
from tests.shop.models import Category, Product


@pytest.fixture(autouse=True)
def builders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the codecs that a test registers."""
    monkeypatch.setattr(registry, "_BUILDERS", dict(registry._BUILDERS))
    return


def build_path_codec(field: Any) -> Codec:
    """Show a path as the list of its labels."""
    return Codec(
        kind="path",
        schema={"type": "array", "items": {"type": "string"}},
        encode=lambda path: path.labels,
        decode=".".join,
        filter_schema={"type": "array", "items": {"type": "string"}, "minItems": 1},
        lookups={"exact": "value", "below": "value", "startswith": lambda text: f"{text}.", "nowhere": "value"},
        form_schema={"type": "array", "items": {"type": "string"}, "maxItems": 9},
        to_form=".".join,
    )


class Paints(ModelToolset):
    model = Paint
    fields = ["path"]
    list_filter = "__all__"
    tools = ("describe", "list", "get", "create", "update", "aggregate")


def properties(toolset: ModelToolset, tool: str, argument: str) -> Any:
    """The schema of the field `path` in an argument."""
    return toolset.get_tool(tool).parameters.schema["properties"][argument]["properties"]["path"]


@pytest.mark.django_db
async def test_registered_codec_shows_filters_orders_and_writes() -> None:
    register_codec(LabelPathField)(build_path_codec)
    server = peer(Paints)
    made = await data(server, "paint_create", values={"path": ["top", "science"]})
    assert made["item"]["path"] == ["top", "science"]
    await data(server, "paint_create", values={"path": ["topping"]})
    assert [str(row.path) async for row in Paint.objects.order_by("pk")] == ["top.science", "topping"]

    for filters in ({"path": ["top", "science"]}, {"path__below": ["top"]}, {"path__startswith": "top"}):
        found = await data(server, "paint_list", filters=filters)
        assert [row["path"] for row in found["items"]] == [["top", "science"]]
    rows = (await data(server, "paint_list", order_by=["-path"]))["items"]
    assert [row["path"] for row in rows] == [["topping"], ["top", "science"]]
    groups = await data(server, "paint_aggregate", group_by=["path"])
    assert [group["path"] for group in groups["groups"]] == [["top", "science"], ["topping"]]


@pytest.mark.django_db
async def test_schemas_and_description_are_those_of_the_codec() -> None:
    register_codec(LabelPathField)(build_path_codec)
    toolset = Paints()
    server = peer(Paints)
    [path] = (await data(server, "paint_describe"))["fields"]
    assert path["type"] == "path"
    assert path["lookups"] == ["exact", "below", "startswith"]  # without those that the column does not have
    assert properties(toolset, "list", "filters")["minItems"] == 1
    assert properties(toolset, "create", "values")["maxItems"] == 9


def test_subclass_has_the_codec_of_the_nearest_class(subtests: pytest.Subtests) -> None:
    class OwnDate(models.DateTimeField):
        pass

    for field, kind in (
        (OwnDate(), "date-time"),
        (models.EmailField(), "text"),
        (models.SmallAutoField(primary_key=True), "integer"),
        (models.Field(), "other"),
        (models.GeneratedField(expression="x", output_field=models.DateField(), db_persist=True), "date"),
        (Product._meta.get_field("category"), "text"),
        (ArrayField(models.DateField()), "list"),
    ):
        with subtests.test(field=type(field).__name__):
            assert get_codec(field).kind == kind


def test_codec_is_registered_by_the_path_of_a_class() -> None:
    register_codec("tests.columns.fields.LabelPathField")(build_path_codec)
    assert get_codec(Paint._meta.get_field("path")).kind == "path"


def test_codec_can_be_based_on_that_of_another_class() -> None:
    @register_codec(LabelPathField)
    def build(field: Any) -> Codec:
        return replace(get_codec(field, models.CharField), kind="path", encode=str)

    codec = get_codec(Paint._meta.get_field("path"))
    assert (codec.kind, codec.schema) == ("path", {"type": "string"})
    assert "icontains" in codec.lookups


def test_second_codec_of_a_class_is_refused_unless_it_replaces_the_first() -> None:
    register_codec(LabelPathField)(build_path_codec)
    with pytest.raises(
        DeclarationError, match=r"LabelPathField has a codec already, built by .*build_path_codec; pass"
    ):
        register_codec(LabelPathField)(build_path_codec)
    register_codec(LabelPathField, replace=True)(lambda field: get_codec(field, models.CharField))
    assert get_codec(Paint._meta.get_field("path")).kind == "text"


def test_lookups_that_a_field_class_refuses_are_left_out() -> None:
    class WordsField(models.TextField):  # type: ignore[type-arg]
        def get_lookup(self, lookup_name: str) -> Any:
            if lookup_name != "contains":
                raise NotImplementedError(f"{lookup_name} does not work with words")
            return super().get_lookup(lookup_name)

    assert list(get_codec(WordsField()).lookups) == ["contains"]


def test_only_field_classes_have_codecs(subtests: pytest.Subtests) -> None:
    wrong: Any
    for wrong in (Category, 5, models.CharField()):
        with subtests.test(wrong=wrong), pytest.raises(DeclarationError, match="has no codec; give a subclass"):
            register_codec(wrong)


def test_codec_must_be_what_a_builder_returns() -> None:
    wrong: Any = lambda field: None  # noqa: E731
    register_codec(LabelPathField)(wrong)
    with pytest.raises(DeclarationError, match="returned None; return a Codec"):
        get_codec(Paint._meta.get_field("path"))


@pytest.mark.django_db
async def test_example_of_the_page_shows_and_filters(monkeypatch: pytest.MonkeyPatch) -> None:
    [block] = python_blocks(ROOT / "docs/expose/codecs.md")
    module, _ = served_by(block, monkeypatch)

    with isolate_apps("tests.columns"):

        class Topic(models.Model):
            path = module.LabelPathField(max_length=80)

            class Meta:
                app_label = "columns"
                db_table = Paint._meta.db_table

    class Topics(ModelToolset):
        model = Topic
        fields = ["path"]
        list_filter = "__all__"

    for path in ("top.science", "art"):
        await Paint.objects.acreate(path=LabelPath(path))
    server = peer(Topics)
    found = await data(server, "topic_list", filters={"path__below": ["top"]})
    assert [row["path"] for row in found["items"]] == [["top", "science"]]
    refused = await server.call("topic_list", filters={"path": ["top", 5]})
    assert refused["content"][0]["text"] == "filters: path: give a list of labels"
