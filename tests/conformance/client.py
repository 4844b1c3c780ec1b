"""The client that the suite tests: `python -m tests.conformance.client URL`, the scenario named in the environment.

It is a program such as a project would write on `mcp_django.client`. Where a server wants to be allowed by a person, a
person allows it: the page of the suite's authorization server redirects at once.
"""

import asyncio
import json
import os
import secrets
import sys
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import django
import httpx2
import yaml
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from mcp_types import (
    CallToolResult,
    CreateMessageResult,
    ElicitRequestFormParams,
    ElicitRequestParams,
    TextContent,
    TextResourceContents,
)

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.conformance.settings")
os.environ.setdefault("FIXTURES_DATABASE", ":memory:")
django.setup()

from django.contrib.auth import get_user_model  # noqa: E402

from mcp_django.client import AuthorizationNeeded, CallError, Client, ClientError, StreamableHTTP  # noqa: E402
from mcp_django.client.oauth.flow import begin_flow, complete_flow  # noqa: E402
from mcp_django.client.oauth.http import AuthorizationFailed  # noqa: E402
from mcp_django.client.oauth.loopback import login  # noqa: E402
from mcp_django.client.pool.factory import build_client  # noqa: E402
from mcp_django.conf.clients import ClientAuth, ClientSettings  # noqa: E402

SCENARIO, CONTEXT = "MCP_CONFORMANCE_SCENARIO", "MCP_CONFORMANCE_CONTEXT"
LOGINS = 3
"""How often the person may be asked in one scenario."""
DESCRIBED_AT = "https://conformance-test.local/client-metadata.json"
"""Where the suite says that this client is described; nothing is there."""
COMES_BACK_TO = "http://localhost:3000/callback"
"""The address of the site's page that people come back to. No server listens: the answer is read from the redirect."""

SuiteContext = dict[str, Any]
Scenario = Callable[[str, SuiteContext], Awaitable[None]]


def main() -> None:
    name = os.environ[SCENARIO]
    context: SuiteContext = json.loads(os.environ.get(CONTEXT) or "{}")
    scenario = SCENARIOS.get(name, authorized if name.startswith("auth/") else None)
    if scenario is None:
        raise SystemExit(f"There is no scenario {name} here")
    asyncio.run(scenario(sys.argv[1], context))


async def listed(url: str, context: SuiteContext) -> None:
    async with Client.streamable_http(url) as client:
        await client.list_tools()


async def added(url: str, context: SuiteContext) -> None:
    """List, and add; with everything declared that a client can be asked for."""
    async with Client.streamable_http(url, sampling=_sample, elicitation=_defaults, roots=[]) as client:
        await client.list_tools()
        await client.call_tool("add_numbers", {"a": 5, "b": 3})


async def reconnected(url: str, context: SuiteContext) -> None:
    async with Client.streamable_http(url) as client:
        await client.list_tools()
        await client.call_tool("test_reconnection")


async def filled_in(url: str, context: SuiteContext) -> None:
    async with Client.streamable_http(url, elicitation=_defaults) as client:
        await client.list_tools()
        await client.call_tool("test_client_elicitation_defaults")


async def asked_in_rounds(url: str, context: SuiteContext) -> None:
    async with Client.streamable_http(url, elicitation=lambda params: {"confirmed": True}) as client:
        await client.list_tools()
        for name in ("test_mrtr_echo_state", "test_mrtr_unrelated", "test_mrtr_no_state", "test_mrtr_no_result_type"):
            assert isinstance(await client.call_tool(name), CallToolResult)


async def called_each(url: str, context: SuiteContext) -> None:
    """Call every tool that is listed: those with wrong declarations must not be among them."""
    samples = {"string": "x", "integer": 0, "number": 0, "boolean": False, "object": {}, "array": []}
    async with Client.streamable_http(url) as client:
        for tool in await client.list_tools():
            properties, required = (tool.input_schema.get(key, {}) for key in ("properties", "required"))
            try:
                await client.call_tool(tool.name, {name: samples.get(properties[name]["type"]) for name in required})
            except CallError as refused:
                sys.stderr.write(f"{tool.name}: {refused}\n")


