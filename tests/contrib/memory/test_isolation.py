"""Isolation of owners: each request, tried with names of another owner, is answered exactly as for an absent row."""

import importlib.util
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import AnonymousUser, Permission, User
from django.core.management import call_command

from mcp_django.auth.principal import PROJECT_ISSUER, DjangoPrincipal, local_principal
from mcp_django.contrib.memory import mcp_tools
from mcp_django.contrib.memory.models import Conversation, Fact, Owner
from mcp_django.protocol.errors import MCPError, ResourceNotFound
from mcp_django.server.primitives import registry
from tests.contrib.memory.clients import Client, client_of, machine_client, user_client, user_messages
from tests.support.savepoints import rolled_back

SECRET = "Zanzibar"


async def keep(client: Client) -> tuple[str, str]:
    """Save a conversation and a fact with the word. Return their ids."""
    saved = await client.ok("save_conversation", messages=user_messages(SECRET), title=SECRET, tags=[SECRET])
    fact = await client.ok("save_user_fact", text=SECRET, category=SECRET, tags=[SECRET])
    return saved["id"], fact["fact"]["id"]


ABSENT = "0" * 24


def test_ids_of_other_owners_are_treated_like_absent_ids(ada: Client, bob: Client, subtests: pytest.Subtests) -> None:
    async def check(tool: str, kind: int) -> None:
        foreign = (await keep(ada))[kind]
        assert await bob.call(tool, id=foreign) == await bob.call(tool, id=ABSENT)
        assert (await Conversation.objects.acount(), await Fact.objects.acount()) == (1, 1)

    for tool, kind in (("get_conversation", 0), ("delete_conversation", 0), ("delete_user_fact", 1)):
        with subtests.test(tool=tool, kind=kind), rolled_back():
            async_to_sync(check)(tool, kind)


async def test_resources_of_other_owners_are_not_found(ada: Client, bob: Client) -> None:
    foreign, _ = await keep(ada)
    problems = []
    for id in (foreign, ABSENT, "a%2Fb", "%00", "..", "x" * 5000):
        with pytest.raises(ResourceNotFound) as caught:
            await bob.read(f"memory://conversations/{id}")
        problems.append((caught.value.code, str(caught.value).replace(id, "ID")))
    assert len(set(problems[:2])) == 1
    assert SECRET in (await ada.read(f"memory://conversations/{foreign}"))["text"]
    assert SECRET not in (await bob.read("memory://facts"))["text"]


def test_lists_searches_and_counts_include_the_owner_s_rows_only(
    ada: Client, bob: Client, subtests: pytest.Subtests
) -> None:
    async def check(tool: str, arguments: dict[str, Any]) -> None:
        empty = await bob.ok(tool, **arguments)
        await keep(ada)
        assert await bob.ok(tool, **arguments) == empty
        assert empty["total"] == 0
        assert SECRET not in repr(await bob.call(tool, **arguments))

    cases = (
        ("list_conversations", {}),
        ("list_conversations", {"query": SECRET}),
        ("list_conversations", {"tag": SECRET}),
        ("list_conversations", {"query": "% _ a OR 1"}),
        ("get_user_facts", {}),
        ("get_user_facts", {"category": SECRET}),
        ("get_user_facts", {"tag": SECRET}),
        ("search_user_facts", {"query": SECRET}),
        ("search_user_facts", {"query": SECRET, "category": SECRET, "tag": SECRET}),
    )
    for tool, arguments in cases:
        with subtests.test(tool=tool, arguments=arguments), rolled_back():
            async_to_sync(check)(tool, arguments)


async def test_cursors_of_other_owners_are_refused(ada: Client, bob: Client) -> None:
    for client in (ada, bob):
        for number in range(3):
            await client.ok("save_conversation", messages=user_messages(f"{number}"))
            await client.ok("save_user_fact", text=f"Fact {number}")
    for tool, arguments in (
        ("list_conversations", {}),
        ("get_user_facts", {}),
        ("search_user_facts", {"query": "fact"}),
    ):
        cursor = (await ada.ok(tool, limit=1, **arguments))["next_cursor"]
        assert "invalid for this list" in await bob.error(tool, cursor=cursor, **arguments)


async def test_completions_include_the_owner_s_ids_only(ada: Client, bob: Client) -> None:
    id, _ = await keep(ada)
    for value in ("", id, id[:3], SECRET, SECRET[:3].lower()):
        assert await ada.complete(value) == [id]
        assert await bob.complete(value) == []


async def test_two_owners_may_use_the_same_ids(ada: Client, bob: Client) -> None:
    for client, text in ((ada, "Ada's"), (bob, "Bob's")):
        assert (await client.ok("save_conversation", id="x", messages=user_messages(text)))["created"]
        assert (await client.ok("save_user_fact", id="x", text=text))["created"]
    await bob.ok("save_conversation", id="x", messages=user_messages("more"), mode="append")
    await bob.ok("delete_user_fact", id="x")
    assert (await ada.ok("get_conversation", id="x"))["message_count"] == 1
    assert (await ada.ok("get_user_facts"))["facts"][0]["text"] == "Ada's"
    assert await ada.ok("delete_conversation", id="x") == {"deleted": True}
    assert (await bob.ok("get_conversation", id="x"))["message_count"] == 2


async def test_the_same_text_of_another_owner_is_another_fact(ada: Client, bob: Client) -> None:
    await ada.ok("save_user_fact", text="Likes tea.", category="ada")
    saved = await bob.ok("save_user_fact", text="Likes tea.")
    assert (saved["created"], saved["fact"]["category"]) == (True, "")


