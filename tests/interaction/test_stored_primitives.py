"""Primitives written in the admin reach connected clients."""

from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth import get_user_model
from django.test import Client, override_settings
from django.urls import reverse

from mcp_django.models import StoredPrompt, StoredResource
from tests.interaction.test_subscriptions_listen import acknowledged, disconnect, listen
from tests.settings import MIDDLEWARE

FORM = {
    "name": "greet",
    "enabled": "on",
    "server": "interaction",
    "arguments-TOTAL_FORMS": 1,
    "arguments-INITIAL_FORMS": 0,
    "messages-TOTAL_FORMS": 1,
    "messages-INITIAL_FORMS": 0,
    "arguments-0-name": "who",
    "arguments-0-required": "on",
    "arguments-0-position": 0,
    "messages-0-role": "user",
    "messages-0-kind": "text",
    "messages-0-text": "Hi $who",
    "messages-0-position": 0,
}


async def result(client: Any, method: str, params: Any = None) -> Any:
    return (await client.request(method, params)).result


async def test_a_prompt_written_in_the_admin_appears_at_a_connected_client(
    modern: Any, django_capture_on_commit_callbacks: Any
) -> None:
    def write() -> None:
        browser = Client(SERVER_NAME="localhost")
        browser.force_login(get_user_model()._default_manager.create_superuser("boss"))
        with (
            override_settings(ROOT_URLCONF="tests.urls", MIDDLEWARE=MIDDLEWARE),
            django_capture_on_commit_callbacks(execute=True),
        ):
            assert browser.post(reverse("admin:mcp_django_storedprompt_add"), FORM).status_code == 302

    client = modern()
    exchange = listen(client, promptsListChanged=True)
    await acknowledged(exchange)
    before = [entry["name"] for entry in (await result(client, "prompts/list"))["prompts"]]
    await sync_to_async(write)()
    assert (await exchange.message())["method"] == "notifications/prompts/list_changed"
    names = [entry["name"] for entry in (await result(client, "prompts/list"))["prompts"]]
    assert set(names) - set(before) == {"greet"}
    got = await result(client, "prompts/get", {"name": "greet", "arguments": {"who": "Ada"}})
    assert got["messages"] == [{"role": "user", "content": {"type": "text", "text": "Hi Ada"}}]
    await disconnect(exchange)
    assert await sync_to_async(StoredPrompt.objects.count)() == 1


async def test_saving_a_resource_sends_updated_to_subscribers(
    modern: Any, django_capture_on_commit_callbacks: Any
) -> None:
    def change(text: str) -> None:
        row = StoredResource.objects.filter(uri="docs://a").first() or StoredResource(uri="docs://a", name="a")
        row.text = text
        with django_capture_on_commit_callbacks(execute=True):
            row.save()

    await sync_to_async(change)("before")
    client = modern()
    exchange = listen(client, resourceSubscriptions=["docs://a"])
    assert await acknowledged(exchange) == {"resourceSubscriptions": ["docs://a"]}
    await sync_to_async(change)("after")
    message = await exchange.message()
    assert (message["method"], message["params"]["uri"]) == ("notifications/resources/updated", "docs://a")
    read = await result(client, "resources/read", {"uri": "docs://a"})
    assert read["contents"][0]["text"] == "after"
    await disconnect(exchange)
