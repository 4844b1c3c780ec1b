"""What is seen from outside: paths, status codes, tokens, rows, settings."""

import contextlib
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from asgiref.testing import ApplicationCommunicator
from django.contrib.auth.models import User
from django.core.asgi import get_asgi_application
from django.core.cache import cache
from django.http import HttpResponse
from django.test import AsyncClient, RequestFactory, override_settings
from django.urls import Resolver404, clear_url_caches, resolve
from django.utils import timezone

from mcp_django import Context, MCPError, Server, abroadcast, anotify_list_changed, anotify_resource_updated, conf, tool
from mcp_django.asgi import mount
from mcp_django.auth.bearers import LONGEST_TOKEN
from mcp_django.auth.claims import read
from mcp_django.auth.principal import Principal
from mcp_django.auth.requests import AuthRequest
from mcp_django.auth.resources import ProtectedResource, canonical
from mcp_django.auth.verifiers import AuthError
from mcp_django.auth.views import bearer_required
from mcp_django.conf.issuers import Issuer
from mcp_django.models import PersonalAccessToken
from mcp_django.models import Session as SessionRow
from mcp_django.protocol.sse import Decoder
from mcp_django.runtime.events import EventLog
from mcp_django.server import registry
from mcp_django.signals import session_closed
from mcp_django.testing import Client, accept
from mcp_django.wiring import ports
from tests.coming_from.table import exercise
from tests.server.engine import HANDSHAKE, STATELESS, make_server, somebody

ORIGIN = "https://testserver"
WELL_KNOWN = "/.well-known/oauth-protected-resource"
OWN = "io.modelcontextprotocol/"
INITIALIZE = {
    "protocolVersion": HANDSHAKE,
    "capabilities": {},
    "clientInfo": {"name": "x", "version": "1"},
}


class Browser(AsyncClient):
    """One on this machine."""

    def _base_scope(self, **request: Any) -> dict[str, Any]:
        scope: dict[str, Any] = super()._base_scope(**request)
        return {
            **scope,
            "headers": [pair for pair in scope["headers"] if pair[0] != b"host"] + [(b"host", b"localhost")],
        }


@contextlib.contextmanager
def project(**mcp: Any) -> Iterator[AsyncClient]:
    """A project with these settings and nothing registered yet; a browser without headers."""
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setattr(registry, "REGISTRIES", {})
    cache.clear()
    try:
        with override_settings(MCP={"AUTH": "none", **mcp}):
            clear_url_caches()
            yield Browser()
    finally:
        monkeypatch.undo()
        clear_url_caches()


async def post(client: AsyncClient, method: str, params: Any = None, path: str = "/mcp", **headers: str) -> Any:
    """One request of the handshake era, or with `stateless` of the other."""
    version = headers.pop("stateless", None)
    params = dict(params or {})
    if version:
        params["_meta"] = {f"{OWN}protocolVersion": version, f"{OWN}clientCapabilities": {}}
        headers |= {"mcp-protocol-version": version, "mcp-method": method}
        headers |= {"mcp-name": params["name"]} if "name" in params else {}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
    sent = {"accept": "application/json, text/event-stream", **headers}
    kind = sent.pop("content-type", "application/json")
    return await client.post(path, body, content_type=kind, headers=sent)


async def notify(client: AsyncClient, key: str, message: dict[str, Any] | None = None) -> Any:
    """A message that is not answered: `initialized`, unless it is another."""
    body = json.dumps(message or {"jsonrpc": "2.0", "method": "notifications/initialized"})
    headers = {"accept": "application/json, text/event-stream", "mcp-session-id": key}
    return await client.post("/mcp", body, content_type="application/json", headers=headers)


async def opened(client: AsyncClient, path: str = "/mcp") -> str:
    """The id of a new session."""
    reply = await post(client, "initialize", INITIALIZE, path=path)
    assert reply.status_code == 200, reply.content
    return str(reply.headers["mcp-session-id"])


@exercise
async def endpoints_are_where_they_are_looked_for() -> None:
    with project() as client:
        for path in ("/mcp", "/mcp/", "/mcp/sse", "/mcp/sse/"):
            assert resolve(path)
        assert (await post(client, "server/discover", stateless=STATELESS)).status_code == 200
        assert (await post(client, "initialize", INITIALIZE)).status_code == 200


