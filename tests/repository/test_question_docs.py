"""The examples of the pages on questions, served and answered in both eras."""

from types import ModuleType
from typing import Any

import pytest
from django.contrib.auth.models import Group

from mcp_django.forms.questions import get_form_question_factory
from mcp_django.server.options import ServerOptions
from mcp_django.server.primitives import registry
from mcp_django.server.server import Server
from tests.repository.pages import ROOT, python_blocks, served_by
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, accept, ports

PAGES = [ROOT / "docs" / "talk-back" / name for name in ("questions.md", "question-forms.md", "question-pages.md")]
BLOCKS = [block for page in PAGES for block in python_blocks(page)]


class FakePages:
    """Pages from which every user comes back."""

    def __init__(self) -> None:
        self.targets: list[str] = []

    def build_url(self, call: Any, target: Any, id: str, *, ttl: float) -> str:
        self.targets.append(target("https://here.example/done") if callable(target) else target)
        return f"https://here.example/page/{id}"

    async def wait_for_return(self, id: str, *, timeout: float) -> bool:
        return True


class Example:
    """A server with the example that declares a tool."""

    def __init__(self, declares: str, monkeypatch: pytest.MonkeyPatch) -> None:
        block = next(block for block in BLOCKS if f"def {declares}(" in block)
        self.module: ModuleType
        found: registry.Registry
        self.module, found = served_by(block, monkeypatch)
        self.pages = FakePages()
        outside = ports(resolve_form=get_form_question_factory, elicitation_pages=self.pages)
        self.server = Server("docs", "1", registry=found, ports=outside, options=ServerOptions())

    async def ask(self, version: str, tool: str, arguments: dict[str, Any], *script: dict[str, Any]) -> str:
        lines = iter(script)
        peer = PipelineClient(self.server, version=version, answer=lambda method, params: next(lines))
        return await peer.text(tool, **arguments)


VERSIONS = (HANDSHAKE, STATELESS)


async def test_the_example_asks_for_a_dataclass(monkeypatch: pytest.MonkeyPatch) -> None:
    for version in VERSIONS:
        example = Example("book", monkeypatch)
        text = await example.ask(version, "book", {"guest": "Ada"}, accept(nights=3), accept(value=True))
        assert text == "Booked 3 nights as number 4711."
        assert await example.ask(version, "book", {"guest": "Ada"}, {"action": "decline"}) == "Not booked."


async def test_the_example_asks_for_a_django_form(monkeypatch: pytest.MonkeyPatch) -> None:
    for version in VERSIONS:
        example = Example("travel", monkeypatch)
        answers = accept(city="x" * 50, day="2030-05-01"), accept(city="oslo", day="2030-05-01", seats=2)
        assert await example.ask(version, "travel", {}, *answers) == "2 from Oslo on Wednesday by rail."


@pytest.mark.django_db
async def test_the_example_asks_for_a_model_form_and_saves_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for version in VERSIONS:
        example = Example("found_group", monkeypatch)
        text = await example.ask(version, "found_group", {}, accept(name="Pilots"), accept(value=True))
        assert text == "Founded Pilots, with an invitation."
        assert [group.name async for group in Group.objects.all()] == ["Pilots"]
        await Group.objects.all().adelete()


async def test_the_example_asks_for_a_visit_of_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    for version in VERSIONS:
        example = Example("next_meeting", monkeypatch)
        assert await example.ask(version, "next_meeting", {}, {"action": "accept"}) == "At ten."
        assert await example.ask(version, "pay", {"amount": 5}, {"action": "accept"}) == "Thank you."
        assert await example.ask(version, "pay", {"amount": 5}, {"action": "cancel"}) == "Not paid."
        assert set(example.pages.targets) == {
            "connect-calendar",
            "https://bank.example/pay?amount=5&return=https%3A%2F%2Fhere.example%2Fdone",
        }


@pytest.mark.django_db
async def test_a_plain_function_asks_twice_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for version in VERSIONS:

        def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
            return accept(value=True) if params["message"] == "Become Bob?" else accept(value="it is short")

        example = Example("rename", monkeypatch)
        peer = PipelineClient(example.server, version=version, answer=answer)
        assert await peer.text("rename", name="Bob") == "You are Bob, because it is short."
