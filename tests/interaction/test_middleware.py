"""The view behind a project's MIDDLEWARE: all of it is run, and none of it breaks the protocol."""

import asyncio
import gc
import gzip
import zlib
from typing import Any

import pytest
from django.conf.urls.i18n import i18n_patterns
from django.contrib.auth import get_user_model
from django.contrib.sessions.backends.db import SessionStore
from django.core.asgi import get_asgi_application
from django.core.cache import cache
from django.db import connections
from django.http import HttpResponse
from django.urls import include, path

from mcp_django.auth.authentication.verifiers import AuthError
from tests.interaction.clients import HANDSHAKE, STATELESS, Client
from tests.interaction.transports import Transport

LAYERS = "tests.interaction.middleware."
SESSIONS = "django.contrib.sessions.middleware.SessionMiddleware"
LOGIN = "django.contrib.auth.middleware.AuthenticationMiddleware"


@pytest.fixture
def view():
    """The view's transport."""
    return Transport(get_asgi_application, "/view")


@pytest.fixture(params=[HANDSHAKE[-1], STATELESS], ids=["handshake", "stateless"])
def connect(request, view):
    """`await connect()`: a client of the newest revision of each era."""
    return lambda **options: Client(view, request.param, **options).open()


@pytest.fixture
def modern(view):
    """`modern()`: a client of the stateless era."""
    return lambda **options: Client(view, STATELESS, **options)


