"""Conversations: repeated questions, recorded answers, and the end."""

from typing import Annotated, Any, Literal, TypedDict

import pytest
from pydantic import Field

from mcp_django import Context, MCPError
from mcp_django.protocol.errors import InvalidParams, MissingClientCapability
from mcp_django.server.context.conversation import CallSuspended, InputRefused, InputUnavailable, gather, is_suspension
from mcp_django.server.options import ConversationLimits
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, accept, make_server

ERAS = [HANDSHAKE, STATELESS]


def make_asking_client(handler: Any, version: str = STATELESS, answer: Any = None, **limits: Any) -> PipelineClient:
    """A peer of a server whose tool `ask` is this handler."""
    server = make_server(options={"conversation_limits": ConversationLimits(**limits)})
    server.tool(handler, name="ask")
    return PipelineClient(server, version=version, answer=answer)


def by_message(**answers: Any) -> Any:
    """A user that answers each question by its first word, and counts."""
    asked: list[str] = []

    def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params["message"])
        return accept(value=answers[params["message"].rstrip("?")])

    answer.asked = asked  # type: ignore[attr-defined]
    return answer


@pytest.mark.parametrize("version", ERAS)
async def test_the_same_question_asked_twice_is_two_questions(version: str) -> None:
    values = iter([1, 2])

    async def handler(ctx: Context) -> str:
        first, second = await ctx.elicit("How many?", int), await ctx.elicit("How many?", int)
        return f"{first.data} {second.data}"

    peer = make_asking_client(handler, version, lambda *_: accept(value=next(values)))
    assert await peer.text("ask") == "1 2"


async def test_a_question_whose_text_changed_is_asked_again() -> None:
    runs: list[int] = []

    async def handler(ctx: Context) -> str:
        runs.append(1)
        price = 10 if len(runs) == 1 else 12
        answer = await ctx.elicit(f"Pay {price}?", bool, key="price")
        return f"paid {price}: {answer.data}"

    asked: list[str] = []

    def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params["message"])
        return accept(value=True)

    assert await make_asking_client(handler, answer=answer).text("ask") == "paid 12: True"
    assert asked == ["Pay 10?", "Pay 12?"]


async def test_an_answer_that_a_round_did_not_use_is_kept() -> None:
    runs: list[int] = []

    async def handler(ctx: Context) -> str:
        runs.append(1)
        if len(runs) == 2:
            await ctx.elicit("extra?", bool)
        answer = await ctx.elicit("main?", str)
        return f"{answer.data} after {len(runs)}"

    answer = by_message(main="yes", extra=True)
    assert await make_asking_client(handler, answer=answer).text("ask") == "yes after 3"
    assert answer.asked == ["main?", "extra?"]


async def test_keys_name_questions_on_the_wire() -> None:
    async def handler(ctx: Context) -> None:
        await ctx.gather(ctx.elicit("a?", bool, key="mine"), ctx.elicit("b?", bool, key="mine"), ctx.elicit("c?", bool))

    requests = (await make_asking_client(handler).call("ask"))["inputRequests"]
    assert list(requests)[:2] == ["mine", "mine-2"]
    assert list(requests)[2].startswith("elicitation-")


@pytest.mark.parametrize("version", ERAS)
async def test_gather_returns_answers_in_the_order_of_its_branches(version: str) -> None:
    async def later(ctx: Context) -> str:
        first = await ctx.elicit("a?", str)
        second = await ctx.elicit("b?", str)
        return f"{first.data}{second.data}"

    async def plain() -> str:
        return "plain"

    async def handler(ctx: Context) -> list[Any]:
        found = await ctx.gather(later(ctx), plain(), ctx.elicit("c?", str))
        return [found[0], found[1], found[2].data]

    peer = make_asking_client(handler, version, by_message(a="1", b="2", c="3"))
    assert (await peer.call("ask"))["structuredContent"] == {"result": ["12", "plain", "3"]}
    assert peer.rounds == (2 if version == STATELESS else 0)


