"""Two sources of one name: the report, and the source that is served."""

from collections.abc import Iterable
from typing import Any

import pytest
from django.core.checks import CheckMessage
from django.test import override_settings

from mcp_django import Context, Server, Toolset, resource, tool
from mcp_django.checks.declarations import check_composition
from mcp_django.providers.mounts import Mount
from mcp_django.schema import DeclarationError
from mcp_django.server.composition.provider import Provider
from mcp_django.server.primitives import registry
from mcp_django.server.primitives.base import Tool
from mcp_django.server.primitives.registry import Registry
from tests.server.client import PipelineClient, make_server


class One(Toolset):
    """Something to collide with."""

    @tool
    async def look(self) -> str:
        return "one"

    @resource("thing://{name}")
    def thing(self, name: str) -> str:
        return name

    @resource("thing:all")
    def things(self) -> str:
        return "all"


class Other(Toolset):
    @tool
    async def look(self) -> str:
        return "other"


def registered() -> Registry:
    """Build a registry with names that a mount may bring, too."""
    server = Server("own")

    @server.tool(name="one__look")
    async def own_look() -> str:
        return "own"

    return server.registry


# Refused at the start


def test_a_tool_that_is_registered_and_mounted_is_refused_with_both_sources_named() -> None:
    with pytest.raises(DeclarationError) as problem:
        make_server(registry=registered(), mounts=[Mount(One, prefix="one")])
    text = str(problem.value)
    assert "'one__look'" in text
    assert "One.look" in text
    assert "mounted as 'one'" in text
    assert "own_look" in text


def test_two_mounts_of_the_same_names_are_refused() -> None:
    with pytest.raises(DeclarationError, match=r"Other\.look.*One\.look"):
        make_server(mounts=[Mount(One, prefix="x"), Mount(Other, prefix="x")])


def test_one_name_through_two_mounts_is_refused() -> None:
    inner = Server("inner", mounts=[Mount(Other, prefix="b")])
    renamed = Server("renamed")

    @renamed.tool(name="b__look")
    async def look() -> str:
        return "look"

    with pytest.raises(DeclarationError, match="'a__b__look'"):
        make_server(mounts=[Mount(inner, prefix="a"), Mount(renamed, prefix="a")])


def test_resources_and_templates_collide_by_their_uris(subtests: pytest.Subtests) -> None:
    for what in ["thing://{name}", "thing:all"]:
        with subtests.test(what=what):
            own = Server("own")

            @own.resource(what)
            async def things(**name: str) -> str: ...  # type: ignore[empty-body]

            with pytest.raises(DeclarationError, match="already registered"):
                make_server(registry=own.registry, mounts=[Mount(One, prefix="one")])


def test_a_uri_prefix_keeps_two_instances_apart() -> None:
    server = make_server(mounts=[Mount(One, prefix="a"), Mount(One, prefix="b", uri_prefix="b")])
    assert len(server.registry.templates) == 2


def test_a_later_collision_in_the_host_is_refused_and_not_registered() -> None:
    server = make_server(mounts=[Mount(One, prefix="one")])
    with pytest.raises(DeclarationError, match="already registered"):

        @server.tool(name="one__look")
        async def own_look() -> str:
            return "own"

    assert len(server.registry.tools) == 1


def test_a_name_that_becomes_too_long_is_refused() -> None:
    long = Server("long")

    @long.tool(name="a" * 60)
    async def tool() -> None: ...

    with pytest.raises(DeclarationError, match="1 to 64"):
        make_server(mounts=[Mount(long, prefix="prefix")])


# Logged, if the collision is known only later


async def test_a_later_collision_in_a_mount_is_hidden_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    mounted = Server("mounted")
    server = make_server(registry=registered(), mounts=[Mount(mounted, prefix="one")])

    @mounted.tool
    async def look() -> str:
        return "late"

    assert await PipelineClient(server).text("one__look") == "own"
    assert "own_look" in caplog.text
    assert "mounted as 'one'" in caplog.text


class Live(Provider):
    offers = frozenset({"tools"})

    def __init__(self, *tools: Tool) -> None:
        self._tools = tools

    async def tools(self, ctx: Context) -> Iterable[Tool]:
        return self._tools


