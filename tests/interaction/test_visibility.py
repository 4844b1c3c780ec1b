"""Visible primitives of two users of the site, over every transport and in every revision.

A hidden primitive does not exist for a user: no list has it, and a request for it is answered as for an unknown name,
byte for byte. A primitive that needs more scopes is listed, and the refusal names the scopes.
"""

import asyncio

import pytest
from django.contrib.auth.models import Permission, User

from mcp_django.runtime.events.event_log import EventDraft
from mcp_django.wiring import get_services
from tests.interaction import tokens
from tests.interaction.checkpoints import CHECKPOINTS
from tests.interaction.clients import HANDSHAKE, STATELESS, Client
from tests.interaction.restricted import GUARDS, READ, WRITE
from tests.interaction.transports import contract

pytestmark = pytest.mark.revisions(HANDSHAKE[0], HANDSHAKE[-1], STATELESS)
BOTH = {"open", "stepped"}
SEEN = {"ann": BOTH | {"users", "anns", "asked", "users_stepped"}, "ben": BOTH | {"groups"}}
LISTS = {
    "tools/list": ("tools", "name", "{}"),
    "resources/list": ("resources", "uri", "restricted://{}"),
    "resources/templates/list": ("resourceTemplates", "uriTemplate", "restricted://{}/{{number}}"),
    "prompts/list": ("prompts", "name", "{}"),
}


def _ref(kind, **named):
    return {"type": f"ref/{kind}", **named}


def requests(name, stateless):
    """Whatever can be asked of the things that are called so."""
    word, number = {"name": "word", "value": "w"}, {"name": "number", "value": "1"}
    template = f"restricted://{name}/{{number}}"
    yield "tools/call", {"name": name}
    yield "tools/call", {"name": name, "arguments": {"times": 2}, "_meta": {"progressToken": 7}}
    yield "tools/call", {"name": name, "arguments": {"times": "many", "strange": []}}
    yield "resources/read", {"uri": f"restricted://{name}"}
    yield "resources/read", {"uri": f"restricted://{name}/1"}
    yield "resources/read", {"uri": f"restricted://{name}/first"}
    yield "prompts/get", {"name": name, "arguments": {"word": "w"}}
    yield "prompts/get", {"name": name}
    yield "completion/complete", {"ref": _ref("prompt", name=name), "argument": word}
    yield "completion/complete", {"ref": _ref("prompt", name=name), "argument": {"name": "other", "value": ""}}
    yield "completion/complete", {"ref": _ref("resource", uri=template), "argument": number}
    yield "completion/complete", {"ref": _ref("resource", uri=f"restricted://{name}/1"), "argument": number}
    if not stateless:
        yield "resources/subscribe", {"uri": f"restricted://{name}"}
        yield "resources/subscribe", {"uri": f"restricted://{name}/1"}
        yield "resources/unsubscribe", {"uri": f"restricted://{name}"}


@pytest.fixture
def people(settings, db, transport, revision):
    """`await people("ann", scopes=1)`: a client of that user, whose token holds so many of the scopes.

    Ann may view users, and made her tokens herself. Ben may view groups, and authorized a client.
    """
    settings.MCP = {**settings.MCP, "AUTH": ["oauth", "token"]}
    made = {}
    for name, permission, issue in (
        ("ann", "view_user", tokens.personal),
        ("ben", "view_group", tokens.of_a_client),
    ):
        user = User.objects.create_user(name)
        user.user_permissions.add(Permission.objects.get(codename=permission, content_type__app_label="auth"))
        for scopes in ([], [READ], [READ, WRITE]):
            made[name, len(scopes)] = issue(user, scopes, "restricted")

    async def connect(name, scopes=0):
        return await Client(transport, revision, server="restricted", token=made[name, scopes]).open()

    return connect


async def list_all(client, method):
    """The entries of a list, over all of its pages."""
    kind, key, pattern = LISTS[method]
    entries = (await client.request(method)).result[kind]
    found = [entry[key] for entry in entries]
    return {name for name in GUARDS if pattern.format(name) in found}, len(found)


@contract
async def test_alternating_users_see_their_own_lists(people):
    clients = {name: await people(name) for name in SEEN}
    for method in LISTS:
        for _ in range(2):
            for name, client in clients.items():
                assert await list_all(client, method) == (SEEN[name], len(SEEN[name])), (name, method)
        names = [*SEEN, *reversed(SEEN)]
        found = await asyncio.gather(*(list_all(clients[name], method) for name in names))
        assert found == [(SEEN[name], len(SEEN[name])) for name in names]