@pytest.mark.parametrize("version", ERAS)
async def test_a_real_error_of_a_branch_wins_over_questions(version: str) -> None:
    async def fail() -> None:
        raise InvalidParams("no")

    async def bug() -> None:
        raise RuntimeError("secret")

    async def handler(ctx: Context) -> None:
        await ctx.gather(bug(), ctx.elicit("a?", str), fail())

    with pytest.raises(InvalidParams, match="no"):
        await make_asking_client(handler, version, by_message(a="1")).call("ask")


async def test_gather_without_questions_raises_the_first_error_by_rank() -> None:
    async def fail(problem: BaseException) -> None:
        raise problem

    with pytest.raises(KeyError):
        await gather(fail(CallSuspended()), fail(KeyError("a")), fail(ValueError("b")))
    with pytest.raises(MCPError):
        await gather(fail(KeyError("a")), fail(InvalidParams("b")))
    with pytest.raises(CallSuspended):
        await gather(fail(CallSuspended()), fail(CallSuspended()))
    assert await gather() == []


def test_a_group_suspends_when_nothing_else_is_in_it() -> None:
    assert is_suspension(CallSuspended())
    assert is_suspension(BaseExceptionGroup("x", [CallSuspended(), BaseExceptionGroup("y", [CallSuspended()])]))
    assert not is_suspension(BaseExceptionGroup("x", [CallSuspended(), ValueError()]))
    assert not is_suspension(ValueError())


@pytest.mark.parametrize("version", ERAS)
async def test_once_converts_values_to_json_in_both_eras(version: str) -> None:
    async def handler(ctx: Context) -> str:
        return repr(await ctx.run_once("k", lambda: (1, {"a": {2}})))

    assert await make_asking_client(handler, version).text("ask") == "[1, {'a': [2]}]"


@pytest.mark.parametrize("version", ERAS)
async def test_once_takes_a_plain_and_an_async_function(version: str) -> None:
    async def one() -> int:
        return 1

    async def handler(ctx: Context) -> list[int]:
        return [
            await ctx.run_once("a", one),
            await ctx.run_once("b", lambda: 2),
            await ctx.run_once("c", lambda: one()),
        ]

    assert await make_asking_client(handler, version).text("ask") == "[1,2,1]"


@pytest.mark.parametrize("version", ERAS)
async def test_once_without_a_question_runs_once_and_ends_the_call(version: str) -> None:
    runs: list[int] = []

    async def handler(ctx: Context) -> None:
        await ctx.run_once("a", lambda: runs.append(1))

    peer = make_asking_client(handler, version)
    await peer.call("ask")
    await peer.call("ask")
    assert (len(runs), peer.rounds) == (2, 0)


async def test_once_is_replayed_for_none() -> None:
    runs: list[int] = []

    async def handler(ctx: Context) -> str:
        nothing = await ctx.run_once("a", lambda: runs.append(1))
        await ctx.elicit("b?", bool)
        return repr(nothing)

    assert await make_asking_client(handler, answer=by_message(b=True)).text("ask") == "None"
    assert runs == [1]


async def test_the_handler_is_replaying_until_the_first_unrecorded_event() -> None:
    seen: list[list[bool]] = []

    async def handler(ctx: Context) -> None:
        here: list[bool] = []
        seen.append(here)
        here.append(ctx.replaying)
        await ctx.elicit("a?", bool)
        here.append(ctx.replaying)
        await ctx.run_once("k", lambda: 1)
        here.append(ctx.replaying)
        await ctx.elicit("b?", bool)
        here.append(ctx.replaying)

    await make_asking_client(handler, answer=by_message(a=True, b=True)).call("ask")
    assert seen == [[False], [True, False, False], [True, True, True, False]]


@pytest.mark.parametrize(
    ("limits", "text"),
    [({"rounds": 2}, "more than 2 rounds"), ({"answers": 2}, "more than 2 requests")],
)
async def test_events_of_a_conversation_are_limited(limits: dict[str, int], text: str) -> None:
    async def handler(ctx: Context) -> None:
        for number in range(10):
            await ctx.elicit(f"{number}?", bool)

    peer = make_asking_client(handler, answer=lambda *_: accept(value=True), **limits)
    assert text in await peer.error("ask")


