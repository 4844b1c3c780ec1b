"""Test client without a transport.

Each request passes through the whole pipeline of a server: middleware, permissions, checks and handlers. Its result is
returned as it would be sent.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Self

from mcp_django.auth.principal import ALL_SCOPES, PROJECT_ISSUER, DjangoPrincipal, local_principal
from mcp_django.protocol.revisions import LATEST, REVISIONS
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.server import Server
from mcp_django.testing.app_page import AppDocument, select_tool
from mcp_django.testing.skill_document import SkillDocument, load_skill
from mcp_django.transports.inprocess.client import InProcessClient
from mcp_django.transports.inprocess.profile import ELICITATION, InProcessProfile
from mcp_django.wiring import get_ports, get_server

JSONObject = dict[str, Any]
ClientCallback = Callable[[JSONObject], Any]
CLIENT_INFO = {"name": "mcp_django.testing", "version": "1"}


class TestClient:
    """Client of one server: `TestClient()`, `TestClient("staff", user=alice)`.

    `server` is an alias or a Server instance. Without `user` and `principal` the caller is the local principal, who has
    all permissions. A `user` has their Django permissions and `scopes` (None: every scope). `revision` is a protocol
    revision, by default the latest. In revisions with a handshake, `initialize` is sent before the first request.

    `elicit` receives the params of an `elicitation/create` and returns an ElicitResult (`accept`, `decline`, `cancel`).
    `sample` receives the params of a `sampling/createMessage` and returns a text or a CreateMessageResult. Both may be
    async. `roots` are URIs. Each of them is declared as a capability, in addition to `capabilities`.

    Bugs in handlers are raised unchanged, although a real client never receives their text. With
    `raise_exceptions=False` the result for real clients is returned. An MCPError is always raised; an error of a tool
    is a result.
    """

    __test__: ClassVar[bool] = False
    """pytest collects no tests from this class, in spite of its name."""

    def __init__(
        self,
        server: str | Server = "default",
        *,
        user: Any = None,
        scopes: Iterable[str] | None = None,
        principal: DjangoPrincipal | None = None,
        revision: str | None = None,
        elicit: ClientCallback | None = None,
        sample: ClientCallback | None = None,
        roots: Sequence[str] | None = None,
        capabilities: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        log_level: str | None = "info",
        raise_exceptions: bool = True,
    ) -> None:
        """Create a client.

        Raises:
            ValueError: the revision is unknown, or scopes are given without a user.
        """
        if revision is not None and revision not in REVISIONS:
            raise ValueError(f"Unknown revision {revision!r}; use one of {', '.join(REVISIONS)}")

        resolved_server = get_server(server) if isinstance(server, str) else server
        if not resolved_server.is_bound:
            resolved_server.bind(get_ports(resolved_server.alias))

        self.server = resolved_server.copy_with_options(raise_bugs=raise_exceptions)
        self.principal = principal or _build_principal(user, scopes)
        self.revision = LATEST if revision is None else REVISIONS[revision]
        self.capabilities: JSONObject = {
            **({} if elicit is None else ELICITATION),
            **({} if sample is None else {"sampling": {"tools": {}, "context": {}}}),
            **({} if roots is None else {"roots": {"listChanged": True}}),
            **(capabilities or {}),
        }

        self.notifications: list[JSONObject] = []
        """Received notifications in order: `{"method": …, "params": …}`."""
        self._callbacks = {
            "elicitation/create": elicit,
            "sampling/createMessage": None if sample is None else lambda params: _run_sample_callback(sample, params),
            "roots/list": None if roots is None else lambda params: {"roots": [{"uri": uri} for uri in roots]},
        }

        self._client = InProcessClient(
            self.server,
            self.principal,
            InProcessProfile(
                version=self.revision.version,
                capabilities=self.capabilities,
                client_info=CLIENT_INFO,
                log_level=log_level,
            ),
            respond=self._run_callback,
            on_notification=self._store_notification,
            headers=headers,
            url_kwargs=kwargs,
        )

    async def __aenter__(self) -> Self:
        if self._client.profile.has_handshake:
            await self.initialize()
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.close()

    @property
    def session(self) -> ServerSession | None:
        """Session of the server; None before `initialize` and in the stateless era."""
        return self._client.session

    async def initialize(self) -> JSONObject:
        """Open the session and return the InitializeResult.

        In the stateless era, return the result of `server/discover`.
        """
        return await self._client.initialize()

    async def close(self) -> None:
        """End the session, as a client that disconnects does."""
        await self._client.close()

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> JSONObject:
        """Return the result of a request, after all rounds of input requests.

        The client adds its entries to `_meta`, including a `progressToken`. A None value in the `_meta` of `params`
        removes an entry.

        Raises:
            MCPError, Overloaded: the request failed.
            Exception: any exception of `elicit` and `sample`, and bugs in handlers.
        """
        return await self._client.complete(method, params)

    async def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification and wait until the server has processed it."""
        await self._client.notify(method, params)

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None = None) -> JSONObject:
        """Return the CallToolResult, which may have `isError`."""
        return await self.request("tools/call", {"name": name, "arguments": dict(arguments or {})})

    async def read_resource(self, uri: str) -> list[JSONObject]:
        """Return the contents of a resource."""
        contents: list[JSONObject] = (await self.request("resources/read", {"uri": uri}))["contents"]
        return contents

    async def app(self, name: str, arguments: Mapping[str, Any] | None = None) -> AppDocument:
        """Return the page of an app, as a client shows it for a tool, after a check of the protocol's rules.

        `name` is that of the app, or of the tool that it shows. With `arguments` the tool is called, too, and must
        return text for clients without apps.

        Raises:
            AssertionError: there is no such app, or the server breaks a rule.
            MCPError: the page cannot be read.
        """
        entries = {entry["uri"]: entry for entry in await self.list_resources()}
        tool = select_tool(name, await self.list_tools(), entries)
        uri: str = tool["_meta"]["ui"]["resourceUri"]
        read_result = await self.request("resources/read", {"uri": uri})
        [content] = read_result["contents"]
        page = AppDocument(
            uri=uri,
            html=content.get("text", ""),
            tool=tool,
            entry=entries.get(uri),
            content=content,
            read_result=read_result,
            result=None if arguments is None else await self.call_tool(tool["name"], arguments),
        )
        problems = page.find_problems()
        assert not problems, f"app {name!r}: {'; '.join(problems)}"
        return page

    async def skill(self, name: str) -> SkillDocument:
        """Return a skill with all its files, verified as a client verifies them.

        `name` is the URI of the skill, its path such as "shop/refunds", or its name. Compared are the entries of
        `skills/list` and `skills/get`, the digest and size of each file, the frontmatter, and the directories.

        Raises:
            AssertionError: there is no such skill, or the server breaks a rule.
            MCPError: a request failed; the server may lack the extension.
        """
        return await load_skill(name, self.request)

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> JSONObject:
        """Return the GetPromptResult."""
        return await self.request("prompts/get", {"name": name, "arguments": dict(arguments or {})})

    async def complete(
        self, target: str, argument: str, value: str, arguments: Mapping[str, str] | None = None
    ) -> list[str]:
        """Return completions of `value` for a prompt argument or a template variable.

        `target` is the name of the prompt or the URI template.
        """
        ref = {"type": "ref/resource", "uri": target} if "{" in target else {"type": "ref/prompt", "name": target}
        params: JSONObject = {"ref": ref, "argument": {"name": argument, "value": value}}
        if arguments:
            params["context"] = {"arguments": dict(arguments)}
        values: list[str] = (await self.request("completion/complete", params))["completion"]["values"]
        return values

    async def list_tools(self) -> list[JSONObject]:
        """Return all tools visible to the caller."""
        return await self._client.list_all("tools/list", "tools")

    async def list_resources(self) -> list[JSONObject]:
        """Return all resources visible to the caller."""
        return await self._client.list_all("resources/list", "resources")

    async def list_resource_templates(self) -> list[JSONObject]:
        """Return all resource templates visible to the caller."""
        return await self._client.list_all("resources/templates/list", "resourceTemplates")

    async def list_prompts(self) -> list[JSONObject]:
        """Return all prompts visible to the caller."""
        return await self._client.list_all("prompts/list", "prompts")

    def _store_notification(self, method: str, params: JSONObject) -> None:
        self.notifications.append({"method": method, "params": params})

    async def _run_callback(self, message: JSONObject) -> Any:
        callback = self._callbacks.get(message["method"])
        if callback is None:
            raise AssertionError(
                f"Unexpected request {message['method']} of the server; pass a callback for it to Client"
            )
        result = callback(message.get("params", {}))
        return await result if inspect.isawaitable(result) else result


