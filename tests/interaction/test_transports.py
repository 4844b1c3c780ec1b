"""The same context for handlers through both transports; and the visible details of a bug."""

from tests.interaction.clients import Client
from tests.interaction.transports import contract, on_http


@on_http
async def test_a_handler_sees_the_django_request(modern):
    client = modern(token="bob")
    seen = (await client.tool("whoami")).result["structuredContent"]
    assert seen["path"] == client.path()
    assert (seen["user"], seen["principal"]) == ("bob", "tests|bob|")


@on_http
async def test_a_trailing_slash_makes_no_difference(modern):
    client = modern()
    assert (await client.request("tools/list", path=client.path() + "/")).served


async def test_the_text_of_a_bug_is_shown_only_where_both_switches_are_on(modern, settings):
    for debug, expose in ((False, True), (True, False)):
        settings.DEBUG = debug
        settings.MCP = {**settings.MCP, "EXPOSE_INTERNAL_ERRORS": expose}
        assert b"swordfish" not in (await modern().tool("buggy")).body


async def test_the_text_of_a_bug_is_shown_to_developers_with_the_setting(modern, settings):
    settings.DEBUG = True
    settings.MCP = {**settings.MCP, "EXPOSE_INTERNAL_ERRORS": True}
    assert b"swordfish" in (await modern().tool("buggy")).body


async def test_a_timeout_of_a_prompt_is_an_internal_error_with_the_limit(either):
    reply = await (await either()).request("prompts/get", {"name": "slow_prompt"})
    assert reply.refused(200, -32603)
    assert "0.05" in reply.error["message"]


STOCK = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.gzip.GZipMiddleware",
    "django.middleware.http.ConditionalGetMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]


async def test_the_middleware_of_django_is_compatible(settings, either):
    settings.MIDDLEWARE = STOCK
    client = await either()
    assert (await client.tool("add", {"a": 1, "b": 2})).result["content"][0]["text"] == "3"
    gzip = {"accept-encoding": "gzip"}
    reply = await client.tool("steps", {"count": 50}, meta={"progressToken": 1}, headers=gzip)
    assert len(reply.notifications("notifications/progress")) == 50


@on_http
async def test_a_token_in_the_query_is_ignored(modern):
    client = modern(token=None)
    for name in (b"access_token", b"token"):
        assert (await client.request("tools/list", query_string=name + b"=alice")).status == 401


@on_http
async def test_without_authentication_all_requests_are_refused(settings, transport, subtests):
    for auth in [None, "token"]:
        with subtests.test(auth=auth):
            transport.restart()
            settings.MCP = {**settings.MCP, "AUTH": auth}
            settings.OAUTH2_PROVIDER = {}  # without an authorization server
            reply = await Client(transport, "2026-07-28", token=None).request("tools/list")
            assert reply.status == (403 if auth is None else 401)


@contract
async def test_the_local_principal_is_served_from_loopback(settings, either):
    settings.MCP = {**settings.MCP, "AUTH": "none"}
    client = await either(token=None)
    assert (await client.tool("guarded")).result["content"][0]["text"] == "users"


@on_http
async def test_the_local_principal_is_not_served_from_anywhere_else(settings, transport, subtests):
    for peer, headers in [
        (("10.0.0.5", 1), {}),
        (None, {}),
        (("127.0.0.1", 1), {"x-forwarded-for": "10.0.0.5"}),
        (("127.0.0.1", 1), {"forwarded": "for=10.0.0.5"}),
        (("127.0.0.1", 1), {"host": "example.com"}),
    ]:
        with subtests.test(peer=peer, headers=headers):
            settings.ALLOWED_HOSTS = ["127.0.0.1", "example.com"]
            settings.MCP = {**settings.MCP, "AUTH": "none"}
            reply = await Client(transport, "2026-07-28", token=None).request(
                "tools/list", headers=headers, client=peer
            )
            assert reply.status == 403
