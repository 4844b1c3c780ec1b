"""Runs of the playground: rounds of questions, answers, refusals, cancellation, revisions, and messages on the wire."""

import html
import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Literal

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client
from pydantic import BaseModel, Field

from mcp_django import Context, Server, wiring
from mcp_django.observability import Call
from mcp_django.protocol.errors import InvalidParams, UnsupportedProtocolVersion
from mcp_django.server.primitives.registry import get_registry
from tests.contrib.playground.test_playground import ALIAS, READS, build_url, change, log_in, read_text, received

__all__ = ["change", "received"]
pytestmark = pytest.mark.django_db


class Trip(BaseModel):
    name: str = Field(min_length=2)
    days: int = Field(ge=1)
    size: Literal["small", "large"] = "small"


@pytest.fixture
def server(change: Callable[..., None]) -> Iterator[Server]:
    server, registry = wiring.get_server(ALIAS), get_registry(ALIAS)

    @server.tool(annotations=READS)
    async def plan(ctx: Context, place: str) -> str:
        """Plan a trip."""
        await ctx.info("planning")
        await ctx.report_progress(1, 2, "half")
        trip = (await ctx.elicit(f"A trip to {place}. <b>Name?</b>", Trip, key="trip")).data
        if trip is None:
            return "no trip"
        sure = await ctx.elicit("Sure?", bool, key="sure")
        return f"{trip.name}, {trip.days} days, {sure.data}"

    @server.tool
    async def book(ctx: Context, place: str) -> str:
        sure = await ctx.elicit(f"Book {place}?", bool)
        return f"booked {place}: {sure.data}"

    @server.tool(annotations=READS)
    async def summarize(ctx: Context) -> str:
        sample = await ctx.sample("Summarize the <i>news</i>", max_tokens=7)
        return f"{sample.text} by {sample.model}, {sample.stop_reason}"

    @server.tool(annotations=READS)
    async def list_roots(ctx: Context) -> str:
        return ", ".join(root.uri for root in await ctx.list_roots())

    @server.tool(annotations=READS)
    async def visit(ctx: Context) -> str:
        return (await ctx.elicit_url("Please pay", "/pay")).action

    @server.tool(annotations=READS)
    async def ask_twice(ctx: Context) -> str:
        first, second = await ctx.gather(ctx.elicit("One", str), ctx.elicit("Two", str))
        return f"{first.data} {second.data}"

    @server.tool(annotations=READS)
    async def use_tools(ctx: Context) -> str:
        look = {"name": "look", "inputSchema": {"type": "object"}}
        return json.dumps((await ctx.sample("Look", tools=[look])).content)

    yield server
    for tool in list(registry.tools):
        registry.remove("tool", tool.name)


@pytest.fixture
def browser(server: Server) -> Client:
    return log_in("use_playground")


class Page:
    """Page after a POST, with the fields of the form for answers."""

    def __init__(self, browser: Client, url: str, text: str) -> None:
        self.browser = browser
        self.url = url
        self.text = text
        self.fields = {
            name: html.unescape(value)
            for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', text)
            if name != "csrfmiddlewaretoken"
        }

    def answer(self, **typed: str) -> "Page":
        """Send the form of the first question with these fields."""
        fields = {name.replace("__", "-"): text for name, text in typed.items()}
        return self.send({**self.fields, "act": "answer", **{f"question-1-{name}": fields[name] for name in fields}})

    def send(self, fields: dict[str, str]) -> "Page":
        answer = self.browser.post(self.url, fields)
        assert answer.status_code == 200
        return Page(self.browser, self.url, answer.content.decode())

    @property
    def result(self) -> str:
        """Text of the result."""
        answer = json.loads(read_text(self.text, "answer"))
        return str(answer["result"]["content"][0]["text"])

    @property
    def wire(self) -> list[tuple[int, bool, Any]]:
        """Messages on the wire: round, direction, message."""
        rounds = re.split(r'<section data-round="(\d+)">', self.text)[1:]
        return [
            (int(number), arrow == "→", json.loads(html.unescape(text)))
            for number, part in zip(rounds[::2], rounds[1::2], strict=True)
            for arrow, text in re.findall(
                r'aria-hidden="true">(.)</span>.*?<pre tabindex="0">(.*?)</pre>', part, re.DOTALL
            )
        ]