def accept(**content: Any) -> JSONObject:
    """Return an ElicitResult of a user who submits the form.

    A single value, such as that of a `bool`, is named `value`.
    """
    return {"action": "accept", "content": content}


def decline() -> JSONObject:
    """Return an ElicitResult of a user who declines."""
    return {"action": "decline"}


def cancel() -> JSONObject:
    """Return an ElicitResult of a user who closes the dialog."""
    return {"action": "cancel"}


async def _run_sample_callback(sample: ClientCallback, params: JSONObject) -> JSONObject:
    result = sample(params)
    result = await result if inspect.isawaitable(result) else result
    if not isinstance(result, str):
        return dict(result)
    return {"role": "assistant", "content": {"type": "text", "text": result}, "model": "test", "stopReason": "endTurn"}


def _build_principal(user: Any, scopes: Iterable[str] | None) -> DjangoPrincipal:
    if user is not None and getattr(getattr(user, "_state", None), "adding", False):
        raise ValueError(f"the user {user!r} is not saved; save it before it calls a server")
    if user is None:
        if scopes is not None:
            raise ValueError("scopes were given without a user; pass user or principal")
        return local_principal()
    granted_scopes = ALL_SCOPES if scopes is None else frozenset(scopes)
    return DjangoPrincipal(
        issuer=PROJECT_ISSUER,
        subject=str(user.pk),
        client_id="testing",
        user=user,
        scopes=granted_scopes,
        kind="testing",
    )
