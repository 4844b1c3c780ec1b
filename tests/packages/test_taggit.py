"""django-taggit: tags, which are written by name."""

from typing import Any

import pytest
from taggit.models import Tag

from mcp_django import Context, ModelToolset
from tests.orm.writing import get_error, get_result
from tests.packages.models import Trip
from tests.packages.trips import TripColumn

pytestmark = pytest.mark.django_db


class VisibleTags(ModelToolset):
    model = Tag
    fields = ["name"]

    def get_queryset(self, ctx: Context) -> Any:
        return super().get_queryset(ctx).exclude(name="internal")


def get_names(pk: Any) -> list[str]:
    return sorted(Trip.objects.get(pk=pk).tags.names())


def test_tags_are_written_as_a_list_of_names() -> None:
    tags = TripColumn("tags")
    created = tags.create(tags=["snow", "long way"])
    assert get_names(created["pk"]) == ["long way", "snow"]
    tags.update(["snow", "a, b"])
    assert get_names(tags.pk) == ["a, b", "snow"]
    assert tags.count(Tag.objects.get(name="snow").pk) == 2
    assert tags.update([]) == []
    assert tags.update(None) == []


def test_an_update_of_other_columns_keeps_the_tags() -> None:
    tags = TripColumn("tags")
    tags.update(["snow"])
    result = get_result(tags.client, "trip_update", pk=tags.pk, values={"name": "Andes"})
    assert (result["changed"], get_names(tags.pk)) == (["name"], ["snow"])


def test_tags_that_the_caller_cannot_see_are_kept() -> None:
    tags = TripColumn("tags", VisibleTags)
    Trip.objects.get().tags.add("internal", "old")
    assert [tag["label"] for tag in tags.update(["new"])] == ["new"]
    assert get_names(tags.pk) == ["internal", "new"]


def test_names_that_cannot_be_tags_are_errors_of_the_field() -> None:
    tags = TripColumn("tags")
    assert "double quotes" in tags.get_problem(['a"b'])
    assert "double quotes" in tags.get_problem([" "])
    for wrong in ("snow", [1], ["x" * 101]):
        assert "values.tags" in get_error(tags.client, "trip_update", pk=tags.pk, values={"tags": wrong})
    assert not Tag.objects.exists()


def test_a_dry_run_creates_no_tags() -> None:
    tags = TripColumn("tags")
    get_result(tags.client, "trip_update", pk=tags.pk, values={"tags": ["snow"]}, dry_run=True)
    assert not Tag.objects.exists()


def test_rows_of_a_model_between_two_models_are_not_written_as_keys() -> None:
    guides = TripColumn("guides")
    text = get_error(guides.client, "trip_update", pk=guides.pk, values={"guides": []})
    assert text.startswith("values: unknown key 'guides'")