@exercise
async def a_server_has_the_transports_that_it_lists() -> None:
    with project(SERVERS={"default": {"TRANSPORTS": ["http"]}}):
        assert resolve("/mcp")
        with pytest.raises(Resolver404):
            resolve("/mcp/sse")


@exercise
async def a_server_has_what_names_it() -> None:
    with project(SERVERS={"default": {}, "staff": {}}):
        tool(lambda: "here", name="one")
        tool(lambda: "there", name="two", server="staff")
        for alias, names in (("default", ["one"]), ("staff", ["two"])):
            assert [found["name"] for found in await Client(alias).list_tools()] == names


@exercise
async def eras_do_not_lock_a_channel() -> None:
    envelope = {"_meta": {f"{OWN}protocolVersion": STATELESS, f"{OWN}clientCapabilities": {}}}
    with project():
        tool(lambda: "x", name="one")
        scope = {"type": "websocket", "path": "/mcp/ws", "headers": [(b"host", b"localhost")], "query_string": b""}
        scope |= {"subprotocols": ["mcp"], "client": ["127.0.0.1", 1], "server": ["127.0.0.1", 80], "scheme": "ws"}
        socket = ApplicationCommunicator(mount(get_asgi_application()), scope)
        await socket.send_input({"type": "websocket.connect"})
        assert (await socket.receive_output(10))["type"] == "websocket.accept"

        async def said(method: str, params: dict[str, Any]) -> dict[str, Any]:
            message = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
            await socket.send_input({"type": "websocket.receive", "text": json.dumps(message)})
            answer: dict[str, Any] = json.loads((await socket.receive_output(10))["text"])
            return answer

        assert (await said("no/such", envelope))["error"]["code"] == -32601
        assert (await said("initialize", {**INITIALIZE, **envelope}))["error"]["code"] == -32601
        assert (await said("server/discover", envelope))["result"]["supportedVersions"] == [STATELESS]
        assert (await said("initialize", INITIALIZE))["result"]["protocolVersion"] == HANDSHAKE
        for params in ({}, envelope):
            assert [found["name"] for found in (await said("tools/list", params))["result"]["tools"]] == ["one"]
        await socket.send_input({"type": "websocket.disconnect", "code": 1000})
        await socket.wait(10)


@exercise
async def a_session_has_its_headers() -> None:
    with project() as client:
        key = await opened(client)
        assert key.isascii()
        assert key.isprintable()
        assert key != await opened(client)
        assert (await notify(client, key)).status_code == 202


@exercise
async def a_message_before_the_result_makes_a_stream() -> None:
    with project() as client:

        @tool
        async def work(ctx: Context, say: bool) -> str:
            if say:
                await ctx.info("begun")
            return "done"

        session = {"mcp-session-id": await opened(client)}
        await notify(client, session["mcp-session-id"])
        for say, kind in ((False, "application/json"), (True, "text/event-stream")):
            reply = await post(client, "tools/call", {"name": "work", "arguments": {"say": say}}, **session)
            assert reply.headers["content-type"].startswith(kind)
            if say:
                body = b"".join([chunk async for chunk in reply])
                assert b"begun" in body
                assert b"done" in body


@exercise
async def an_answer_comes_on_a_later_post() -> None:
    with project() as client:

        @tool
        async def ask(ctx: Context) -> str:
            return str((await ctx.elicit("Sure?", bool)).data)

        reply = await post(client, "initialize", {**INITIALIZE, "capabilities": {"elicitation": {}}})
        key = str(reply.headers["mcp-session-id"])
        await notify(client, key)
        reply = await post(client, "tools/call", {"name": "ask", "arguments": {}}, **{"mcp-session-id": key})
        decoder, events = Decoder(), aiter(reply)
        question: dict[str, Any] = {}
        while "id" not in question:
            for event in decoder.feed(await anext(events)):
                question = json.loads(event.data) if event.data else {}
        assert question["method"] == "elicitation/create"
        answer = {"jsonrpc": "2.0", "id": question["id"], "result": accept(value=True)}
        assert (await notify(client, key, answer)).status_code == 202
        assert b"True" in b"".join([chunk async for chunk in events])


