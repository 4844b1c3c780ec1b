"""Rows of toolsets: subscribers with read permission are notified of changes."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import TestCase, override_settings

from mcp_django import ModelInline, ModelToolset, register
from mcp_django.notifications import row_signals
from mcp_django.protocol.errors import ResourceNotFound
from mcp_django.runtime.events.event_log import EventLog
from mcp_django.server.calls.call import Call, Connection
from mcp_django.server.pipeline import Pipeline
from mcp_django.server.primitives.registry import Registry
from mcp_django.server.server import Server
from tests.orm.object_backends import FILTER, grant, object_permissions
from tests.orm.toolsets import Orders, Tags, principal
from tests.server.client import HANDSHAKE, PipelineClient, ports
from tests.server.listening import ChangeLog, ListenClient, taken
from tests.shop.models import Line, Order, Product, Tag

pytestmark = pytest.mark.django_db


class Listener(ListenClient):
    """A client that listens to orders."""

    def __init__(self, who: Any, toolset: type[ModelToolset] = Orders) -> None:
        self.log = ChangeLog()
        self.server = Server("tests", "1", ports=ports(change_feed=self.log), toolsets=[toolset()])
        self.pipeline = Pipeline(self.server)
        self.connection = Connection(who, shared_calls={})


class Proxied(Tag):
    """Tags under another name."""

    class Meta:
        proxy = True
        app_label = "shop"


@pytest.fixture(autouse=True)
def registries(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replace the registries for the test, and disconnect the models at the end."""
    ties: list[Callable[[], None]] = []
    tie = row_signals.publish_changes
    monkeypatch.setattr("mcp_django.server.primitives.registry.REGISTRIES", registries := {})
    monkeypatch.setattr(row_signals, "REGISTRIES", registries)
    monkeypatch.setattr(row_signals, "publish_changes", lambda *args, **kwargs: ties.append(tie(*args, **kwargs)))
    yield
    for untie in ties:
        untie()


def list_published(change: Callable[[], Any]) -> list[tuple[str, str, Any]]:
    """List the events that a change publishes at its commit: topic, kind and URI."""
    start = EventLog().head()
    with TestCase.captureOnCommitCallbacks(execute=True):
        change()
    return [(event.topic, event.kind, event.payload.get("uri")) for event in EventLog().read(start)]


def test_a_saved_or_deleted_row_is_published() -> None:
    register(Tag)(Tags)
    tag = Tag.objects.create(name="hot")
    uri = f"shop.tag://{tag.pk}"
    assert list_published(tag.save) == [("changes:default", "updated", uri)]
    assert list_published(tag.delete) == [("changes:default", "updated", uri)]


def test_a_row_is_published_with_the_primary_key_of_its_toolset() -> None:
    register(Proxied)(type("Proxies", (ModelToolset,), {"fields": ["name"]}))
    tag = Tag.objects.create(name="hot")
    assert list_published(tag.save) == [("changes:default", "updated", f"shop.proxied://{tag.pk}")]


def test_a_row_changes_with_its_nested_rows() -> None:
    class Lines(ModelInline):
        model = Line
        fields = ["quantity"]

    register(Order)(type("Whole", (ModelToolset,), {"fields": ["reference"], "inlines": [Lines]}))
    order = Order.objects.create(owner=User.objects.create(username="ada"), reference="1")
    line = Line(order=order, product=Product.objects.create(name="Tea"))
    assert list_published(line.save) == [("changes:default", "updated", f"shop.order://{order.pk}")]
    assert list_published(line.delete) == [("changes:default", "updated", f"shop.order://{order.pk}")]


@pytest.mark.parametrize("attributes", [{"publish_changes": False}, {"resources": False}, {"tools": ["list"]}])
def test_rows_without_resources_or_notifications_are_not_published(attributes: dict[str, Any]) -> None:
    register(Tag)(type("Quiet", (Tags,), attributes))
    assert list_published(lambda: Tag.objects.create(name="hot")) == []


@override_settings(MCP={"AUTH": "none", "SERVERS": {"default": {}, "staff": {}}})
def test_a_row_is_published_to_its_servers_only() -> None:
    register(Tag, server="staff")(Tags)
    register(Tag, server="nowhere")(Tags)
    Server("own", "1", registry=Registry("default"), toolsets=[Tags()], ports=ports())
    assert [topic for topic, *_ in list_published(lambda: Tag.objects.create(name="hot"))] == ["changes:staff"]


async def test_a_subscription_to_all_rows_covers_readable_rows_only() -> None:
    ada, bob = [await User.objects.acreate(username=name, is_superuser=True) for name in ("ada", "bob")]
    mine, theirs = [await Order.objects.acreate(owner=owner, reference="1") for owner in (ada, bob)]
    client = Listener(principal(ada))
    uris = [f"shop.order://{order.pk}" for order in (mine, theirs)]
    stream = await client.listen(1, resourceSubscriptions=["shop.order://", uris[1]])
    [acknowledged] = await taken(stream) or []
    assert acknowledged["params"]["notifications"] == {"resourceSubscriptions": ["shop.order://"]}
    for uri in uris:
        client.log.deliver("updated", uri=uri)
    assert [message["params"]["uri"] for message in await taken(stream) or []] == [uris[0]]


async def test_object_permissions_are_checked_for_each_notification(subtests: pytest.Subtests) -> None:
    shown, hidden = [await Tag.objects.acreate(name=name) for name in ("shown", "hidden")]
    sue = await User.objects.acreate(username="sue")
    uris = [f"shop.tag://{tag.pk}" for tag in (shown, hidden)]
    for stated in ("some", FILTER):
        with subtests.test(stated=stated), object_permissions(stated):
            grant("sue", "shop.view_tag", name="shown")
            client = Listener(principal(sue), Tags)
            stream = await client.listen(1, resourceSubscriptions=["shop.tag://", uris[1]])
            [acknowledged] = await taken(stream) or []
            assert acknowledged["params"]["notifications"] == {"resourceSubscriptions": ["shop.tag://"]}
            for uri in uris:
                client.log.deliver("updated", uri=uri)
            assert [message["params"]["uri"] for message in await taken(stream) or []] == [uris[0]]


async def test_a_subscription_to_a_row_needs_read_permission() -> None:
    changes, subscribed = ChangeLog(), list[str]()

    async def subscribe(call: Call, uri: str) -> None:
        subscribed.append(uri)

    changes.subscribe = subscribe  # type: ignore[method-assign]
    server = Server("tests", "1", ports=ports(change_feed=changes), toolsets=[Orders()])
    ada, bob = [await User.objects.acreate(username=name, is_superuser=True) for name in ("ada", "bob")]
    order = await Order.objects.acreate(owner=ada, reference="A-1")
    uri = f"shop.order://{order.pk}"
    await PipelineClient(server, principal=principal(ada), version=HANDSHAKE).request(
        "resources/subscribe", {"uri": uri}
    )
    for wrong in (uri, "shop.order://00000000-0000-0000-0000-000000000000"):
        with pytest.raises(ResourceNotFound):
            await PipelineClient(server, principal=principal(bob), version=HANDSHAKE).request(
                "resources/subscribe", {"uri": wrong}
            )
    assert subscribed == [uri]
