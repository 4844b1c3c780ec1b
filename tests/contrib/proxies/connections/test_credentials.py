"""Several callers with their own credentials at a remote: no data of one reaches another."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from mcp.client._memory import InMemoryTransport
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

from mcp_django.client import AuthorizationNeeded
from mcp_django.contrib.proxies import Proxy, loop_state
from mcp_django.contrib.proxies.connections.targets import TargetSource
from mcp_django.protocol.errors import InvalidParams, ResourceNotFound
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_principal, make_server

NAMES = ("ada", "bob")
KEYS = {"ada": "key-of-ada", "bob": "key-of-bob"}


class Secret(BaseModel):
    word: str


@dataclass(frozen=True)
class Vault:
    """A target whose server is another one for each credential that comes with it."""

    headers: Mapping[str, str] = field(default_factory=dict)
    opened: list[str] = field(default_factory=list)
    withdrawn: set[str] = field(default_factory=set)

    def open(self) -> AbstractAsyncContextManager[Any]:
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[Any]:
        key = self.headers.get("X-Key", "nobody")
        if key == "nobody" or key in self.withdrawn:
            raise AuthorizationNeeded("not yet", "vault", "https://vault.example/allow")
        self.opened.append(key)
        async with InMemoryTransport(server_of(key)) as streams:
            yield streams


def server_of(key: str) -> MCPServer:
    server = MCPServer("vault")

    @server.tool()
    async def whose(number: int) -> str:
        await asyncio.sleep(0)
        return f"{key} {number}"

    @server.tool()
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit(f"What is the word, {key}?", Secret)
        return f"{key}: {answer.data.word}"

    @server.tool(name=f"only-{key}")
    async def only() -> str:
        return key

    @server.resource(f"vault://{key}")
    async def inside() -> str:
        return key

    return server


def headers(ctx: Any) -> dict[str, str] | None:
    key = KEYS.get(ctx.principal.subject)
    return None if key is None else {"X-Key": key}


def vault(target: Vault | None = None, **options: Any) -> Proxy:
    source = TargetSource("vault", target or Vault(), protocol_version="handshake", max_retries=0)
    return Proxy(source, **{"permission": "any", "credentials": headers, **options})


def people(proxy: Proxy, version: str = STATELESS) -> dict[str, PipelineClient]:
    server = make_server(providers=[proxy])

    def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        return {"action": "accept", "content": {"word": params["message"].split("key-of-")[1]}}

    return {
        name: PipelineClient(server, principal=make_principal(name=name), version=version, answer=answer)
        for name in (*NAMES, "eve")
    }


async def test_simultaneous_callers_never_get_the_results_of_each_other(subtests: pytest.Subtests) -> None:
    for version in [STATELESS, HANDSHAKE]:
        with subtests.test(version=version):
            proxy = vault()
            peers = people(proxy, version)

            async def calls(name: str, peers: Any = peers) -> None:
                peer = peers[name]
                for number in range(5):
                    assert await peer.text("vault__whose", number=number) == f"{KEYS[name]} {number}"
                    assert await peer.text("vault__ask") == f"{KEYS[name]}: {name}?"
                    assert f"vault__only-{KEYS[name]}" in await peer.names()
                    assert await peer.names("resources/list", "resources", "uri") == [f"vault://{KEYS[name]}"]

            await asyncio.gather(*(calls(name) for name in NAMES for _ in range(3)))


async def test_tools_of_one_credential_are_unknown_to_another() -> None:
    peers = people(vault())
    assert await peers["ada"].text("vault__only-key-of-ada") == "key-of-ada"
    with pytest.raises(InvalidParams, match="Unknown tool"):
        await peers["bob"].call("vault__only-key-of-ada")
    with pytest.raises(ResourceNotFound):
        await peers["bob"].request("resources/read", {"uri": "vault://key-of-ada"})


async def test_a_caller_without_a_credential_sees_only_instructions() -> None:
    eve = people(vault())["eve"]
    assert await eve.names() == ["vault__connect"]
    assert "no credential for you" in await eve.error("vault__connect")
    assert "no credential for you" in await eve.error("vault__whose", number=1)
    assert await eve.names("resources/list", "resources", "uri") == []


async def test_a_caller_without_consent_gets_a_url_elicitation() -> None:
    target = Vault(withdrawn={"key-of-ada"})
    ada = people(vault(target))["ada"]
    assert await ada.names() == ["vault__connect"]
    asked = []

    def allow(method: str, params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params)
        target.withdrawn.clear()
        return {"action": "accept"}

    ada.answer = allow
    assert await ada.text("vault__connect") == "vault is connected. List the tools again"
    assert asked[0]["url"] == "https://vault.example/allow"
    assert "vault__whose" in await ada.names()


async def test_a_client_without_url_elicitation_gets_the_url_as_text() -> None:
    ada = people(vault(Vault(withdrawn={"key-of-ada"})))["ada"]
    ada.capabilities = {}
    assert "https://vault.example/allow" in await ada.error("vault__whose", number=1)


async def test_headers_of_a_caller_are_never_forwarded() -> None:
    sent: list[Mapping[str, str]] = []

    class RecordingVault(Vault):
        def open(self) -> AbstractAsyncContextManager[Any]:
            sent.append(self.headers)
            return super().open()

    ada = people(vault(RecordingVault()))["ada"]
    ada.headers = {"Authorization": "Bearer of-ada", "Cookie": "sessionid=of-ada", "X-Tenant": "north"}
    assert await ada.text("vault__whose", number=1) == "key-of-ada 1"
    assert await ada.text("vault__ask") == "key-of-ada: ada?"
    assert sent == [{"X-Key": "key-of-ada"}] * len(sent)
    assert sent


async def test_a_connection_of_one_credential_is_not_used_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    target = Vault()
    ada = people(vault(target))["ada"]
    assert await ada.text("vault__ask") == "key-of-ada: ada?"
    monkeypatch.setitem(KEYS, "ada", "key-of-carol")
    assert await ada.text("vault__ask") == "key-of-carol: carol?"
    assert "vault__only-key-of-carol" in await ada.names()
    assert "vault__only-key-of-ada" not in await ada.names()


async def test_a_credential_is_in_no_repr_and_no_key() -> None:
    proxy = vault()
    await people(proxy)["ada"].text("vault__ask")
    here = proxy._states.get()
    kept = [*here.catalogs, *here._clients, *(session.key for session in here.sessions._idle)]
    assert kept
    assert "key-of-ada" not in repr(kept)


async def test_a_failing_credentials_function_hides_only_its_remote(caplog: pytest.LogCaptureFixture) -> None:
    def broken(ctx: Any) -> Any:
        raise RuntimeError("no such table: secret")

    server = make_server(providers=[vault(credentials=broken)])
    server.tool(lambda: "here", name="mine")
    peer = PipelineClient(server)
    assert await peer.names() == ["mine"]
    assert await peer.error("vault__whose", number=1) == "The server 'vault' cannot be reached now; try again later"


async def test_consent_in_a_later_round_is_requested_and_the_call_continues() -> None:
    target = Vault()
    ada = people(proxy := vault(target))["ada"]
    assert "vault__ask" in await ada.names()
    target.withdrawn.add("key-of-ada")
    proxy._states.get().sessions.close_idle()
    asked: list[str] = []

    def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params.get("url", "word"))
        if "url" in params:
            target.withdrawn.clear()
            return {"action": "accept"}
        return {"action": "accept", "content": {"word": "w"}}

    ada.answer = answer
    assert await ada.text("vault__ask") == "key-of-ada: w"
    assert asked == ["https://vault.example/allow", "word"]


async def test_connections_of_callers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_state, "MAX_CLIENTS", 1)
    proxy = vault()
    peers = people(proxy)
    for name in NAMES:
        peers[name].capabilities = {}
        assert await peers[name].text("vault__whose", number=1) == f"{KEYS[name]} 1"
    assert len(proxy._states.get()._clients) == 1