@exercise
async def sessions_expire() -> None:
    with project() as client:
        past = timezone.now() - timedelta(hours=2)
        for change in ({"last_seen": past}, {"expires": past}):
            key = await opened(client)
            assert (await post(client, "ping", **{"mcp-session-id": key})).status_code == 200
            await SessionRow.objects.filter(terminated_at=None).aupdate(**change)
            assert (await post(client, "ping", **{"mcp-session-id": key})).status_code == 404
            await SessionRow.objects.all().adelete()


@exercise
async def get_and_delete_can_be_switched_off() -> None:
    for allowed in (True, False):
        with project(SERVERS={"default": {"ENABLE_GET": allowed, "ALLOW_DELETE": allowed}}) as client:
            headers = {"mcp-session-id": await opened(client), "accept": "text/event-stream"}
            if not allowed:
                assert (await client.get("/mcp", headers=headers)).status_code == 405
            ended = await client.delete("/mcp", headers=headers)
            assert (ended.status_code != 405) is allowed


@exercise
async def a_server_may_do_without_sessions() -> None:
    with project(SERVERS={"default": {"REQUIRE_SESSION": False}}) as client:
        tool(lambda: "x", name="one")
        assert "mcp-session-id" not in (await post(client, "initialize", INITIALIZE)).headers
        reply = await post(client, "tools/call", {"name": "one"}, **{"mcp-protocol-version": HANDSHAKE})
        assert reply.json()["result"]["content"][0]["text"] == "x"
    with project() as client:
        tool(lambda: "x", name="one")
        assert (await post(client, "tools/call", {"name": "one"})).status_code == 400


@exercise
async def a_wrong_version_header_is_refused() -> None:
    with project() as client:
        headers = {"mcp-session-id": await opened(client), "mcp-protocol-version": "1999-01-01"}
        assert (await post(client, "ping", **headers)).status_code == 400
        assert (await client.delete("/mcp", headers=headers)).status_code == 400


@exercise
async def another_content_type_is_refused() -> None:
    with project() as client:
        assert (await post(client, "initialize", INITIALIZE, **{"content-type": "text/plain"})).status_code == 415


@exercise
async def a_body_is_bounded() -> None:
    with project(LIMITS={"BODY": 1000}) as client:
        assert (await post(client, "initialize", {**INITIALIZE, "more": "x" * 1000})).status_code == 413


@exercise
async def a_strange_origin_is_refused() -> None:
    with project(ALLOWED_ORIGINS=["https://good.example"]) as client:
        for origin, status in (
            ("https://evil.example", 403),
            ("https://good.example", 200),
            ("http://localhost:1", 200),
        ):
            assert (await post(client, "initialize", INITIALIZE, origin=origin)).status_code == status


@exercise
async def too_many_sessions_are_refused() -> None:
    with project(LIMITS={"SESSIONS": 1}) as client:
        await opened(client)
        reply = await post(client, "initialize", INITIALIZE)
        assert reply.status_code == 503
        assert reply.headers["retry-after"]


@exercise
async def sessions_are_rows() -> None:
    ended: list[str] = []

    def farewell(session: SessionRow, reason: str, **kwargs: Any) -> None:
        ended.append(f"{session.client_info['name']} {reason}")

    with project() as client:
        session_closed.connect(farewell)
        try:
            key = await opened(client)
            row = await SessionRow.objects.aget()
            assert (row.revision, row.server, row.initialized) == (HANDSHAKE, "default", False)
            await sync_to_async(SessionRow.objects.filter(pk=row.pk).end)("admin")
            assert (await post(client, "ping", **{"mcp-session-id": key})).status_code == 404
        finally:
            session_closed.disconnect(farewell)
    assert ended == ["x admin"]


@exercise
async def changes_are_told_from_anywhere() -> None:
    with project():
        start = await sync_to_async(EventLog().head)()
        await anotify_list_changed("tools")
        await anotify_resource_updated("a://b")
        assert await abroadcast("notifications/acme/x", {"a": 1}) is None
        said = [event[2] for event in await sync_to_async(EventLog().read)(start)]
    assert said == ["list_changed", "updated", "broadcast"]