def start(browser: Client, tool: str, **fields: str) -> Page:
    data = {"act": "send", **{key.replace("__", "-"): text for key, text in fields.items()}}
    return Page(browser, build_url(tool), "").send(data)


def test_rounds_of_questions_are_answered_without_state_on_the_server(browser: Client, received: list[Call]) -> None:
    page = start(browser, "plan", argument__place="Oslo")
    assert "A trip to Oslo. &lt;b&gt;Name?&lt;/b&gt;" in page.text
    assert 'id="answer"' not in page.text
    page = page.answer(decision="accept", argument__name="Sun", argument__days="3", argument__size='"small"')
    assert "Sure?" in page.text
    page = page.answer(decision="accept", argument__value="true")
    assert page.result == "Sun, 3 days, True"
    assert re.search(r'name="argument-place"[^>]*>\s*Oslo', page.text)
    requests = [message for _, is_sent, message in page.wire if is_sent]
    assert [number for number, is_sent, _ in page.wire if is_sent] == [1, 2, 3]
    assert [message["id"] for message in requests] == [1, 2, 3]
    assert [call.params for call in received] == [message["params"] for message in requests]
    assert requests[1]["params"]["inputResponses"] == {
        "trip": {"action": "accept", "content": {"name": "Sun", "days": 3, "size": "small"}}
    }
    kinds = [
        message.get("method") or message["result"]["resultType"] for _, is_sent, message in page.wire if not is_sent
    ]
    assert kinds[:3] == ["notifications/message", "notifications/progress", "input_required"]
    assert kinds[-1] == "complete"
    assert LogEntry.objects.count() == 3


def test_a_wrong_value_is_shown_at_its_field_and_nothing_is_sent(browser: Client, received: list[Call]) -> None:
    page = start(browser, "plan", argument__place="Oslo").answer(
        decision="accept", argument__name="S", argument__days="none", argument__size='"large"'
    )
    assert len(received) == 1
    errors = dict(re.findall(r'id="id_question-1-argument-(\w+)_error"><li>(.*?)</li>', page.text))
    assert set(errors) == {"name", "days"}
    assert "&quot;large&quot;' selected" in page.text.replace('"', "'")
    assert len(page.wire) == 4
    page = page.answer(decision="accept", argument__name="Sun", argument__days="1")
    assert "Sure?" in page.text
    page.answer(decision="perhaps")
    assert len(received) == 2


@pytest.mark.parametrize("decision", ["decline", "cancel"])
def test_a_question_can_be_declined_or_cancelled(browser: Client, decision: str) -> None:
    page = start(browser, "plan", argument__place="Oslo").answer(decision=decision)
    assert page.result == "no trip"
    assert page.wire[4][2]["params"]["inputResponses"] == {"trip": {"action": decision}}


def test_the_user_plays_the_model(browser: Client, received: list[Call]) -> None:
    page = start(browser, "summarize")
    assert "Summarize the &lt;i&gt;news&lt;/i&gt;" in page.text
    assert "&quot;maxTokens&quot;: 7" in page.text
    done = page.answer(decision="accept", text="All is well.", model="me", stop_reason="maxTokens")
    assert done.result == "All is well. by me, maxTokens"
    assert "You refused" in page.answer(decision="decline").text
    assert len(received) == 2


