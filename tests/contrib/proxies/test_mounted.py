"""A proxy on a server that is mounted in another one."""

from typing import Any

import pytest

from mcp_django import Server
from mcp_django.contrib.proxies import Proxy
from mcp_django.contrib.proxies.connections.targets import TargetSource
from mcp_django.providers import Mount
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, accept, make_server

from .remote import Remote


def mounted(remote: Any, **peer: Any) -> PipelineClient:
    """A client of a host that mounts as "in" a server whose proxy of the remote has the prefix "r"."""
    source = TargetSource("r", remote, protocol_version=remote.era, max_retries=0)
    inner = Server("inner", providers=[Proxy(source, prefix="r", permission="any")])
    return PipelineClient(make_server(mounts=[Mount(inner, prefix="in", uri_prefix="in")]), **peer)


async def test_names_and_uris_have_both_prefixes(subtests: pytest.Subtests) -> None:
    for version in [STATELESS, HANDSHAKE]:
        with subtests.test(version=version):
            peer = mounted(Remote(), version=version)
            assert "in__r__add" in await peer.names()
            assert (await peer.call("in__r__add", a=2, b=3))["structuredContent"] == {"total": 5}
            assert await peer.names("prompts/list", "prompts") == ["in__r__plan"]
            assert await peer.names("resources/list", "resources", "uri") == ["in+thing://one"]
            found = await peer.request("resources/read", {"uri": "in+thing://one"})
            assert found["contents"][0]["uri"] == "in+thing://one"
            found = await peer.request("prompts/get", {"name": "in__r__plan", "arguments": {"city": "Bern"}})
            assert found["messages"][0]["content"]["text"] == "Go to Bern"


async def test_questions_are_forwarded(subtests: pytest.Subtests) -> None:
    for version in [STATELESS, HANDSHAKE]:
        for upstream in ["stateless", "handshake"]:
            with subtests.test(version=version, upstream=upstream):
                peer = mounted(Remote(era=upstream), version=version, answer=lambda method, params: accept(name="Ada"))
                assert await peer.text("in__r__greet") == "Hello Ada"


async def test_completions_are_forwarded() -> None:
    peer = mounted(Remote())
    for ref in ({"type": "ref/prompt", "name": "in__r__plan"}, {"type": "ref/resource", "uri": "in+thing://by/{name}"}):
        argument = {"name": "city" if "name" in ref else "name", "value": "z"}
        found = await peer.request("completion/complete", {"ref": ref, "argument": argument})
        assert found["completion"]["values"] == ["zurich", "zug"]
