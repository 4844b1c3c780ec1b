"""Credentials: the project's secrets are in the places of the document, and nowhere else."""

import logging
from typing import Any

import httpx
import pytest

from mcp_django import Context
from mcp_django.schema import DeclarationError
from tests.contrib.openapi.pets import Api, document, operation, parameter, peer, tools
from tests.server.client import PipelineClient, make_principal

SECRET = "s3cr3t-value"
SCHEMES = {
    "key": {"type": "apiKey", "in": "header", "name": "X-Api-Key"},
    "query": {"type": "apiKey", "in": "query", "name": "api_key"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": "sid"},
    "basic": {"type": "http", "scheme": "Basic"},
    "bearer": {"type": "http", "scheme": "bearer"},
    "oauth": {"type": "oauth2", "flows": {}},
    "oidc": {"type": "openIdConnect", "openIdConnectUrl": "https://x"},
    "mtls": {"type": "mutualTLS"},
}


def secured(*security: dict[str, list[str]], **more: Any) -> dict[str, Any]:
    entry = operation(operationId="get", security=list(security), **more)
    return document({"/x": {"get": entry}}, components={"securitySchemes": SCHEMES, "schemas": {"Pet": {}}})


async def test_a_secret_is_sent_in_the_place_of_its_scheme(subtests: pytest.Subtests) -> None:
    for scheme, secret, header, value in [
        ("key", SECRET, "x-api-key", SECRET),
        ("cookie", "a;b", "cookie", "sid=a%3Bb"),
        ("basic", ("ada", SECRET), "authorization", "Basic YWRhOnMzY3IzdC12YWx1ZQ=="),
        ("basic", f"ada:{SECRET}", "authorization", "Basic YWRhOnMzY3IzdC12YWx1ZQ=="),
        ("bearer", SECRET, "authorization", f"Bearer {SECRET}"),
        ("oauth", SECRET, "authorization", f"Bearer {SECRET}"),
        ("oidc", SECRET, "authorization", f"Bearer {SECRET}"),
    ]:
        with subtests.test(scheme=scheme, secret=secret, header=header, value=value):
            api = Api()
            await peer(secured({scheme: []}), api, credentials={scheme: secret}).call("get")
            assert api.last.headers[header] == value


async def test_a_key_in_the_query() -> None:
    api = Api()
    entries = [parameter("api_key", "query"), parameter("filter", "query", schema={"type": "object"})]
    source = secured({"query": []}, parameters=entries)
    listed = (await tools(source, credentials={"query": SECRET}))["get"]["inputSchema"]["properties"]
    assert list(listed) == ["filter"]  # a credential is not an argument
    await peer(source, api, credentials={"query": "a b"}).call("get", filter={"api_key": "mine", "x": "1"})
    assert api.path == "/x?x=1&api_key=a%20b"


async def test_the_first_alternative_with_all_its_secrets_is_used() -> None:
    api = Api()
    source = secured({"mtls": []}, {"key": [], "query": []}, {"bearer": []})
    await peer(source, api, credentials={"key": SECRET, "bearer": "token"}).call("get")
    assert api.last.headers["authorization"] == "Bearer token"
    assert "x-api-key" not in api.last.headers
    await peer(source, api, credentials={"key": SECRET, "query": "q"}).call("get")
    assert (api.last.headers["x-api-key"], api.path) == (SECRET, "/x?api_key=q")


async def test_an_operation_without_security_gets_no_secret() -> None:
    api = Api()
    source = secured()
    source["security"] = [{"key": []}]
    await peer(source, api, credentials={"key": SECRET}).call("get")
    assert "x-api-key" not in api.last.headers
    del source["paths"]["/x"]["get"]["security"]
    await peer(source, api, credentials={"key": SECRET}).call("get")
    assert api.last.headers["x-api-key"] == SECRET


async def test_each_caller_has_secrets_of_their_own() -> None:
    api = Api()

    def of_user(ctx: Context) -> dict[str, str]:
        return {"key": f"key of {ctx.principal.subject}"}

    async def of_scheme(ctx: Context, scheme: str) -> str | None:
        return f"{scheme} of {ctx.principal.subject}" if ctx.principal.subject != "eve" else None

    for credentials in (of_user, of_scheme):
        server = peer(secured({"key": []}), api, credentials=credentials).server
        for name in ("ada", "bob", "ada"):
            await PipelineClient(server, make_principal(name=name)).call("get")
            assert api.last.headers["x-api-key"] == f"key of {name}"
    count = len(api.requests)
    assert (
        await PipelineClient(server, make_principal(name="eve")).error("get")
        == "Missing credentials: this operation needs key"
    )
    assert len(api.requests) == count


async def test_a_single_secret_serves_any_scheme_of_the_operation() -> None:
    api = Api()
    await peer(secured({"bearer": []}), api, credentials=lambda ctx: SECRET).call("get")
    assert api.last.headers["authorization"] == f"Bearer {SECRET}"


async def test_credentials_of_the_caller_are_never_forwarded() -> None:
    api = Api()
    server = peer(secured({"bearer": []}), api).server
    headers = {"Authorization": "Bearer callers-own", "Cookie": "sessionid=callers-own", "X-Api-Key": "callers-own"}
    await PipelineClient(server, headers=headers).call("get")
    assert "callers-own" not in str(api.last.headers.raw)


async def test_an_auth_of_httpx() -> None:
    api = Api()
    await peer(secured({"mtls": []}), api, credentials=httpx.BasicAuth("ada", SECRET)).call("get")
    assert api.last.headers["authorization"].startswith("Basic ")


async def test_headers_may_depend_on_the_call() -> None:
    api = Api()
    await peer(secured(), api, headers={"X-Client": "shop"}).call("get")
    assert api.last.headers["x-client"] == "shop"
    await peer(secured(), api, headers=lambda ctx: {"X-User": ctx.principal.subject}).call("get")
    assert api.last.headers["x-user"] == "local"


async def test_a_caller_cannot_change_a_header_of_the_project() -> None:
    api = Api()
    source = secured(parameters=[parameter("X-Tenant", "header")])
    assert (await tools(source, headers={"x-tenant": "north"}))["get"]["inputSchema"]["properties"] == {}
    await peer(source, api, headers=lambda ctx: {"x-tenant": "north"}).call("get", **{"X-Tenant": "south"})
    assert api.last.headers.get_list("x-tenant") == ["north"]


async def test_a_secret_is_in_no_list_no_error_and_no_log(
    caplog: pytest.LogCaptureFixture, subtests: pytest.Subtests
) -> None:
    for scheme in ["key", "query", "cookie", "basic", "bearer"]:
        with subtests.test(scheme=scheme):

            def repeat(request: httpx.Request) -> httpx.Response:
                return httpx.Response(400, text=f"{request.url} {request.headers.raw!r}")

            secret: Any = ("ada", SECRET) if scheme == "basic" else SECRET
            client = peer(secured({scheme: []}), Api(repeat), credentials={scheme: secret})
            caplog.clear()
            with caplog.at_level(logging.DEBUG):
                told = await client.error("get") + str(await client.request("tools/list", {}))
            assert SECRET not in told + caplog.text
            assert "czNjcjN0LXZhbHVl" not in told + caplog.text
            assert "api.example.com" in caplog.text  # httpx has logged the request


def test_wrong_credentials_are_refused(subtests: pytest.Subtests) -> None:
    for credentials, told in [
        ({"kye": SECRET}, "did you mean 'key'"),
        (lambda: SECRET, "a function of ctx"),
        (7, "a mapping, a function"),
    ]:
        with subtests.test(credentials=credentials, told=told), pytest.raises(DeclarationError, match=told):
            peer(secured({"key": []}), credentials=credentials)


async def test_a_secret_with_a_line_break_is_not_sent() -> None:
    api = Api()
    told = await peer(secured({"key": []}), api, credentials={"key": "a\r\nHost: x"}).error("get")
    assert told == "The credentials for key cannot be sent: they hold control characters"
    assert api.requests == []