def test_calls_of_tools_are_json(browser: Client) -> None:
    page = start(browser, "use_tools")
    fields = {"decision": "accept", "model": "me", "stop_reason": "endTurn"}
    for wrong in ("[", "{}", '[{"name": 1, "input": {}}]', '[{"name": "x"}]'):
        assert 'id="id_question-1-tool_calls_error"' in page.answer(**fields, tool_calls=wrong).text
    page = page.answer(**fields, tool_calls='[{"name": "look", "input": {"a": 1}}]')
    assert json.loads(page.result) == [{"type": "tool_use", "id": "call-1", "name": "look", "input": {"a": 1}}]


def test_roots_are_lines_of_uris(browser: Client) -> None:
    page = start(browser, "list_roots")
    assert "does not start with file://" in page.answer(decision="accept", roots="https://a.example").text
    done = page.answer(decision="accept", roots="file:///a\r\n\r\nfile:///b")
    assert done.result == "file:///a, file:///b"


def test_a_page_is_opened_through_the_gate_of_the_site(browser: Client) -> None:
    page = start(browser, "visit")
    (link,) = re.findall(r'<a href="(http://testserver/[^"]+)"', page.text)
    assert page.answer(decision="decline").result == "decline"
    opened = browser.get(link)
    assert opened.status_code == 302
    assert opened["Location"].startswith("/pay?next=")


def test_several_questions_of_a_round_are_answered_together(browser: Client) -> None:
    page = start(browser, "ask_twice")
    fields = {"question-2-decision": "decline", "question-1-decision": "accept", "question-1-argument-value": "x"}
    done = page.send({**page.fields, "act": "answer", **fields})
    assert done.result == "x None"


def test_each_round_of_a_tool_that_may_write_needs_its_confirmation(browser: Client, received: list[Call]) -> None:
    assert "Tick the box to run it" in start(browser, "book", argument__place="Oslo").text
    page = start(browser, "book", argument__place="Oslo", confirmed="on")
    safe = start(browser, "plan", argument__place="Oslo")
    sent = len(received)
    answer = {"act": "answer", "confirmed": "on", "question-1-decision": "accept", "question-1-argument-value": "true"}
    for forged in (
        {**page.fields, "operation": page.fields["operation"][:-4] + "AAAA"},
        {**page.fields, "operation": safe.fields["operation"]},
        {"request_state": page.fields["request_state"], "arguments": "{}"},
    ):
        assert "This run has expired, or belongs to another tool or user" in page.send({**forged, **answer}).text
    # The token of this tool does not run another one, and that of one operator not for another one.
    assert "This run has expired" in Page(browser, build_url("plan"), "").send({**page.fields, **answer}).text
    helper = log_in("use_playground", "use_playground_as", name="other")
    other = Page(helper, build_url("book", **{"as": "staff"}), "")
    assert "This run has expired" in other.send({**page.fields, **answer}).text
    assert len(received) == sent
    assert page.send({**page.fields, **answer}).result == "booked Oslo: True"


def test_a_tool_that_writes_since_the_first_round_needs_the_confirmation(
    browser: Client, server: Server, received: list[Call]
) -> None:
    page = start(browser, "list_roots")
    registry = get_registry(ALIAS)
    registry.remove("tool", "list_roots")

    @server.tool
    async def list_roots(ctx: Context) -> str:
        return str(await ctx.list_roots())

    assert "Tick the box to run it" in page.answer(decision="accept", roots="", confirmed="on").text
    assert len(received) == 1


def test_hostile_rounds_get_the_answer_of_a_real_client(browser: Client) -> None:
    page = start(browser, "plan", argument__place="Oslo")
    altered = {**page.fields, "request_state": page.fields["request_state"] + "x", "history": "[[[1]]]"}
    done = page.send({**altered, "act": "answer", "question-1-decision": "decline"})
    assert json.loads(read_text(done.text, "answer"))["error"]["code"] == InvalidParams.code
    forged = start(browser, "plan", argument__place="Oslo", revision="1999-12-31")
    error = json.loads(read_text(forged.text, "answer"))["error"]
    assert error["code"] == UnsupportedProtocolVersion.code
    assert error["data"]["requested"] == "1999-12-31"
