"""Questions of a remote during a call, in all four pairs of eras."""

import asyncio
from typing import Any

import pytest

from mcp_django.contrib.proxies import Proxy
from mcp_django.contrib.proxies.connections import sessions
from mcp_django.contrib.proxies.connections.targets import TargetSource
from mcp_django.contrib.proxies.forwarding import forwarding
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, accept, make_principal
from tests.support.clock import Clock

from .remote import Remote, peer_of, proxy_of, served

pytestmark = pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")


def answers(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """Answer every question."""
    if method == "sampling/createMessage":
        assert params["messages"] == [{"role": "user", "content": {"type": "text", "text": "A poem"}}]
        return {"role": "assistant", "model": "m", "content": {"type": "text", "text": "Roses are red"}}
    if method == "roots/list":
        return {"roots": [{"uri": "file:///home/ada", "name": "home"}]}
    return accept(name={"r: Who are you?": "Ada", "r: One?": "1", "r: Two?": "2"}[params["message"]])


async def test_a_question_and_its_answer_are_forwarded(subtests: pytest.Subtests) -> None:
    for version in [STATELESS, HANDSHAKE]:
        for upstream in ["stateless", "handshake"]:
            for tool, said in [("greet", "Hello Ada"), ("poem", "Roses are red"), ("places", "file:///home/ada")]:
                with subtests.test(version=version, upstream=upstream, tool=tool, said=said):
                    peer = peer_of(Remote(era=upstream), version=version, answer=answers)
                    assert await peer.text(f"r__{tool}") == said


async def test_a_question_can_be_declined_or_cancelled(subtests: pytest.Subtests) -> None:
    for version in [STATELESS, HANDSHAKE]:
        for upstream in ["stateless", "handshake"]:
            for action in ["decline", "cancel"]:
                with subtests.test(version=version, upstream=upstream, action=action):
                    peer = peer_of(
                        Remote(era=upstream),
                        version=version,
                        answer=lambda method, params, action=action: {"action": action},
                    )
                    assert await peer.text("r__greet") == action


class ElicitationRemote(TargetSource):
    """A remote that lists a tool with questions only to clients that declare elicitation."""

    def create_client(self, user: Any, headers: Any, answering: Any, tools: bool) -> Any:
        self._target = Remote(era=self._options["protocol_version"])
        if "elicitation" not in answering:
            self._target.server._tool_manager.remove_tool("greet")
        return super().create_client(user, headers, answering, tools)


async def test_a_client_with_elicitation_sees_the_tools_that_require_it(subtests: pytest.Subtests) -> None:
    for version in [STATELESS, HANDSHAKE]:
        for upstream in ["stateless", "handshake"]:
            with subtests.test(version=version, upstream=upstream):
                server = served(
                    Proxy(ElicitationRemote("r", None, protocol_version=upstream, max_retries=0), permission="any")
                )
                silent = PipelineClient(server, version=version, capabilities={})
                sampler = PipelineClient(server, version=version, capabilities={"sampling": {}})
                asked = PipelineClient(server, version=version, answer=answers)
                assert "r__greet" in await asked.names()
                assert "r__greet" not in await silent.names()
                assert "r__greet" not in await sampler.names()
                assert "r__greet" in await asked.names()
                assert await asked.text("r__greet") == "Hello Ada"


async def test_lists_for_clients_with_elicitation_need_no_session_of_calls() -> None:
    proxy = proxy_of(Remote(era="handshake"), sessions=1)
    peer = PipelineClient(served(proxy))
    await peer.call("r__greet")
    assert proxy._states.get().sessions.is_exhausted
    assert "r__greet" in await PipelineClient(peer.server, principal=make_principal(name="bob")).names()


async def test_two_successive_questions_are_forwarded(subtests: pytest.Subtests) -> None:
    for version in [STATELESS, HANDSHAKE]:
        with subtests.test(version=version):
            remote = Remote(era="handshake")
            peer = peer_of(remote, version=version, answer=answers)
            assert await peer.text("r__twice") == "1 2"
            assert remote.counts["twice"] == 1


async def test_the_request_state_of_a_remote_is_sealed() -> None:
    peer = peer_of(Remote(era="stateless"))
    found = await peer.call("r__greet")
    (asked,) = found["inputRequests"].values()
    assert asked["params"]["message"] == "r: Who are you?"
    assert "secret" not in str(found)


async def test_a_waiting_remote_is_called_once_for_both_rounds() -> None:
    remote = Remote(era="handshake")
    peer = peer_of(remote, answer=answers)
    await peer.text("r__greet")
    assert (remote.counts["greet"], peer.rounds) == (1, 1)


async def test_an_answer_in_another_process_is_an_error() -> None:
    remote = Remote(era="handshake")
    here, there = peer_of(remote), peer_of(remote)
    asked = await here.call("r__greet")
    assert asked["resultType"] == "input_required"
    there.server._ports = here.server.ports
    retry = {"name": "r__greet", "arguments": {}, **_build_retry(asked)}
    found = await there.request("tools/call", retry)
    assert found["isError"]
    assert found["content"][0]["text"] == forwarding.LOST_CALL_MESSAGE
    assert remote.counts["greet"] == 1


async def test_an_idempotent_call_is_repeated_in_another_process_with_its_answers() -> None:
    remote = Remote(era="handshake")
    here, there = peer_of(remote, answer=None), peer_of(remote, answer=answers)
    there.server._ports = here.server.ports
    asked = await here.call("r__twice")
    first = await there._once("tools/call", {"name": "r__twice", "arguments": {}, **_build_retry(asked)})
    (question,) = first["inputRequests"].values()
    assert question["params"]["message"] == "r: Two?"
    found = await there.request("tools/call", {"name": "r__twice", "arguments": {}, **_build_retry(first)})
    assert found["content"][0]["text"] == "1 2"
    assert remote.counts["twice"] == 2


async def test_no_other_caller_can_continue_a_parked_call() -> None:
    remote = Remote(era="handshake")
    proxy = proxy_of(remote)
    await PipelineClient(served(proxy), principal=make_principal(name="ada")).call("r__greet")
    desk = proxy._states.get().suspended_calls
    (id,) = desk._calls
    assert desk.take(id, "tests|bob") is None
    assert desk.take(id, "tests|ada") is not None


async def test_a_call_parked_for_too_long_is_cancelled_at_the_remote(clock: Clock) -> None:
    remote = Remote(era="handshake")
    proxy = proxy_of(remote, suspended_call_ttl=60)
    peer = PipelineClient(served(proxy))
    asked = await peer.call("r__greet")
    await clock.advance(60)
    await remote.cancelled.wait()
    assert len(proxy._states.get().suspended_calls) == 0
    found = await peer.request("tools/call", {"name": "r__greet", "arguments": {}, **_build_retry(asked)})
    assert found["content"][0]["text"] == forwarding.LOST_CALL_MESSAGE


async def test_the_oldest_parked_call_is_evicted() -> None:
    remote = Remote(era="handshake")
    proxy = proxy_of(remote, suspended_calls=1)
    peer = PipelineClient(served(proxy))
    first = await peer.call("r__greet")
    second = await peer.call("r__greet")
    assert len(proxy._states.get().suspended_calls) == 1
    lost = await peer.request("tools/call", {"name": "r__greet", "arguments": {}, **_build_retry(first)})
    assert lost["isError"]
    found = await peer.request("tools/call", {"name": "r__greet", "arguments": {}, **_build_retry(second)})
    assert found["content"][0]["text"] == "Hello Ada"


async def test_only_the_caller_with_the_most_parked_calls_loses_one() -> None:
    remote = Remote(era="handshake")
    server = served(proxy_of(remote, suspended_calls=3))
    ada, bob = (PipelineClient(server, principal=make_principal(name=name)) for name in ("ada", "bob"))
    first = await ada.call("r__greet")
    for _ in range(4):
        await bob.call("r__greet")
    found = await ada.request("tools/call", {"name": "r__greet", "arguments": {}, **_build_retry(first)})
    assert found["content"][0]["text"] == "Hello Ada"


async def test_a_parked_call_gives_its_session_to_a_call_that_needs_one() -> None:
    remote = Remote(era="handshake")
    server = served(proxy_of(remote, sessions=2))
    bob = PipelineClient(server, principal=make_principal(name="bob"))
    for _ in range(2):
        await bob.call("r__greet")
    ada = PipelineClient(server, principal=make_principal(name="ada"), answer=answers)
    assert await ada.text("r__greet") == "Hello Ada"


async def test_a_question_needs_the_permission_of_the_proxy() -> None:
    remote = Remote(era="handshake")
    peer = peer_of(remote, options={"client_features": []}, answer=answers)
    assert (await peer.call("r__greet"))["isError"]
    assert peer.rounds == 0


async def test_a_client_without_elicitation_gets_an_error(subtests: pytest.Subtests) -> None:
    for upstream in ["stateless", "handshake"]:
        with subtests.test(upstream=upstream):
            peer = peer_of(Remote(era=upstream), capabilities={})
            assert (await peer.call("r__greet"))["isError"]


async def test_a_session_serves_one_call_at_a_time_and_the_next_of_the_same_caller() -> None:
    remote = Remote(era="handshake")
    proxy = proxy_of(remote)
    server = served(proxy)
    ada, bob = (PipelineClient(server, principal=make_principal(name=name), answer=answers) for name in ("ada", "bob"))
    assert await ada.text("r__greet") == "Hello Ada"
    opened = remote.opened
    assert await ada.text("r__greet") == "Hello Ada"
    assert remote.opened == opened
    await asyncio.gather(*(ada.text("r__greet") for _ in range(3)))
    assert remote.opened == opened + 2
    await bob.text("r__greet")
    assert remote.opened == opened + 3


async def test_calls_above_the_limit_of_sessions_wait(clock: Clock) -> None:
    remote = Remote(era="handshake")
    proxy = proxy_of(remote, sessions=1)
    peer = PipelineClient(served(proxy), answer=answers, version=HANDSHAKE)
    assert await asyncio.gather(*(peer.text("r__greet") for _ in range(4))) == ["Hello Ada"] * 4
    assert len(proxy._states.get().sessions) == 1


async def test_a_call_that_waits_too_long_for_a_session_gets_an_error(clock: Clock) -> None:
    remote = Remote(era="handshake")
    server = served(proxy_of(remote, sessions=1))
    slow = asyncio.ensure_future(PipelineClient(server, version=HANDSHAKE).call("r__slow"))
    await remote.reached.wait()
    late = asyncio.create_task(PipelineClient(server, version=HANDSHAKE).error("r__greet"))
    await clock.advance(sessions.ACQUIRE_TIMEOUT_SECONDS)
    assert "Too many calls use the server 'r'" in await late
    remote.gate.set()
    assert not (await slow)["isError"]


async def test_a_call_that_only_receives_log_messages_waits_for_no_session() -> None:
    remote = Remote(era="handshake")
    proxy = proxy_of(remote, sessions=1)
    server = served(proxy)
    slow = asyncio.ensure_future(PipelineClient(server, capabilities={}, log_level="info").call("r__slow"))
    await remote.reached.wait()
    other = PipelineClient(server, capabilities={}, log_level="info")
    assert await other.text("r__chatty") == "done"
    assert other.received == []
    remote.gate.set()
    assert not (await slow)["isError"]


def _build_retry(asked: dict[str, Any]) -> dict[str, Any]:
    """Build the parameters of a retry that answers the questions."""
    given = {key: answers(one["method"], one.get("params", {})) for key, one in asked["inputRequests"].items()}
    return {"inputResponses": given, "requestState": asked["requestState"]}