@pytest.mark.django_db
async def test_the_owner_is_the_issuer_and_subject_and_not_the_user_alone() -> None:
    """Two subjects that a verifier lets act as one user share nothing."""
    shared = await User.objects.acreate(username="api")
    one, two, other = (
        client_of(DjangoPrincipal(issuer=issuer, subject=subject, user=shared))
        for issuer, subject in (("as", "1"), ("as", "2"), ("other", "1"))
    )
    await keep(one)
    for client in (two, other):
        assert (await client.ok("get_user_facts"))["total"] == 0


@pytest.mark.django_db
async def test_similar_principals_never_share_an_owner() -> None:
    await keep(client_of(DjangoPrincipal(issuer="a", subject="b|c")))
    for issuer, subject in (("a|b", "c"), ("a", "b%7Cc"), ("A", "b|c"), ("a", "b|C"), ("a", "b|c ")):
        client = client_of(DjangoPrincipal(issuer=issuer, subject=subject))
        assert (await client.ok("get_user_facts"))["total"] == 0
    assert await Owner.objects.acount() == 1


@pytest.mark.django_db
def test_anonymous_callers_get_no_rows(subtests: pytest.Subtests) -> None:
    async def check(user: Any) -> None:
        await keep(machine_client("robot"))
        anonymous_client = client_of(local_principal(user))
        for tool, arguments in [
            ("save_conversation", {"messages": []}),
            ("get_conversation", {"id": "x"}),
            ("list_conversations", {}),
            ("delete_conversation", {"id": "x"}),
            ("save_user_fact", {"text": "x"}),
            ("get_user_facts", {}),
            ("search_user_facts", {"query": SECRET}),
            ("delete_user_fact", {"id": "x"}),
        ]:
            assert "requires an authenticated caller" in await anonymous_client.error(tool, **arguments)
        for uri in ("memory://facts", "memory://conversations/x"):
            with pytest.raises(ResourceNotFound):
                await anonymous_client.read(uri)
        assert await anonymous_client.complete("") == []
        assert await Owner.objects.acount() == 1

    for user in (None, AnonymousUser()):
        with subtests.test(user=user), rolled_back():
            async_to_sync(check)(user)


async def test_a_caller_without_a_name_sees_no_tool() -> None:
    unnamed = client_of(DjangoPrincipal(issuer="as", subject=""))
    assert await unnamed.names() == []
    assert await unnamed.names("resources/list", "resources", "uri") == []
    assert await unnamed.names("resources/templates/list", "resourceTemplates", "uriTemplate") == []
    with pytest.raises(MCPError, match="get_user_facts"):
        await unnamed.call("get_user_facts")


@pytest.mark.django_db
async def test_the_local_principal_has_the_memory_of_its_user() -> None:
    ada = await User.objects.acreate(username="ada")
    await keep(client_of(local_principal(ada)))
    assert (await user_client(ada).ok("get_user_facts"))["total"] == 1


@pytest.mark.django_db
def test_a_command_that_acts_as_the_user_has_the_memory_of_the_user() -> None:
    ada = User.objects.create(username="ada")
    out = StringIO()
    arguments = ["save_user_fact", '{"text": "Likes tea.", "id": "tea"}', "--user", "ada", "--server", "memory"]
    call_command("mcp_call", *arguments, stdout=out, stderr=StringIO())
    assert "Likes tea." in out.getvalue()
    assert async_to_sync(user_client(ada).ok)("get_user_facts")["facts"][0]["id"] == "tea"


def register_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the tools with the current options, which a project reads at its start."""
    monkeypatch.setattr(registry, "REGISTRIES", {})
    spec = importlib.util.spec_from_file_location("mcp_django.contrib.memory.once_more", mcp_tools.__file__)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


async def test_the_setting_requires_permissions_of_django(
    db: None, options: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    options(PERMISSIONS=True)
    register_again(monkeypatch)
    user = await User.objects.acreate(username="ada")

    async def seen() -> list[str]:
        now = await User.objects.aget(pk=user.pk)
        client = client_of(DjangoPrincipal(issuer=PROJECT_ISSUER, subject=str(user.pk), user=now))
        return [*await client.names(), *await client.names("resources/list", "resources", "uri")]

    assert await seen() == []
    for codename, names in [
        ("view_fact", ["get_user_facts", "search_user_facts", "memory://facts"]),
        ("add_fact", []),
        ("change_fact", ["save_user_fact"]),
        ("delete_conversation", ["delete_conversation"]),
    ]:
        before = await seen()
        await user.user_permissions.aadd(await Permission.objects.aget(codename=codename))
        assert sorted(await seen()) == sorted([*before, *names])
    assert await machine_client("robot").names() == []


async def test_the_setting_requires_scopes(options: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    options(READ_SCOPES=["memory:read"], WRITE_SCOPES=["memory:write"], SERVER="default")
    register_again(monkeypatch)
    client = client_of(DjangoPrincipal(issuer="as", subject="1", scopes=frozenset({"memory:read"})), "default")
    tools = {tool.name: tool.scopes for tool in client.server.registry.tools}
    for name, scopes in tools.items():
        reads = name.startswith(("get_", "list_", "search_"))
        assert scopes == (("memory:read",) if reads else ("memory:write",))
    with pytest.raises(MCPError) as caught:
        await client.call("save_user_fact", text="x")
    assert "memory:write" in repr(caught.value.data)