def live(source: str) -> Live:
    server = Server(source)

    @server.tool(name="one__look")
    async def look() -> str:
        return source

    (found,) = server.registry.tools
    found.source = source
    return Live(found)


async def test_of_two_providers_the_first_is_served_and_both_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = make_server(providers=[live("first"), live("second")])
    peer = PipelineClient(server)
    for _ in range(3):
        assert await peer.names() == ["one__look"]
    assert await peer.text("one__look") == "first"
    (record,) = caplog.records
    assert "using the one from first, ignoring the one from second" in record.getMessage()


async def test_a_mount_comes_before_a_provider(caplog: pytest.LogCaptureFixture) -> None:
    server = make_server(mounts=[Mount(One, prefix="one")], providers=[live("first")])
    peer = PipelineClient(server)
    await peer.names()
    assert await peer.text("one__look") == "one"
    (record,) = caplog.records
    assert "One.look" in record.getMessage()
    assert "first" in record.getMessage()


# Under settings


@pytest.fixture(autouse=True)
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the registries: declarations of other tests do not count."""
    monkeypatch.setattr(registry, "REGISTRIES", {})


def reported() -> list[CheckMessage]:
    return check_composition(None)


PATH = f"{__name__}.One"
MODULE_LEVEL = Server("Module level", mounts=[])


def mounting(**mounts: Any) -> Any:
    return override_settings(MCP={"AUTH": "token", "SERVERS": {"default": {"MOUNTS": mounts}, "other": {}}})


def test_valid_mounts_report_nothing() -> None:
    with mounting(one=PATH, two={"SERVER": PATH, "URI_PREFIX": "two"}, other="other"):
        assert reported() == []


def test_a_collision_is_an_error_that_names_both() -> None:
    registry.get_registry("default").add(lambda: next(iter(registered().tools)), "here")
    with mounting(one=PATH):
        (found,) = reported()
    assert found.id == "mcp_django.E061"
    assert "own_look" in found.msg
    assert "One.look" in found.msg


def test_an_invalid_mount_is_an_error_with_the_reason(subtests: pytest.Subtests) -> None:
    for mounts, text in [
        ({"x": "othr"}, 'did you mean "other"?'),
        ({"x": f"{__name__}.Nothing"}, "Nothing"),
        ({"x": "tests.nowhere.Weather"}, "No module named"),
        ({"x": f"{__name__}.PATH"}, "a server or a toolset"),
        ({"__": PATH}, "the prefix '__'"),
        ({"x": "default"}, "form a cycle: default → default"),
    ]:
        with subtests.test(mounts=mounts, text=text):
            with mounting(**mounts):
                (found,) = reported()
            assert found.id == "mcp_django.E060"
            assert text in found.msg
            assert "MOUNTS" in found.msg


def test_circular_mounts_are_refused_with_the_chain_named() -> None:
    servers = {
        "default": {"MOUNTS": {"a": "first"}},
        "first": {"MOUNTS": {"b": "second"}},
        "second": {"MOUNTS": {"c": "first"}},
    }
    with override_settings(MCP={"AUTH": "token", "SERVERS": servers}):
        found = reported()
    assert [message.id for message in found] == ["mcp_django.E060"] * 3
    assert "first → second → first" in found[0].msg


def test_what_an_endpoint_asks_by_a_function_cannot_be_gone_round(subtests: pytest.Subtests) -> None:
    for theirs, text in [
        ({"AUTHORIZER": f"{__name__}.reported"}, "AUTHORIZER"),
        ({"REQUIRED_SCOPES": f"{__name__}.reported"}, "REQUIRED_SCOPES"),
    ]:
        with subtests.test(theirs=theirs, text=text):
            servers = {"default": {"MOUNTS": {"x": "inner"}}, "inner": theirs}
            with override_settings(MCP={"AUTH": "token", "SERVERS": servers}):
                (found,) = reported()
            assert text in found.msg
            servers = {"default": {"MOUNTS": {"x": "inner"}, **theirs}, "inner": theirs}
            with override_settings(MCP={"AUTH": "token", "SERVERS": servers}):
                assert reported() == []