@exercise
async def the_memory_has_the_same_tools() -> None:
    user = await User.objects.acreate_user("alice")
    server = Server("memory", registry=registry.registry_for("memory"), ports=ports())
    client = Client(server, user=user)
    tools = {found["name"] for found in await client.list_tools()}
    wanted = {"save_conversation", "delete_conversation", "save_user_fact", "get_user_facts", "delete_user_fact"}
    assert wanted <= tools
    templates = {found["uriTemplate"] for found in await client.list_resource_templates()}
    assert templates == {"memory://conversations/{id}"}


@exercise
async def a_rate_is_kept() -> None:
    server = make_server()
    server.tool(lambda: "x", name="one", rate="1/h")
    client = Client(
        server.bind(ports()), principal=Principal(issuer="t", subject="s", user=User(pk=7, is_superuser=True))
    )
    cache.clear()
    assert not (await client.call_tool("one"))["isError"]
    assert "seconds" in (await client.call_tool("one"))["content"][0]["text"]
    with project(RATES={"ADDRESS": "1/h"}) as browser:
        assert [(await post(browser, "initialize", INITIALIZE)).status_code for _ in range(2)] == [200, 429]


@exercise
def a_misspelt_setting_is_found() -> None:
    with project(SERVERS={"default": {"REQUIRED_SCOPE": []}}):
        (problem,) = conf.problems()
        assert "REQUIRED_SCOPE" in str(problem)


@exercise
def issuers_are_https() -> None:
    for url, wrong in (("http://idp.example", True), ("https://idp.example", False), ("http://localhost:9", False)):
        with project(AUTH="external", ORIGIN=ORIGIN, ISSUERS=[{"ISSUER": url, "JWKS_URI": f"{url}/keys"}]):
            assert bool(conf.problems()) is wrong
    for url, wrong in (
        ("https://idp.example?x=1", True),
        ("https://idp.example#x", True),
        ("https://idp.example", False),
    ):
        with project(SERVERS={"default": {"AUTHORIZATION_SERVERS": [url]}}):
            assert bool(conf.problems()) is wrong


@exercise
async def metadata_is_served() -> None:
    server = {
        "REQUIRED_SCOPES": ["shop:read"],
        "AUTHORIZATION_SERVERS": ["https://idp.example"],
        "RESOURCE_METADATA": {
            "resource_name": "Shop",
            "resource_documentation": "https://x.example",
            "resource": "evil",
        },
    }
    with project(AUTH="token", ORIGIN=ORIGIN, SERVERS={"default": server}) as client:
        for path in (f"{WELL_KNOWN}/mcp", WELL_KNOWN):
            reply = await client.get(path)
            said = reply.json()
            assert (said["resource"], said["scopes_supported"]) == (f"{ORIGIN}/mcp", ["shop:read"])
            assert said["authorization_servers"] == ["https://idp.example"]
            assert (said["resource_name"], said["resource_documentation"]) == ("Shop", "https://x.example")
            assert said["bearer_methods_supported"] == ["header"]
            assert reply.headers["access-control-allow-origin"] == "*"
        assert (await client.post(f"{WELL_KNOWN}/mcp")).status_code == 405


class Verifier:
    """A verifier of the project's own."""

    asked: list[str] = []

    def accepts(self, token: str) -> bool:
        return token.startswith("acme-")

    async def verify(self, token: str, *, resource: ProtectedResource) -> Principal:
        self.asked.append(token)
        if token == "acme-bad":
            raise AuthError("invalid_token", "No such token")
        if token == "acme-down":
            raise AuthError("unavailable")
        audience = {"acme-other": "https://other.example", "acme-origin": ORIGIN}.get(token, resource.uri)
        scopes = frozenset({"shop:read"} if token != "acme-poor" else ())
        facts: dict[str, Any] = {"issuer": "acme", "subject": "s", "client_id": "c", "claims": {"tenant": "acme"}}
        user = User(pk=7, username="alice") if token == "acme-user" else None
        return Principal(**facts, scopes=scopes, audience=audience, user=user)