async def mirrored(url: str, context: SuiteContext) -> None:
    """The calls that the suite names, with arguments that have to be in headers, too."""
    async with Client.streamable_http(url) as client:
        names = {tool.name for tool in await client.list_tools()}
        for call in context["toolCalls"]:
            if call["name"] in names:
                await client.call_tool(call["name"], call.get("arguments") or {})


async def echoed(url: str, context: SuiteContext) -> None:
    async with Client.streamable_http(url) as client:
        tool = next(tool for tool in await client.list_tools() if tool.name == "json_schema_2020_12_tool")
        await client.call_tool("json_schema_echo", {"schema": tool.input_schema})


async def skills_listed(url: str, context: SuiteContext) -> None:
    """List skills as a host does (SEP-2640), and load none."""
    async with Client.streamable_http(url) as client:
        await client.exchange("skills/list", {})


async def skills_loaded(url: str, context: SuiteContext) -> None:
    """Load skills file by file, and no further than a file that is not the one that was listed."""
    async with Client.streamable_http(url) as client:
        for skill in (await client.exchange("skills/list", {}))["skills"]:
            for listed_file in skill["resources"]:
                found = (await client.read_resource(listed_file["uri"])).contents[0]
                assert isinstance(found, TextResourceContents)
                raw = found.text.encode()
                if len(raw) != listed_file["size"] or f"sha256:{sha256(raw).hexdigest()}" != listed_file["digest"]:
                    break
                described = listed_file["uri"] == skill["uri"]
                if described and yaml.safe_load(found.text.split("---")[1]) != skill["frontmatter"]:
                    break


async def authorized(url: str, context: SuiteContext) -> None:
    """Use a server that needs authorization, and authorize as often as the server asks for it."""
    settings = await _settings(url, context)
    for _ in range(LOGINS):
        try:
            async with build_client(settings) as client:
                return await _used(client)
        except AuthorizationNeeded:
            await _allowed(settings)
    async with build_client(settings) as client:
        await _used(client)


async def refused(url: str, context: SuiteContext) -> None:
    """Trust no authorization server or resource that is not the one that was asked for."""
    await _fail(AuthorizationFailed, url, context)


async def limited(url: str, context: SuiteContext) -> None:
    """Give up a server that is never content."""
    await _fail(ClientError, url, context)


async def asserted(url: str, context: SuiteContext) -> None:
    """Identity assertions (SEP-990) are the SDK's: any `httpx2.Auth` does."""

    async def assertion(audience: str, resource: str) -> str:
        form = {
            "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
            "subject_token": context["idp_id_token"],
            "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
            "audience": audience,
            "resource": resource,
            "client_id": context["idp_client_id"],
        }
        async with httpx2.AsyncClient() as http:
            answer = await http.post(context["idp_token_endpoint"], data=form)
        return str(answer.raise_for_status().json()["access_token"])

    auth = IdentityAssertionOAuthProvider(
        server_url=url,
        storage=_Storage(),
        client_id=context["client_id"],
        client_secret=context["client_secret"],
        issuer=await _issuer(url),
        assertion_provider=assertion,
        token_endpoint_auth_method="client_secret_basic",
    )
    async with Client(StreamableHTTP(url, auth=auth)) as client:
        await _used(client)