KINDS = {
    "SyncOnly": ("x-sync-only", None),
    "AsyncOnly": ("x-async-only", None),
    "Mixed": ("x-mixed", "request view response"),
    "plain_function": ("x-plain-function", None),
    "either_function": ("x-either-function", None),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_middleware_of_every_kind_is_run_and_may_set_headers(settings, modern, kind):
    settings.MIDDLEWARE = [LAYERS + kind]
    client = modern()
    header, value = KINDS[kind]
    answer = await client.tool("add_in_a_thread", {"a": 1, "b": 2})
    stream = await client.tool("steps", {"count": 3}, meta={"progressToken": 1})
    assert not answer.is_stream
    assert stream.is_stream
    for reply in (answer, stream):
        assert reply.headers[header] == (value or client.path())
    assert answer.result["content"][0]["text"] == "3"
    assert len(stream.notifications("notifications/progress")) == 3


@pytest.mark.parametrize("order", [1, -1])
async def test_middleware_of_all_kinds_may_be_mixed(settings, connect, order):
    settings.MIDDLEWARE = [LAYERS + kind for kind in KINDS][::order]
    client = await connect()
    for name, arguments in (("add", {"a": 1, "b": 2}), ("steps", {"count": 3})):
        reply = await client.tool(name, arguments, meta={"progressToken": 1})
        assert {header for header, _ in KINDS.values()} <= reply.headers.keys()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_comes_event_by_event_through_middleware(settings, modern, checkpoints, kind):
    settings.MIDDLEWARE = [LAYERS + kind]
    call = modern().begin("tools/call", {"name": "speak_then_wait", "arguments": {}}, meta={"progressToken": 1})
    assert (await call.message())["method"] == "notifications/progress"
    checkpoints.gate("wait").set()
    assert (await call.message())["result"]["content"][0]["text"] == "waited"
    await call.end()


async def test_a_disconnect_is_noticed_behind_sync_middleware(settings, modern, checkpoints):
    settings.MIDDLEWARE = [LAYERS + "SyncOnly", LAYERS + "Mixed"]
    call = modern().begin("tools/call", {"name": "wait", "arguments": {}})
    await checkpoints.until("wait reached")
    call.leave()
    await checkpoints.until("wait cancelled")
    await call.end()


async def test_middleware_may_return_a_response(settings, modern):
    settings.MIDDLEWARE = [LAYERS + "closed"]
    reply = await modern().request("tools/list")
    assert (reply.status, reply.body, reply.headers["retry-after"]) == (503, b"closed for today", "60")


async def test_middleware_may_read_the_body_first(settings, modern):
    settings.MIDDLEWARE = [LAYERS + "body_reader"]
    reply = await modern().tool("add", {"a": 1, "b": 2})
    assert reply.result["content"][0]["text"] == "3"
    assert int(reply.headers["x-length"]) > 0


async def test_json_may_be_compressed_without_a_change(settings, modern):
    client = modern()
    plain = (await client.request("tools/list", id=7)).body
    settings.MIDDLEWARE = ["django.middleware.gzip.GZipMiddleware"]
    client.transport.restart()
    call = client.begin("tools/list", id=7, headers={"accept-encoding": "gzip"})
    status, headers = await call.started()
    body = b""
    while (chunk := await call._chunk()) is not None:
        body += chunk
    assert (status, headers["content-encoding"], int(headers["content-length"])) == (200, "gzip", len(body))
    assert gzip.decompress(body) == plain


@pytest.mark.parametrize("accepted", ["gzip", "gzip, deflate, br, zstd"])
async def test_a_stream_is_never_compressed(settings, modern, checkpoints, accepted):
    settings.MIDDLEWARE = ["django.middleware.gzip.GZipMiddleware"]
    params = {"name": "speak_then_wait", "arguments": {}}
    call = modern().begin("tools/call", params, meta={"progressToken": 1}, headers={"accept-encoding": accepted})
    _, headers = await call.started()
    assert headers["content-encoding"] == "identity"
    assert (await call.message())["method"] == "notifications/progress"
    checkpoints.gate("wait").set()
    await call.message()
    with pytest.raises(zlib.error):
        zlib.decompress(b"".join(call._raw), wbits=31)


@pytest.mark.parametrize("debug", [True, False])
async def test_a_slash_is_never_appended_by_a_redirect(settings, connect, debug):
    settings.MIDDLEWARE = ["django.middleware.common.CommonMiddleware"]
    settings.APPEND_SLASH, settings.DEBUG = True, debug
    client = await connect()
    for slash in ("", "/"):
        assert (await client.request("tools/list", path=client.path() + slash)).status == 200
        for method in ("HEAD", "PUT"):
            assert (await client.post(method=method, path=client.path() + slash)).status == 405


async def test_responses_are_never_cached(settings, connect):
    settings.MIDDLEWARE = [
        "django.middleware.cache.UpdateCacheMiddleware",
        "django.middleware.http.ConditionalGetMiddleware",
        "django.middleware.cache.FetchFromCacheMiddleware",
    ]
    cache.clear()
    client = await connect()
    for expected in range(1, 4):
        reply = await client.tool("remember")
        assert reply.result["structuredContent"] == {"result": 1 if client.stateless else expected}
        assert "max-age" not in reply.headers.get("cache-control", "")
    for _ in range(2):
        refused = await client.post(method="HEAD")
        assert (refused.status, refused.headers["cache-control"]) == (405, "no-store")
    assert not cache._cache


async def test_security_headers_are_added_to_answers_and_streams(settings, modern):
    settings.MIDDLEWARE = [
        "django.middleware.security.SecurityMiddleware",
        "django.middleware.clickjacking.XFrameOptionsMiddleware",
    ]
    for name in ("nothing", "steps"):
        reply = await modern().tool(name, {"count": 1} if name == "steps" else {}, meta={"progressToken": 1})
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["x-frame-options"] == "DENY"


async def test_a_csrf_token_is_not_required(settings, connect):
    settings.MIDDLEWARE = ["django.middleware.csrf.CsrfViewMiddleware"]
    client = await connect()
    reply = await client.request(
        "tools/list", headers={"cookie": "csrftoken=abc", "referer": "https://elsewhere.test/"}
    )
    assert reply.status == 200


@pytest.fixture
def cookie(settings, db):
    """The cookie of a user with a login to the site."""
    settings.MIDDLEWARE = [SESSIONS, LOGIN]
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.db"
    user = get_user_model().objects.create_superuser("admin", password="x")
    session = SessionStore()
    session.update({"_auth_user_id": str(user.pk), "_auth_user_backend": "django.contrib.auth.backends.ModelBackend"})
    session["_auth_user_hash"] = user.get_session_auth_hash()
    session.create()
    return f"{settings.SESSION_COOKIE_NAME}={session.session_key}"


async def test_a_session_cookie_does_not_authenticate(modern, cookie):
    reply = await modern(token=None).request("tools/list", headers={"cookie": cookie})
    assert reply.status == 401


async def test_the_user_is_the_one_of_the_token_despite_a_session_cookie(modern, cookie):
    seen = (await modern(token="bob").tool("request", headers={"cookie": cookie}, path="/view/mcp/places")).result
    assert (seen["structuredContent"]["user"], seen["structuredContent"]["auser"]) == ("bob", "bob")


async def test_login_is_not_required(settings, connect):
    settings.MIDDLEWARE = [SESSIONS, LOGIN, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    client = await connect()
    assert (await client.request("tools/list")).status == 200
    anonymous = await Client(client.transport, client.revision, token=None).request("tools/list")
    assert anonymous.status == 401
    assert "location" not in anonymous.headers


@pytest.mark.parametrize("aliases", [("default",), ("default", "other")])
async def test_atomic_requests_do_not_apply(settings, connect, monkeypatch, aliases):
    # Django looks at the settings of every alias when it resolves a view.
    known = dict(connections.settings)
    for alias in aliases:
        known[alias] = {**connections.settings["default"], "ATOMIC_REQUESTS": True}
    monkeypatch.setattr(connections, "settings", known)
    client = await connect()
    for name in ("add", "add_in_a_thread"):
        assert (await client.tool(name, {"a": 1, "b": 2})).result["content"][0]["text"] == "3"


def _lost(request: Any, exception: Exception) -> HttpResponse:
    return HttpResponse("the site's own page", status=404)


class SiteURLs:
    """A URLconf with a 404 page of its own."""

    urlpatterns = [path("view/", include("mcp_django.urls"))]
    handler404 = "tests.interaction.test_middleware._lost"


async def test_a_not_found_response_of_the_protocol_is_not_the_404_page_of_the_site(settings, modern, view):
    settings.ROOT_URLCONF = SiteURLs
    unknown = await modern().request("ping")
    assert unknown.verdict == (404, -32601)
    ended = await (await Client(view, HANDSHAKE[-1]).open()).request("ping", headers={"mcp-session-id": "gone"})
    assert (ended.status, ended.headers["content-type"]) == (404, "text/plain; charset=utf-8")
    assert (await modern().request("tools/list", path="/view/nothing")).body == b"the site's own page"


class TranslatedSite:
    """A site whose pages are below their language, with a catch-all: as a CMS has it."""

    @staticmethod
    def page(request: Any, page: str) -> HttpResponse:
        return HttpResponse(page)


def _translated() -> Any:
    class URLs:
        urlpatterns = [
            path("view/", include("mcp_django.urls")),
            *i18n_patterns(path("<path:page>", TranslatedSite.page)),
        ]

    return URLs


async def test_an_unknown_session_is_not_redirected_to_a_language_prefix(settings, view):
    settings.ROOT_URLCONF = _translated()
    settings.MIDDLEWARE = ["django.middleware.locale.LocaleMiddleware", "django.middleware.common.CommonMiddleware"]
    client = await Client(view, HANDSHAKE[-1]).open()
    gone = await client.request("tools/list", headers={"mcp-session-id": "gone"})
    assert gone.status == 404
    assert "location" not in gone.headers


async def test_a_busy_response_is_not_mailed_to_the_admins_of_the_site(settings, modern, monkeypatch, caplog):
    async def unavailable(self, token: str, *, resource: Any) -> Any:
        raise AuthError("unavailable", "Too busy")

    monkeypatch.setattr("tests.interaction.verifiers.Tokens.verify", unavailable)
    assert (await modern().request("tools/list")).status == 503
    assert not [record for record in caplog.records if record.name == "django.request"]


async def test_concurrent_calls_behind_sync_middleware_are_isolated(settings, connect):
    settings.MIDDLEWARE = [LAYERS + "SyncOnly", LAYERS + "Mixed"]
    client = await connect()
    replies = await asyncio.gather(*(client.tool("add", {"a": number, "b": 0}) for number in range(20)))
    assert [reply.result["structuredContent"]["result"] for reply in replies] == list(range(20))


async def test_a_disconnect_behind_middleware_cancels_a_stateless_call(settings, limits, clock, modern, checkpoints):
    limits(SSE_UPGRADE_AFTER=2)
    settings.MIDDLEWARE = [LAYERS + "slow_after"]
    exchange = modern().begin("tools/call", {"name": "wait"})
    await clock.advance_while(checkpoints.until("middleware reached"))
    exchange.leave()
    await exchange.end()
    gc.collect()  # the response may be in a cycle with the exception that ended the middleware
    await checkpoints.until("wait cancelled")