def required_scopes(request: AuthRequest) -> list[str]:
    """The scopes that a request takes."""
    tenant = request.headers.get(b"x-tenant", b"").decode()
    if tenant == "broken":
        raise LookupError("no such tenant")
    return [f"{tenant or 'shop'}:read"]


def authorization_servers(request: AuthRequest) -> list[str]:
    """Where a request is sent for tokens."""
    return [f"https://{(request.headers.get(b'x-tenant') or b'idp').decode()}.example"]


def resource_metadata_url(request: AuthRequest) -> str:
    """Where clients find the metadata."""
    return f"{ORIGIN}{WELL_KNOWN}/mcp?realm={(request.headers.get(b'x-tenant') or b'none').decode()}".split("?")[0]


HERE = __name__
GUARDED: dict[str, Any] = {"AUTH": [f"{HERE}.Verifier"], "ORIGIN": ORIGIN}


def _bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@exercise
async def a_verifier_of_one_s_own_says_who_it_is() -> None:
    with project(**GUARDED, SERVERS={"default": {"REQUIRED_SCOPES": ["shop:read"]}}) as client:

        @tool
        async def who(ctx: Context) -> str:
            principal: Any = ctx.principal
            return f"{principal.key} {principal.claims['tenant']}"

        called = await post(
            client, "tools/call", {"name": "who", "arguments": {}}, stateless=STATELESS, **_bearer("acme-1")
        )
        assert called.json()["result"]["content"][0]["text"] == "acme|s|c acme"
        for token, status in (
            ("acme-1", 200),
            ("acme-bad", 401),
            ("acme-other", 401),
            ("acme-origin", 401),
            ("acme-poor", 403),
        ):
            reply = await post(client, "server/discover", stateless=STATELESS, **_bearer(token))
            assert reply.status_code == status, (token, reply.content)


@exercise
async def each_kind_of_refusal_has_its_status() -> None:
    Verifier.asked.clear()
    server = {"REQUIRED_SCOPES": ["shop:read"], "AUTHORIZATION_SERVERS": ["https://idp.example"]}
    with project(**GUARDED, SERVERS={"default": server}) as client:
        for headers, status, error in (
            ({}, 401, None),
            ({"authorization": "Bearer "}, 401, "invalid_token"),
            (_bearer("acme-bad"), 401, "invalid_token"),
            (_bearer("acme-poor"), 403, "insufficient_scope"),
            (_bearer("x" * (LONGEST_TOKEN + 1)), 400, "invalid_request"),
        ):
            reply = await post(client, "server/discover", stateless=STATELESS, **headers)
            challenge = reply.headers["www-authenticate"]
            assert reply.status_code == status, (headers, reply.content)
            assert f'resource_metadata="{ORIGIN}{WELL_KNOWN}/mcp"' in challenge, challenge
            assert (f'error="{error}"' in challenge) if error else ("error=" not in challenge)
        down = await post(client, "server/discover", stateless=STATELESS, **_bearer("acme-down"))
        assert (down.status_code, bool(down.headers["retry-after"])) == (503, True)
    assert "" not in Verifier.asked


@exercise
async def what_depends_on_the_request_is_asked() -> None:
    server = {
        "REQUIRED_SCOPES": f"{HERE}.required_scopes",
        "AUTHORIZATION_SERVERS": f"{HERE}.authorization_servers",
        "RESOURCE_METADATA_URL": f"{HERE}.resource_metadata_url",
    }
    with project(**GUARDED, SERVERS={"default": server}) as client:
        reply = await post(client, "server/discover", stateless=STATELESS, **{"x-tenant": "acme"})
        assert 'scope="acme:read"' in reply.headers["www-authenticate"]
        assert f'resource_metadata="{ORIGIN}{WELL_KNOWN}/mcp"' in reply.headers["www-authenticate"]
        said = (await client.get(f"{WELL_KNOWN}/mcp", headers={"x-tenant": "acme"})).json()
        assert said["authorization_servers"] == ["https://acme.example"]
        poor = await post(client, "server/discover", stateless=STATELESS, **{"x-tenant": "acme", **_bearer("acme-1")})
        assert poor.status_code == 403, "and it is enforced here"