async def test_a_list_may_be_cached_for_its_caller_only(people, revision):
    client = await people("ann")
    for method in LISTS:
        result = (await client.request(method)).result
        assert result.get("cacheScope") == ("private" if revision == STATELESS else None)


def _unknown_name(name):
    """An unknown name of the same length."""
    return "z" * len(name)


@contract
async def test_hidden_primitives_are_answered_as_unknown_ones_byte_for_byte(people, revision):
    ann, ben = await people("ann"), await people("ben", scopes=2)
    for hidden in GUARDS.keys() - SEEN["ben"]:
        absent = _unknown_name(hidden)
        both = zip(requests(hidden, ben.stateless), requests(absent, ben.stateless), strict=True)
        for (method, params), (_, other) in both:
            first = await ben.request(method, params, id=1)
            second = await ben.request(method, other, id=1)
            assert first.body.replace(hidden.encode(), absent.encode()) == second.body, (method, params)
            assert (first.status, first.headers) == (second.status, second.headers), (method, params)
            assert b"error" in first.body or method == "resources/unsubscribe"
        assert CHECKPOINTS.counts[f"{hidden} ran"] == 0
    assert (await ann.tool("users")).result["content"][0]["text"] == "users", "it is there for whom it is for"


async def test_visible_primitives_are_served(people):
    for name, names in SEEN.items():
        client = await people(name, scopes=2)
        for seen in names:
            assert (await client.tool(seen)).result["content"][0]["text"] == seen
            assert (await client.request("resources/read", {"uri": f"restricted://{seen}/1"})).served
            assert (await client.request("prompts/get", {"name": seen, "arguments": {"word": "w"}})).served


async def test_missing_scopes_are_named_before_any_other_error(people):
    ann = await people("ann", scopes=1)
    for name in ("stepped", "users_stepped"):
        scopes = sorted(GUARDS[name]["scopes"])
        for method, params in requests(name, ann.stateless):
            if method == "resources/unsubscribe" or "first" in params.get("uri", ""):
                continue
            reply = await ann.request(method, params)
            assert len(reply.messages) == 1, "nothing was said before"
            assert reply.error["data"] == {"requiredScopes": scopes}, (method, params)
            if reply.status is not None:
                assert reply.status == 403
                assert not reply.is_stream
                challenge = reply.headers["www-authenticate"]
                assert 'error="insufficient_scope"' in challenge
                assert all(scope in challenge for scope in scopes)
        assert CHECKPOINTS.counts[f"{name} ran"] == 0


async def test_a_step_up_permits_the_request(people):
    less, more = await people("ann", scopes=1), await people("ann", scopes=2)
    for method, params in requests("users_stepped", less.stateless):
        if method == "tools/call" and "strange" not in params.get("arguments", {}):
            assert "error" in (await less.request(method, params)).message
            assert (await more.request(method, params)).served


async def updates(uri):
    await get_services().event_publisher.publish(EventDraft("changes:restricted", "updated", {"uri": uri}))


async def test_changes_of_hidden_resources_are_not_sent(people, revision):
    if revision != STATELESS:
        return await _assert_no_subscription(people)
    uris = ["restricted://users", "restricted://zzzzz", "restricted://groups", "restricted://users/1"]
    listens = [
        (await people(name)).begin("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})
        for name in ("ann", "ben")
    ]
    first = [await listen.message() for listen in listens]
    asked = [message["params"]["notifications"]["resourceSubscriptions"] for message in first]
    assert asked == [["restricted://users", "restricted://users/1"], ["restricted://groups"]], (
        "left out as what is not there is"
    )
    for uri in uris:
        await updates(uri)
    heard = [
        [(await listen.message())["params"]["uri"] for _ in acknowledged]
        for listen, acknowledged in zip(listens, asked, strict=True)
    ]
    assert heard == asked
    for listen in listens:
        listen.leave()
        await listen.end()


async def _assert_no_subscription(people):
    """In the handshake era the subscription to a hidden resource is refused, so that no update is sent."""
    ann, ben = await people("ann"), await people("ben")
    assert (await ann.request("resources/subscribe", {"uri": "restricted://users"})).served
    assert (await ben.request("resources/subscribe", {"uri": "restricted://groups"})).served
    assert "error" in (await ben.request("resources/subscribe", {"uri": "restricted://users"})).message
    listeners = [await client.listen_to_server() for client in (ann, ben)]
    await updates("restricted://users")
    await updates("restricted://groups")
    assert [(await listener.message())["params"]["uri"] for listener in listeners] == [
        "restricted://users",
        "restricted://groups",
    ]