async def test_a_handler_may_catch_the_error_of_an_unsupported_question() -> None:
    async def handler(ctx: Context) -> str:
        try:
            await ctx.elicit("a?", bool)
        except MissingClientCapability as problem:
            return f"default, for want of {list(problem.data['requiredCapabilities'])}"
        return "asked"

    peer = make_asking_client(handler)
    peer.capabilities = {}
    assert await peer.text("ask") == "default, for want of ['elicitation']"


@pytest.mark.parametrize("version", ERAS)
async def test_except_exception_does_not_swallow_a_question(version: str) -> None:
    async def handler(ctx: Context) -> str:
        try:
            answer = await ctx.elicit("a?", str)
        except Exception:
            return "swallowed"
        return f"{answer.data}"

    assert await make_asking_client(handler, version, by_message(a="asked")).text("ask") == "asked"


@pytest.mark.parametrize("version", ERAS)
async def test_a_question_is_not_handled_by_hooks(version: str) -> None:
    entered: list[str] = []

    async def around(ctx: Context, proceed: Any) -> Any:
        entered.append("in")
        found = await proceed()
        entered.append("out")
        return found

    async def agreed(ctx: Context) -> bool:
        return bool(await ctx.elicit("guard?", bool))

    server = make_server()

    @server.tool(interceptors=[around], guards=[agreed], exception_handlers={Exception: lambda *_: "handled"})
    async def ask(ctx: Context) -> str:
        return f"{(await ctx.elicit('a?', str)).data}"

    peer = PipelineClient(server, version=version, answer=by_message(a="asked", guard=True))
    assert await peer.text("ask") == "asked"
    assert entered.count("out") == 1


async def test_a_completion_cannot_ask() -> None:
    server = make_server()
    server.prompt(lambda x: x, name="p")

    @server.completion("p", "x")
    async def complete(value: str, ctx: Context) -> list[str]:
        await ctx.elicit("a?", bool)
        return []

    asked = {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "x", "value": ""}}
    with pytest.raises(MCPError, match="A completion cannot"):
        await PipelineClient(server).request("completion/complete", asked)


async def test_the_server_asks_nothing_during_initialize() -> None:
    async def middleware(call: Any, call_next: Any) -> Any:
        if call.method == "initialize":
            await Context(call).elicit("a?", bool)
        return await call_next(call)

    peer = PipelineClient(make_server(middleware=[middleware]), version=HANDSHAKE)
    peer.session = None
    introduction = {
        "protocolVersion": HANDSHAKE,
        "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "x", "version": "1"},
    }
    with pytest.raises(MCPError):
        await peer.request("initialize", introduction)


def test_conversation_errors_are_tool_errors() -> None:
    assert issubclass(InputRefused, Exception)
    assert issubclass(InputUnavailable, Exception)
    assert not issubclass(CallSuspended, Exception)


@pytest.mark.parametrize("version", ERAS)
async def test_a_question_shows_no_hidden_character_and_keeps_its_lines(version: str) -> None:
    class Answer(TypedDict):
        size: Annotated[Literal["s"], Field(title="Si\u202eze\nof it")]

    asked: list[dict[str, Any]] = []

    def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
        asked.append(params)
        return accept(size="s")

    async def handler(ctx: Context) -> str:
        given = await ctx.elicit("Delete in\u202evoice\u200b?\nIt is\u2066 final.", Answer)
        await ctx.elicit_url("Pay\u202e here", "https://pay.example/")
        return given.action

    assert await make_asking_client(handler, version, answer).text("ask") == "accept"
    assert [params["message"] for params in asked] == ["Delete invoice?\nIt is final.", "Pay here"]
    assert asked[0]["requestedSchema"]["properties"]["size"]["title"] == "Size of it"