SCENARIOS: dict[str, Scenario] = {
    "initialize": listed,
    "tools_call": added,
    "elicitation-sep1034-client-defaults": filled_in,
    "sse-retry": reconnected,
    "request-metadata": added,
    "http-standard-headers": added,
    "http-custom-headers": mirrored,
    "http-invalid-tool-headers": called_each,
    "json-schema-ref-no-deref": listed,
    "json-schema-2020-12-preservation": echoed,
    "sep-2322-client-request-state": asked_in_rounds,
    "sep-2640-client-no-prefetch": skills_listed,
    "sep-2640-client-verify-digest": skills_loaded,
    "sep-2640-client-verify-frontmatter": skills_loaded,
    "sep-2640-client-verify-size": skills_loaded,
    "auth/enterprise-managed-authorization": asserted,
    "auth/scope-retry-limit": limited,
    "auth/resource-mismatch": refused,
    "auth/metadata-issuer-mismatch": refused,
    "auth/iss-supported-missing": refused,
    "auth/iss-wrong-issuer": refused,
    "auth/iss-unexpected": refused,
    "auth/iss-normalized": refused,
}


async def _fail(expected: type[Exception], url: str, context: SuiteContext) -> None:
    """Use a server that must not be used. Raises AssertionError if it is."""
    try:
        await authorized(url, context)
    except expected:
        return
    raise AssertionError(f"No {expected.__name__}")


async def _used(client: Client) -> None:
    """List the tools, and call the first one, which differs between scenarios."""
    for tool in (await client.list_tools())[:1]:
        await client.call_tool(tool.name)


async def _settings(url: str, context: SuiteContext) -> ClientSettings:
    """Return an entry of `MCP["CLIENTS"]` for the server, with the credentials of the suite."""
    auth: SuiteContext = {"type": "oauth", "per": "project"}
    if "client_id" in context:
        auth |= {"client_id": context["client_id"], "issuer": context.get("issuer") or await _issuer(url)}
        auth |= {"client_secret": context.get("client_secret")}
    elif os.environ[SCENARIO] == "auth/basic-cimd":
        auth["client_metadata_url"] = DESCRIBED_AT
    if os.environ[SCENARIO].startswith("auth/client-credentials"):
        auth |= {"type": "client_credentials", "private_key": context.get("private_key_pem")}
        auth["algorithm"] = context.get("signing_algorithm", "RS256")
    return ClientSettings(alias=f"tested-{os.getpid()}", url=url, auth=ClientAuth(**auth))


async def _issuer(url: str) -> str:
    """The authorization server of a server, which a project would have in its settings."""
    parts = urlsplit(url)
    described = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}"
    async with httpx2.AsyncClient() as http:
        answer = await http.get(described)
    return str(answer.raise_for_status().json()["authorization_servers"][0])


async def _allowed(settings: ClientSettings) -> None:
    """Have the person allow it: from a terminal, or on the site's pages where it is the site that is described."""
    if settings.auth is None or settings.auth.client_metadata_url is None:
        return await login(settings, write=sys.stderr.write, open_url=_visit)
    person, browser = await get_user_model().objects.aget_or_create(username="tester"), secrets.token_urlsafe()
    url = await begin_flow(settings, person[0], browser_secret=browser, redirect_uri=COMES_BACK_TO)
    answer = dict(parse_qsl(urlsplit(_visit(url, follow=False)).query))
    await complete_flow(settings, person[0], browser_secret=browser, response_params=answer)


def _visit(url: str, *, follow: bool = True) -> str:
    """Visit a page as the browser of a user that allows everything; return the redirect."""
    with httpx2.Client() as browser:
        sent_to = browser.get(url).headers["Location"]
        if follow:
            browser.get(sent_to)
    return str(sent_to)


async def _sample(params: Any) -> CreateMessageResult:
    return CreateMessageResult(role="assistant", content=TextContent(type="text", text="Yes."), model="none")


async def _defaults(params: ElicitRequestParams) -> SuiteContext:
    """Return the defaults of a form."""
    assert isinstance(params, ElicitRequestFormParams)
    fields = params.requested_schema.get("properties", {})
    return {name: field["default"] for name, field in fields.items() if "default" in field}


class _Storage:
    """Tokens for as long as the program runs."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


if __name__ == "__main__":
    main()
