"""`MOUNTS`: servers and toolsets of a project within its servers, with rules, rows and events."""

from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from mcp_django import (
    Context,
    ModelToolset,
    Server,
    Toolset,
    conf,
    notify_list_changed,
    notify_resource_updated,
    tool,
)
from mcp_django.auth.authorization.rule_cache import RULE_CACHE
from mcp_django.conf.mounts import iter_hosts
from mcp_django.models import StoredPrompt, StoredResource, ToolPolicy
from mcp_django.protocol.errors import InsufficientScope, InvalidParams, ResourceNotFound
from mcp_django.runtime.events.event_log import EventLog
from mcp_django.runtime.events.list_changes import _get_collections
from mcp_django.server.calls.call import Call
from mcp_django.server.execution.permissions import check_permission
from mcp_django.server.pipeline import Pipeline
from mcp_django.server.primitives import registry
from mcp_django.server.server import Server as AnyServer
from mcp_django.wiring import get_server
from tests.repository.pages import ROOT, python_blocks
from tests.server.client import PipelineClient, make_principal
from tests.shop.models import Category

pytestmark = pytest.mark.django_db
MODULE = __name__


class Weather(Toolset):
    @tool(rate="2/h")
    async def rated(self) -> str:
        return "rated"

    @tool
    async def forecast(self, city: str) -> str:
        return f"{city}: sunny"


class Categories(ModelToolset):
    """Categories, for a mount."""

    model = Category
    fields = ["slug", "name"]
    ordering = ["name"]


BY_HAND = Server("By hand")


@BY_HAND.tool
async def own_names(ctx: Context) -> list[str]:
    return [ctx.server.info.name, str(ctx.tool_name)]


