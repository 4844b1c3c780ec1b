"""Columns and managers of packages that fail while schemas are built."""

from typing import Any

import pytest
from django.core.checks import CheckMessage
from django.db import models
from django.test.utils import isolate_apps
from django_countries.fields import CountryField
from django_scopes import ScopedManager, scope

from mcp_django import ModelToolset, register
from mcp_django.checks import declarations, toolsets
from mcp_django.server.primitives import registry
from mcp_django.server.primitives.registry import Registry
from tests.server.client import PipelineClient, make_server

WRITING = ["describe", "list", "get", "create", "update"]


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The registry of this test, which collects problems."""
    monkeypatch.setattr(registry, "REGISTRIES", {})
    monkeypatch.setattr(registry, "MARKED_METHODS", registry.MarkedMethods())
    return registry.get_registry("default")


def declare(name: str, /, **attributes: Any) -> None:
    """Register a toolset of a new model."""
    meta = type("Meta", (), {"app_label": "packages"})
    model: Any = type(name, (models.Model,), {"__module__": "tests.packages.models", "Meta": meta, **attributes})
    fields = [name for name in attributes if name != "objects"]
    register(model)(type(f"{name}Rows", (ModelToolset,), {"fields": fields, "tools": WRITING}))


def check() -> list[CheckMessage]:
    """The messages of `manage.py check`."""
    return [*declarations.check_declarations(), *toolsets.check_toolsets()]


@isolate_apps("tests.packages")
async def test_several_countries_in_a_column_leave_the_other_tools(found: Registry) -> None:
    declare("Trip", countries=CountryField(multiple=True))
    declare("Plain", name=models.CharField(max_length=5))
    messages = check()
    for message in messages:
        assert (message.id, "TripRows" in message.msg, "'countries'" in message.msg) == ("mcp_django.E004", True, True)
    names = await PipelineClient(make_server(registry=found)).names()
    assert {"trip_list", "trip_get", "trip_describe", "plain_create", "plain_update", "plain_list"} <= {*names}


@isolate_apps("tests.packages")
async def test_a_manager_that_refuses_queries_without_a_scope_does_not_stop_writing_toolsets(found: Registry) -> None:
    declare("Event", name=models.CharField(max_length=5), objects=ScopedManager(name="name"))
    [event] = [one.model for one in found.toolsets]
    relations: dict[str, Any] = {
        "event": models.ForeignKey(event, models.CASCADE),
        "others": models.ManyToManyField(event, related_name="+"),
    }
    declare("Order", **relations, objects=ScopedManager(event="event"))
    assert check() == []
    names = await PipelineClient(make_server(registry=found)).names()
    assert {"order_create", "order_update", "event_create"} <= {*names}

    toolset = found.toolsets[1]
    with scope(name="a", event=1):
        form = toolset.default_form()
        assert '"name" = a' in str(form.fields["event"].queryset.query)
    with scope(name="b", event=1):
        assert '"name" = b' in str(toolset.default_form().fields["others"].queryset.query)