@exercise
async def a_resolver_that_fails_is_a_503() -> None:
    with project(**GUARDED, SERVERS={"default": {"REQUIRED_SCOPES": f"{HERE}.required_scopes"}}) as client:
        reply = await post(client, "server/discover", stateless=STATELESS, **{"x-tenant": "broken"})
        assert reply.status_code == 503
        assert b"no such tenant" not in reply.content


@exercise
async def a_scope_is_asked_for_before_the_handler_runs() -> None:
    server, ran = make_server(), []
    server.tool(lambda: ran.append(1), name="delete", scopes=["files:write"])
    for revision in (HANDSHAKE, STATELESS):
        with pytest.raises(MCPError) as refused:
            await Client(server, principal=somebody(), revision=revision).call_tool("delete")
        assert (refused.value.code, refused.value.data) == (-32600, {"requiredScopes": ["files:write"]})
    assert ran == []
    assert not (await Client(server, principal=somebody(scopes=["files:write"])).call_tool("delete"))["isError"]


@exercise
async def no_handler_sees_the_token() -> None:
    user = await User.objects.acreate_user("alice", is_superuser=True)
    issue = sync_to_async(PersonalAccessToken.issue)
    _, token = await issue(user=user, name="one", scopes=[], expires=timezone.now() + timedelta(days=1))
    with project(AUTH="token") as client:

        @tool(permission=lambda principal: True)
        async def look(ctx: Context) -> str:
            found = [dict(ctx.headers), dict(ctx.request.headers), repr(ctx.principal), str(vars(ctx.request))]
            return str(found)

        reply = await post(
            client, "tools/call", {"name": "look", "arguments": {}}, stateless=STATELESS, **_bearer(token)
        )
        assert reply.status_code == 200
        assert "isError" in reply.json()["result"]
        assert token not in reply.content.decode()


@exercise
def claims_are_read_in_every_spelling() -> None:
    issuer = Issuer(issuer="https://idp.example")
    for spelling in ({"scope": "a b"}, {"scp": ["a", "b"]}, {"scp": "a b"}):
        said = read({"sub": "s", "azp": "c", "exp": 4102444800, "tenant": "acme", **spelling}, issuer)
        assert (said.subject, said.scopes, said.client_id) == ("s", frozenset({"a", "b"}), "c")
        assert (said.expires_at, said.claims["tenant"]) == (4102444800.0, "acme")
    assert canonical("https://mcp.example.com") != canonical("https://mcp.example.com/mcp")


@exercise
async def a_plain_view_takes_the_tokens() -> None:
    @bearer_required(resource=f"{ORIGIN}/orders", scopes=["shop:read"])
    def orders(request: Any) -> HttpResponse:
        return HttpResponse(request.principal.claims["tenant"])

    def ask(token: str | None) -> HttpResponse:
        request = RequestFactory().get("/orders", headers={} if token is None else _bearer(token))
        found: HttpResponse = orders(request)
        return found

    with project(**GUARDED):
        statuses = [(await sync_to_async(ask)(token)).status_code for token in (None, "acme-bad", "acme-user")]
        assert statuses == [401, 401, 200]


@exercise
async def streams_are_resumed() -> None:
    with project() as client:

        @tool
        async def work(ctx: Context) -> str:
            await ctx.info("begun")
            return "done"

        session = {"mcp-session-id": await opened(client)}
        await notify(client, session["mcp-session-id"])
        reply = await post(client, "tools/call", {"name": "work", "arguments": {}}, **session)
        events = Decoder().feed(b"".join([chunk async for chunk in reply]))
        assert b"done" in events[-1].data
        headers = {**session, "accept": "text/event-stream", "last-event-id": str(events[0].id)}
        again = await client.get("/mcp", headers=headers)
        assert again.status_code == 200
        assert b"done" in b"".join([chunk async for chunk in again])
        forged = await client.get("/mcp", headers={**headers, "last-event-id": "made-up:1"})
        assert forged.status_code == 400, "it is no id of this session's"