@pytest.fixture(autouse=True)
def internal(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Register the mounted server, and no declarations of other tests."""
    monkeypatch.setattr(registry, "REGISTRIES", {})
    declared = registry.get_registry("internal")
    server = AnyServer("declaring", registry=declared)

    @server.tool
    async def look() -> str:
        return "looked"

    @server.tool(rate="2/h")
    async def rated() -> str:
        return "rated"

    @server.resource("thing://{name}")
    async def thing(name: str) -> str:
        return name

    yield declared
    RULE_CACHE.invalidate()


def served(mounts: dict[str, Any], **internal: Any) -> Any:
    return override_settings(MCP={"AUTH": "token", "SERVERS": {"default": {"MOUNTS": mounts}, "internal": internal}})


def names(**given: Any) -> list[str]:
    found: list[str] = async_to_sync(PipelineClient(get_server(), **given).names)()
    return found


def text(name: str, /, *, principal: Any = None, **arguments: Any) -> str:
    peer = PipelineClient(get_server()) if principal is None else PipelineClient(get_server(), principal)
    found: str = async_to_sync(peer.text)(name, **arguments)
    return found


def test_a_server_a_toolset_a_model_and_a_server_by_hand() -> None:
    what = {"in": "internal", "w": f"{MODULE}.Weather", "c": f"{MODULE}.Categories", "h": f"{MODULE}.BY_HAND"}
    with served(what):
        found = names()
        assert text("in__look") == "looked"
        assert text("w__forecast", city="Bern") == "Bern: sunny"
        assert text("h__own_names") == '["By hand","own_names"]'
    models = ["c__category_count", "c__category_describe", "c__category_get", "c__category_list"]
    assert found == [*models, "h__own_names", "in__look", "in__rated", "w__forecast", "w__rated"]


def test_rows_of_a_mounted_model_are_read_and_described_by_the_names_of_the_host() -> None:
    Category.objects.create(slug="tea", name="Tea")
    with served({"c": {"SERVER": f"{MODULE}.Categories", "URI_PREFIX": "c"}}):
        peer = PipelineClient(get_server())
        described = async_to_sync(peer.call)("c__category_describe")["structuredContent"]
        contents = async_to_sync(peer.request)("resources/read", {"uri": "c+shop.category://tea"})["contents"]
    assert described["tools"][0] == "c__category_describe"
    assert contents[0]["uri"] == "c+shop.category://tea"
    assert "Tea" in contents[0]["text"]


def test_mounted_models_may_share_their_tools() -> None:
    Category.objects.create(slug="tea", name="Tea")
    with override_settings(
        MCP={"AUTH": "none", "ORM_STYLE": "generic", "SERVERS": {"default": {"MOUNTS": {"c": f"{MODULE}.Categories"}}}}
    ):
        assert "c__models_list" in names()
        assert "Tea" in text("c__models_list", model="shop.Category")
        assert "c__models_list" in text("c__models_describe")


def test_a_mount_may_ask_for_a_permission_and_scopes() -> None:
    with served({"in": {"SERVER": "internal", "PERMISSION": "shop.look", "SCOPES": ["in"]}}):
        assert names(principal=make_principal()) == []
        with pytest.raises(InsufficientScope):
            text("in__look", principal=make_principal("shop.look"))
        assert text("in__look", principal=make_principal("shop.look", scopes=["in"])) == "looked"


def test_the_scopes_of_its_endpoint_are_required_in_the_host() -> None:
    with served({"in": "internal"}, REQUIRED_SCOPES=["inside"]):
        with pytest.raises(InsufficientScope):
            text("in__look", principal=make_principal())
        assert text("in__look", principal=make_principal(scopes=["inside"])) == "looked"


# Rules of the admin


def test_a_policy_for_either_name_holds(subtests: pytest.Subtests) -> None:
    for server, pattern in [("default", "in__look"), ("internal", "look"), ("", "*look")]:
        with subtests.test(server=server, pattern=pattern):
            ToolPolicy.objects.all().delete()
            ToolPolicy.objects.create(server=server, tool=pattern, disabled=True)
            RULE_CACHE.invalidate()
            with served({"in": "internal"}):
                assert names(principal=make_principal()) == ["in__rated"]
                with pytest.raises(InvalidParams, match="Unknown tool"):
                    text("in__look", principal=make_principal())


def test_a_policy_for_another_name_does_not(subtests: pytest.Subtests) -> None:
    for server, pattern in [("default", "look"), ("internal", "in__look"), ("other", "look")]:
        with subtests.test(server=server, pattern=pattern):
            ToolPolicy.objects.all().delete()
            ToolPolicy.objects.create(server=server, tool=pattern, disabled=True)
            RULE_CACHE.invalidate()
            with served({"in": "internal"}):
                assert names(principal=make_principal()) == ["in__look", "in__rated"]


def test_policies_for_both_names_hold_together() -> None:
    ToolPolicy.objects.create(server="default", tool="in__*", scopes=["here"])
    ToolPolicy.objects.create(server="internal", tool="look", scopes=["there"])
    RULE_CACHE.invalidate()
    with served({"in": "internal"}):
        for scopes in (["here"], ["there"]):
            with pytest.raises(InsufficientScope) as problem:
                text("in__look", principal=make_principal(scopes=scopes))
            assert set(problem.value.scopes) == {"here", "there"}
        assert text("in__look", principal=make_principal(scopes=["here", "there"])) == "looked"


def test_a_rate_is_counted_for_both_ways_together() -> None:
    caller = make_principal(name="rated by both")
    with served({"in": "internal", "again": "internal"}):
        at_home = PipelineClient(get_server("internal"), caller)
        assert async_to_sync(at_home.text)("rated") == "rated"
        assert text("in__rated", principal=caller) == "rated"
        assert "too often" in async_to_sync(PipelineClient(get_server(), caller).error)("again__rated")
        assert "too often" in async_to_sync(at_home.error)("rated")


@pytest.mark.parametrize(("server", "pattern"), [("default", "c__category_get"), ("default", "c__*")])
def test_disabling_a_tool_disables_its_resources(server: str, pattern: str) -> None:
    Category.objects.create(slug="tea", name="Tea")
    with served({"c": f"{MODULE}.Categories"}):
        peer = PipelineClient(get_server(), make_principal("shop.view_category"))
        assert async_to_sync(peer.request)("resources/read", {"uri": "shop.category://tea"})["contents"]
        ToolPolicy.objects.create(server=server, tool=pattern, disabled=True)
        RULE_CACHE.invalidate()
        with pytest.raises(ResourceNotFound):
            async_to_sync(peer.request)("resources/read", {"uri": "shop.category://tea"})
        templates = async_to_sync(peer.names)("resources/templates/list", "resourceTemplates", "uriTemplate")
        assert "shop.category://{pk}" not in templates


def test_a_tool_within_a_sample_is_authorized_by_its_name_in_the_host() -> None:
    ToolPolicy.objects.create(server="default", tool="h__own_names", disabled=True)
    RULE_CACHE.invalidate()
    with served({"h": f"{MODULE}.BY_HAND"}):
        call = _view_of_mounted()
        with pytest.raises(InvalidParams, match="gone"):
            async_to_sync(check_permission)(call, BY_HAND.registry.tools.sorted()[0], InvalidParams("gone"), {})


def _view_of_mounted() -> Call:
    """Return a call as the server built by hand sees it."""
    server = get_server()
    seen: list[Call] = []

    async def look() -> None:
        peer = PipelineClient(server)
        server.middleware = (note,)
        peer.pipeline = Pipeline(server)
        await peer.names()

    async def note(call: Call, call_next: Any) -> Any:
        seen.append(call)
        return await call_next(call)

    async_to_sync(look)()
    return server.parts[0].view_call(seen[0])


# Stored rows


def test_rows_of_the_mounted_server_are_served_and_common_rows_once() -> None:
    StoredPrompt.objects.create(name="everywhere")
    StoredPrompt.objects.create(name="inside", server="internal")
    StoredResource.objects.create(uri="docs://all", name="all", text="all")
    StoredResource.objects.create(uri="docs://in", name="in", text="in", server="internal")
    with served({"in": {"SERVER": "internal", "URI_PREFIX": "in"}}):
        peer = PipelineClient(get_server())
        prompts = async_to_sync(peer.names)("prompts/list", "prompts")
        uris = async_to_sync(peer.names)("resources/list", "resources", "uri")
        contents = async_to_sync(peer.request)("resources/read", {"uri": "in+docs://in"})["contents"]
    assert prompts == ["everywhere", "in__inside"]
    assert uris == ["docs://all", "in+docs://in"]
    assert contents[0]["uri"] == "in+docs://in"


# Events


@pytest.fixture
def published() -> Callable[[], list[tuple[str, str, Any]]]:
    start = EventLog().head()
    return lambda: [tuple(event[1:]) for event in EventLog().read(start)]  # type: ignore[misc]


def test_updates_are_published_to_the_host_with_its_uris(
    published: Any, django_capture_on_commit_callbacks: Any
) -> None:
    mounts = {"in": {"SERVER": "internal", "URI_PREFIX": "in"}, "plain": "internal"}
    with served(mounts), django_capture_on_commit_callbacks(execute=True):
        notify_resource_updated("thing://a", server="internal")
    assert {(topic, payload["uri"]) for topic, _, payload in published()} == {
        ("changes:internal", "thing://a"),
        ("changes:default", "thing://a"),
        ("changes:default", "in+thing://a"),
    }


def test_a_changed_list_is_published_to_the_host(published: Any, django_capture_on_commit_callbacks: Any) -> None:
    with served({"in": "internal"}), django_capture_on_commit_callbacks(execute=True):
        notify_list_changed("tools", server="internal")
    assert [topic for topic, _, _ in published()] == ["changes:internal", "changes:default"]


def test_saved_rows_of_a_mounted_model_are_published(published: Any, django_capture_on_commit_callbacks: Any) -> None:
    with served({"c": {"SERVER": f"{MODULE}.Categories", "URI_PREFIX": "c"}}):
        get_server()
        with django_capture_on_commit_callbacks(execute=True):
            Category.objects.create(slug="tea", name="Tea")
    assert ("changes:default", "updated", {"uri": "c+shop.category://tea"}) in published()


async def test_a_later_registration_in_a_mount_changes_the_lists_of_the_host() -> None:
    with served({"in": "internal"}):
        server = get_server()
        version, before = server.registry.version, _get_collections(server)
        get_server("internal").tool(name="late")(own_names)
        assert server.registry.version > version
        assert _get_collections(server)["tools"] != before["tools"]
        assert "in__late" in await PipelineClient(server).names()
        get_server("internal").remove("tool", "late")
        assert "in__late" not in await PipelineClient(server).names()


def test_every_host_is_listed_with_its_uri_prefix() -> None:
    servers = {
        "default": {"MOUNTS": {"a": {"SERVER": "first", "URI_PREFIX": "a"}}},
        "first": {"MOUNTS": {"b": {"SERVER": "second", "URI_PREFIX": "b"}, "w": {"SERVER": "x.y", "URI_PREFIX": "w"}}},
        "second": {},
    }
    with override_settings(MCP={"SERVERS": servers}):
        known = conf.get_settings().servers
        assert list(iter_hosts(known, "second")) == [("second", ""), ("first", "b+"), ("default", "a+b+")]
        assert list(iter_hosts(known, "first")) == [
            ("first", ""),
            ("default", "a+"),
            ("first", "w+"),
            ("default", "a+w+"),
        ]
        assert list(iter_hosts(known, "default")) == [("default", "")]


# Settings


def test_an_invalid_entry_is_refused(subtests: pytest.Subtests) -> None:
    for mounts, text in [
        (["internal"], "must be a dict from prefixes"),
        ({"in": 3}, "must name an alias"),
        ({"in": {"URI_PREFIX": "in"}}, "needs a WHAT"),
        ({"in": {"SERVER": "internal", "SCOPE": ["x"]}}, "'SCOPE'"),
        ({"in": {"SERVER": "internal", "URI_PREFIX": "a b"}}, "URI_PREFIX"),
        ({"in": {"SERVER": "internal", "SCOPES": "x"}}, "must be a list"),
        ({"in": {"SERVER": "internal", "PERMISSION": 3}}, "must be a list"),
    ]:
        with (
            subtests.test(mounts=mounts, text=text),
            served(mounts),
            pytest.raises(ImproperlyConfigured, match=text),
        ):
            conf.get_settings()


# docs/expose/composition.md


def test_the_settings_on_the_page_can_be_read() -> None:
    (block,) = [block for block in python_blocks(ROOT / "docs/expose/composition.md") if "MCP =" in block]
    written: dict[str, Any] = {}
    exec(block, written)
    written["MCP"]["SERVERS"]["default"]["MOUNTS"]["weather"] = f"{MODULE}.Weather"
    with override_settings(MCP={"AUTH": "token", **written["MCP"]}):
        assert names() == ["staff__look", "staff__rated", "weather__forecast", "weather__rated"]
        assert names(principal=make_principal()) == ["weather__forecast", "weather__rated"]


async def test_the_server_on_the_page_serves_the_documented_names() -> None:
    blocks = [block for block in python_blocks(ROOT / "docs/expose/composition.md") if "Mount(" in block]
    written: dict[str, Any] = {}
    exec(blocks[0], written)
    with override_settings(MCP={"AUTH": "none"}):
        server = written["host"].bind((await sync_to_async(get_server)()).ports)
        peer = PipelineClient(server)
        assert await peer.names() == ["w__forecast", "weather__forecast"]
        templates = await peer.names("resources/templates/list", "resourceTemplates", "uriTemplate")
        assert templates == ["city://{name}", "w+city://{name}"]
