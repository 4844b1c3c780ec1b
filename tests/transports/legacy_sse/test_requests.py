"""Invalid requests to HTTP+SSE, and the endpoint for messages."""

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.conf.urls.i18n import i18n_patterns
from django.core.asgi import get_asgi_application
from django.test import Client as DjangoClient
from django.urls import include, path

from mcp_django import Server, wiring
from mcp_django.asgi import mount
from mcp_django.server.ports import Overloaded
from mcp_django.transports.legacy_sse import get_client_path
from tests.support.waiting import eventually
from tests.transports.legacy_sse.client import Client, Reply, both_doors

PING = {"jsonrpc": "2.0", "id": 9, "method": "ping"}
NO_STREAM = (404, b"Unknown stream; open a new one with GET.")


def verdict(reply: Reply) -> tuple[int, bytes]:
    return reply.status, reply.body


@pytest.fixture
def open_urls(settings: Any) -> Any:
    """Serve these patterns."""

    def serve(*patterns: Any) -> None:
        conf = ModuleType("urls_of_this_test")
        vars(conf)["urlpatterns"] = list(patterns)
        settings.ROOT_URLCONF = conf

    return serve


class TestTheStream:
    @both_doors
    async def test_a_foreign_origin_is_refused_before_the_token_is_looked_at(self, client: Client) -> None:
        reply = await client.get(headers={"origin": "https://evil.example", "authorization": "Bearer nobody"}).reply()
        assert reply.status == 403

    @both_doors
    async def test_without_a_valid_token_there_is_a_challenge(self, client: Client) -> None:
        for headers in ({"authorization": "Bearer nobody"}, {"authorization": ""}):
            reply = await client.get(headers=headers).reply()
            assert reply.status == 401
            assert reply.headers["www-authenticate"].startswith("Bearer")

    async def test_a_client_that_accepts_no_event_stream_is_refused(self, client: Client) -> None:
        assert (await client.get(accept="application/json").reply()).status == 406

    async def test_a_client_that_accepts_an_event_stream_gets_one(
        self, subtests: pytest.Subtests, client: Client
    ) -> None:
        for accept in [None, "*/*", "text/event-stream, application/json"]:
            with subtests.test(accept=accept):
                stream = client.get(accept=accept)
                assert (await stream.head())[0] == 200
                await stream.leave()

    @both_doors
    async def test_other_methods_are_named(self, subtests: pytest.Subtests, client: Client) -> None:
        for method in ["PUT", "DELETE", "HEAD"]:
            with subtests.test(method=method):
                reply = await client.post(b"", client.path, method=method)
                assert (reply.status, reply.headers["allow"]) == (405, "GET, POST, OPTIONS")

    @both_doors
    async def test_an_allowed_page_may_send_a_preflight_and_read(self, client: Client, settings: Any) -> None:
        settings.MCP = {**settings.MCP, "CORS_ALLOWED_ORIGINS": ["https://app.example"]}
        origin = {"origin": "https://app.example", "access-control-request-method": "POST"}
        preflight = await client.post(b"", client.path, method="OPTIONS", headers={**origin, "authorization": ""})
        assert preflight.status == 204
        assert preflight.headers["access-control-allow-methods"] == "GET, POST, OPTIONS"
        await client.open(headers=origin)
        reply = await client.post(PING, headers=origin)
        assert (reply.status, reply.headers["access-control-allow-origin"]) == (202, "https://app.example")
        await client.leave()

    @both_doors
    async def test_without_an_event_log_no_stream_is_opened(
        self, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def fail(*_: Any) -> None:
            raise Overloaded("The event log is unavailable; try again later")

        monkeypatch.setattr("mcp_django.runtime.streams.sse_messages.SSEMessageRouter.add", fail)
        reply = await client.get().reply()
        assert (reply.status, reply.error["message"]) == (503, "The event log is unavailable; try again later")
        await eventually(lambda: not len(wiring.get_services().stream_limiter))


class TestMessages:
    @both_doors
    async def test_a_post_without_a_stream_id_is_refused_with_a_hint(self, client: Client) -> None:
        reply = await client.post(PING, client.path)
        assert (reply.status, reply.headers["allow"]) == (405, "GET, OPTIONS")
        assert b"GET" in reply.body

    async def test_an_invented_stream_id_is_unknown(self, subtests: pytest.Subtests, client: Client) -> None:
        for name in ["", "x", "a.b.c", "%00", "x" * 5000, "ä"]:
            with subtests.test(name=name):
                reply = await client.post(PING, f"{client.path}?session_id={name}")
                assert verdict(reply) == NO_STREAM or reply.status == 405

    async def test_a_changed_stream_id_is_unknown(self, client: Client) -> None:
        uri = await client.open()
        for wrong in (uri[:-1], uri + "A", uri.replace("session_id=", "session_id=A"), uri.rpartition(".")[0]):
            assert verdict(await client.post(PING, wrong)) == NO_STREAM
        assert (await client.post(PING)).status == 202
        await client.leave()

    async def test_the_stream_of_another_owner_is_answered_as_unknown(self, client: Client) -> None:
        await client.open()
        client.token = "bob"
        assert verdict(await client.post(PING)) == NO_STREAM
        await client.leave()

    async def test_the_stream_of_another_client_is_unknown_and_a_new_token_is_accepted(
        self, client: Client, settings: Any
    ) -> None:
        settings.MCP = {**settings.MCP, "AUTH": "tests.interaction.verifiers.Clients"}
        client.token = "ann.app.1"
        await client.open()
        client.token = "ann.other.1"
        assert verdict(await client.post(PING)) == NO_STREAM
        client.token = "ann.app.2"
        assert (await client.post(PING)).status == 202
        await client.leave()

    async def test_a_stream_of_another_server_is_answered_as_unknown(self, client: Client, prefix: str) -> None:
        uri = await client.open()
        elsewhere = f"{prefix}/mcp/only/sse?{uri.partition('?')[2]}"
        assert verdict(await client.post(PING, elsewhere)) == NO_STREAM
        await client.leave()

    async def test_a_credential_that_lost_a_scope_is_refused(
        self, client: Client, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tests.interaction.verifiers.SCOPES", {"alice": frozenset({"notes:read"})})
        await client.open()
        assert (await client.post(PING)).status == 202
        monkeypatch.setattr("tests.interaction.verifiers.SCOPES", {})
        # Another spelling, because a verified token is cached by its spelling.
        reply = await client.post(PING, headers={"authorization": "bearer alice"})
        assert verdict(reply) == NO_STREAM
        await client.leave()

    async def test_without_a_token_the_stream_id_is_not_read(self, client: Client) -> None:
        await client.open()
        assert (await client.post(PING, headers={"authorization": ""})).status == 401
        await client.leave()

    @both_doors
    async def test_invalid_json_is_refused_and_the_stream_goes_on(
        self, subtests: pytest.Subtests, client: Client
    ) -> None:
        for body in [b"", b"{", b"\xff\xfe", b'{"a": "\\ud800"}', b"[" * 10_000]:
            with subtests.test(body=body):
                await client.open()
                reply = await client.post(body)
                assert (reply.status, reply.headers["content-type"]) == (400, "application/json")
                assert reply.error["code"] in (-32700, -32600)
                assert (await client.post(PING)).status == 202
                await client.leave()

    async def test_json_that_is_not_a_message_is_answered_on_the_stream(
        self, subtests: pytest.Subtests, client: Client
    ) -> None:
        for body in [b"1", b"null", b"{}", b'"x"']:
            with subtests.test(body=body):
                await client.open()
                assert (await client.post(body)).status == 202
                assert (await client.message())["error"]["code"] == -32600
                await client.leave()

    @both_doors
    async def test_a_body_beyond_the_limit_is_refused(self, client: Client, limits: Any) -> None:
        limits(BODY=1000)
        await client.open()
        assert (await client.post(b'"%b"' % (b"x" * 1000))).status == 413
        declared = await client.post(PING, headers={"content-length": "99999999999"})
        assert declared.status == 413
        assert (await client.post(PING)).status == 202
        await client.leave()

    async def test_a_body_without_the_json_content_type_is_refused(self, client: Client) -> None:
        await client.open()
        assert (await client.post(PING, headers={"content-type": "text/plain"})).status == 415
        await client.leave()

    async def test_every_version_header_is_accepted(self, client: Client) -> None:
        await client.open()
        assert (await client.post(PING, headers={"mcp-protocol-version": "1999-01-01"})).status == 202
        await client.leave()


class TestWhereMessagesGo:
    @both_doors
    async def test_below_a_root_path_of_the_server(self, client: Client) -> None:
        """As the ASGI specification has it, `path` has it too; some servers leave it off."""
        for at in (f"/app{client.path}", client.path):
            uri = await Client(client.app, at).open(root_path="/app")
            assert uri.startswith(f"/app{client.path}?")

    @both_doors
    async def test_below_a_script_name_of_the_project(self, client: Client, settings: Any) -> None:
        settings.FORCE_SCRIPT_NAME = "/script/"
        assert (await client.open()).startswith(f"/script{client.path}?")
        await client.leave()

    async def test_below_a_prefix_with_parameters_and_a_language(self, settings: Any, open_urls: Any) -> None:
        settings.MIDDLEWARE = ["django.middleware.locale.LocaleMiddleware", "django.middleware.common.CommonMiddleware"]
        settings.USE_I18N = True
        open_urls(*i18n_patterns(path("<slug:tenant>/", include("mcp_django.urls"))))
        client = Client(get_asgi_application(), "/de/acme/mcp/posts/sse")
        assert (await client.open()).startswith("/de/acme/mcp/posts/sse?")
        assert (await client.post(PING)).status == 202
        await client.leave()

    async def test_a_path_beyond_ascii_is_quoted(self, open_urls: Any) -> None:
        open_urls(path("<str:tenant>/", include("mcp_django.urls")))
        client = Client(get_asgi_application(), "/bücher & mehr?/mcp/posts/sse")
        client.path = "/bücher & mehr/mcp/posts/sse"
        assert (await client.open(raw_path=b"")).startswith("/b%C3%BCcher%20&%20mehr/mcp/posts/sse?")
        await client.leave()

    def test_never_at_another_host(self) -> None:
        """Two slashes at the beginning of a path would name one (RFC 3986, section 4.2)."""
        for script, rest in (("", "//evil.example/sse"), ("//evil.example", "/sse"), ("/", "//evil.example/sse")):
            request = SimpleNamespace(script_name=script, path_info=rest)
            assert get_client_path(request) == "/evil.example/sse"

    async def test_a_server_outside_the_settings_is_served(self) -> None:
        server = Server("own", "1", alias="own")
        client = Client(mount(get_asgi_application(), servers={"own/<slug:house>": server}), "/own/main/sse")
        hello = await client.hello()
        assert hello["serverInfo"]["name"] == "own"
        assert client.uri.startswith("/own/main/sse?")
        await client.leave()


@pytest.mark.django_db
def test_under_wsgi_the_response_names_asgi_and_the_other_transport() -> None:
    client = DjangoClient(headers={"authorization": "Bearer alice", "host": "localhost"})
    for reply in (client.get("/view/mcp/posts/sse"), client.post("/view/mcp/posts/sse?session_id=x")):
        assert (reply.status_code, reply.headers["allow"]) == (405, "OPTIONS")
        assert b"ASGI" in reply.content
