"""Schemas of many views: compiled together, on one thread, each serializer once."""

import threading
from typing import Any

import pytest
from django.db import OperationalError
from drf_spectacular.openapi import AutoSchema
from rest_framework import serializers, viewsets
from rest_framework.response import Response
from rest_framework.views import APIView

from mcp_django import Server
from mcp_django.contrib.rest import expose
from mcp_django.contrib.rest.tools import ViewTool
from tests.library.models import Book
from tests.server.client import PipelineClient, make_server

pytestmark = pytest.mark.urls("tests.library.urls")
DESCRIBED: list[str] = []
RESPONSES: list[str] = []
THREADS: set[str] = set()


class CountingSchema(AutoSchema):
    """Schema class that notes each description of a serializer, and its thread."""

    def _map_serializer(self, serializer: Any, direction: Any, bypass_extensions: bool = False) -> Any:
        DESCRIBED.append(f"{type(serializer).__qualname__} {direction}")
        THREADS.add(threading.current_thread().name)
        return super()._map_serializer(serializer, direction, bypass_extensions)

    def get_response_serializers(self) -> Any:
        RESPONSES.append(f"{self.view.action} {self.method}")
        return super().get_response_serializers()


class RackSerializer(serializers.Serializer):
    row = serializers.IntegerField()


class CopySerializer(serializers.Serializer):
    number = serializers.IntegerField()
    rack = RackSerializer()


class Copies(viewsets.ModelViewSet):
    schema = CountingSchema()
    queryset = Book.objects.all()
    serializer_class = CopySerializer


class Papers(Copies):
    class OtherSerializer(serializers.Serializer):
        colour = serializers.CharField()
        copy = CopySerializer()

    OtherSerializer.__name__ = "RackSerializer"
    serializer_class = OtherSerializer


@pytest.fixture(autouse=True)
def _nothing_noted() -> None:
    DESCRIBED.clear()
    RESPONSES.clear()
    THREADS.clear()


def served(*views: Any) -> Server:
    server = make_server()
    for view in views:
        expose(view, server=server, actions=["list", "create", "retrieve"], prefix=f"{view.__name__.lower()}_")
    return server


async def list_tools(server: Server) -> dict[str, Any]:
    return {tool["name"]: tool for tool in (await PipelineClient(server).request("tools/list"))["tools"]}


async def test_a_list_describes_each_serializer_once_and_on_one_thread() -> None:
    tools = await list_tools(served(Copies))
    assert tools["copies_create"]["inputSchema"]["required"] == ["number", "rack"]
    # A serializer is described once, or once for requests and once for responses.
    requests = ["CopySerializer request", "RackSerializer request"]
    responses = ["CopySerializer response", "RackSerializer response"]
    assert sorted(DESCRIBED) in (requests, sorted(requests + responses))
    assert sorted(RESPONSES) == ["create POST", "list GET", "retrieve GET"]
    assert len(THREADS) == 1


async def test_serializers_of_one_name_are_not_mixed_up() -> None:
    tools = await list_tools(served(Copies, Papers))
    rack = {"type": "object", "properties": {"row": {"type": "integer"}}, "required": ["row"]}
    assert tools["copies_create"]["inputSchema"]["properties"]["rack"] == rack
    assert set(tools["papers_create"]["inputSchema"]["properties"]) == {"colour", "copy"}


async def test_a_description_that_fails_leaves_no_trace_in_the_others(caplog: pytest.LogCaptureFixture) -> None:
    class BrokenSerializer(serializers.Serializer):
        copy = CopySerializer()

        @property
        def broken(self) -> Any:
            raise AttributeError("broken")

        def get_fields(self) -> Any:
            fields = super().get_fields()
            fields["late"] = self.broken
            return fields

    class Broken(Copies):
        serializer_class = BrokenSerializer

    tools = await list_tools(served(Broken, Copies))
    assert set(tools["copies_create"]["inputSchema"]["properties"]) == {"number", "rack"}


def test_entries_that_are_built_on_threads_share_the_descriptions() -> None:
    for tool in served(Copies).registry.tools:
        assert tool.wire["inputSchema"]
    assert DESCRIBED
    assert len(DESCRIBED) == len(set(DESCRIBED))


async def test_a_call_compiles_its_own_plan_only() -> None:
    class Plain(viewsets.ViewSet):
        def list(self, request: Any) -> Response:
            return Response({})

        retrieve = list

    server = served(Copies)
    expose(Plain, server=server, prefix="plain_")
    assert await PipelineClient(server).text("plain_list") == "{}"
    assert {tool.name for tool in server.registry.tools if isinstance(tool, ViewTool) and tool.exposed.has_plan()} == {
        "plain_list"
    }


async def test_a_database_that_fails_for_a_while_leaves_no_schema_without_types(subtests: pytest.Subtests) -> None:
    for schema_class in (CountingSchema, type(APIView.schema)):
        failures = [OperationalError("server closed the connection"), OperationalError("server is starting")]

        class ColourSerializer(serializers.Serializer):
            name = serializers.CharField()

            def get_fields(self, failures: list[Exception] = failures) -> Any:
                if failures:
                    raise failures.pop()
                return super().get_fields()

        class Colours(Copies):
            schema = schema_class()
            serializer_class = ColourSerializer

        with subtests.test(schema_class=schema_class):
            server = make_server()
            expose(Colours, server=server, actions=["create"], prefix="colour_")
            assert await list_tools(server) == {}
            tools = await list_tools(server)
            assert tools["colour_create"]["inputSchema"]["required"] == ["name"]
