"""Records of steps in the sealed state: they survive JSON, and those of another version are refused."""

from typing import Any

import pytest

from mcp_django.contrib.proxies.forwarding.steps import (
    RECORD_VERSION,
    Finished,
    NeedsAuthorization,
    NeedsInput,
    Step,
    Suspended,
    UnknownStep,
    from_json,
    to_json,
)
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.errors import InvalidParams
from tests.contrib.proxies.remote import Remote, peer_of
from tests.contrib.proxies.test_hostile import listing
from tests.contrib.proxies.test_hostile import peer_of as malformed_remote_client
from tests.server.client import PipelineClient, accept

REQUESTS = {"name": {"method": "elicitation/create", "params": {"message": "Your name?"}}}
UNVERSIONED_RECORDS: list[dict[str, Any]] = [
    {"parked": "an-id"},
    {"asks": {"inputRequests": REQUESTS, "requestState": "remote"}},
    {"asks": {"inputRequests": REQUESTS, "requestState": None}, "task": "t1"},
    {"needs": "https://example.com/authorize"},
    {"result": {"content": []}},
]


@pytest.mark.parametrize(
    "step",
    [
        Finished({"content": []}),
        Suspended("an-id"),
        NeedsInput(REQUESTS, "remote", "t1"),
        NeedsInput(),
        NeedsAuthorization("https://example.com/authorize"),
        NeedsAuthorization(None),
    ],
)
def test_a_step_survives_its_record(step: Step) -> None:
    assert from_json(jsonrpc.loads(jsonrpc.dumps(to_json(step)))) == step


@pytest.mark.parametrize(
    "record",
    [
        None,
        [],
        {},
        *UNVERSIONED_RECORDS,
        {**to_json(Suspended("an-id")), "version": RECORD_VERSION + 1},
        {"version": RECORD_VERSION},
        {"version": RECORD_VERSION, "finished": 1},
        {"version": RECORD_VERSION, "input": {"requests": {}}},
    ],
)
def test_a_record_of_another_version_is_refused(record: Any) -> None:
    with pytest.raises(UnknownStep):
        from_json(record)


@pytest.mark.parametrize("era", ["stateless", "handshake"])
@pytest.mark.parametrize("record", UNVERSIONED_RECORDS)
async def test_a_state_of_an_older_version_is_refused_like_an_expired_one(
    era: str, record: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    remote = Remote(era=era)
    client = peer_of(remote)
    first = await client.call("r__greet")
    sealer = client.server.ports.state_sealer
    replace_records(client, record, monkeypatch)
    with pytest.raises(InvalidParams) as refusal:
        await client.request("tools/call", build_retry(first))
    assert str(refusal.value) == str(sealer.build_error())
    assert remote.counts["greet"] == 1


def replace_records(client: PipelineClient, record: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the records of steps in the states that the server receives."""
    sealer = type(client.server.ports.state_sealer)
    unseal = sealer.unseal

    def replace(self: Any, token: Any, binding: bytes) -> dict[str, Any]:
        state = unseal(self, token, binding)
        assert list(state["once"]) == ["proxy0:0"]
        return {**state, "once": {"proxy0:0": record}}

    monkeypatch.setattr(sealer, "unseal", replace)


def build_retry(first: dict[str, Any]) -> dict[str, Any]:
    responses = dict.fromkeys(first["inputRequests"], accept(name="Ada"))
    return {
        "name": "r__greet",
        "arguments": {},
        "inputResponses": responses,
        "requestState": first["requestState"],
    }


async def test_a_malformed_task_id_is_an_error_of_the_remote() -> None:
    answer = {"resultType": "input_required", "requestState": "state", "taskId": {}}
    tool = {"name": "good", "inputSchema": {"type": "object"}}
    client = malformed_remote_client(listing(tool, era="stateless", tools_call=answer))
    assert await client.error("r__good") == "Malformed input request from the server"
