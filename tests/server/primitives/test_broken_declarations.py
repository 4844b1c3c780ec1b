"""A broken declaration does not affect the others."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mcp_django import Toolset, completion, prompt, register, resource, tool
from mcp_django.schema import DeclarationError
from mcp_django.server.primitives import registry
from mcp_django.server.primitives.decorators import register_tool
from mcp_django.server.primitives.registry import Registry
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_server

LISTS = {"tools": "tools", "prompts": "prompts", "resources": "resources", "resources/templates": "resourceTemplates"}


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """The registry of this test."""
    monkeypatch.setattr(registry, "REGISTRIES", {})
    return registry.get_registry("default")


def repr_class(value: object) -> str:
    """Return the id of a case; Python has no text for its large integer."""
    return type(value).__name__


class BrokenText:
    """A text that is translated late, and fails then."""

    def __str__(self) -> str:
        raise LookupError("no catalogue\nhere")


class LateText:
    """A text that is read late."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    def __str__(self) -> str:
        return self._read()


@pytest.fixture
def good() -> None:
    @tool
    def fine() -> str:
        """Answer."""
        return "fine"

    @prompt
    def question() -> str:
        """Ask."""
        return "fine"

    @resource("shop://fine")
    def document() -> str:
        """Read."""
        return "fine"

    @resource("shop://fine/{number}")
    def page(number: str) -> str:
        """Read a page."""
        return "fine"


async def names(client: PipelineClient) -> list[str]:
    """The names in all lists."""
    found = [(await client.request(f"{kind}/list"))[key] for kind, key in LISTS.items()]
    return [entry["name"] for entries in found for entry in entries]


@pytest.mark.usefixtures("good")
@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_an_entry_that_fails_is_left_out_of_its_list_only(version: str, caplog: pytest.LogCaptureFixture) -> None:
    def broken(number: str = "") -> str:
        return number

    for declare in (tool, prompt, resource("shop://broken"), resource("shop://broken/{number}")):
        declare(broken)
    own = registry.get_registry("default")
    for item in [*own.tools, *own.prompts, *own.resources, *own.templates]:
        if item.name == "broken":
            item.title = BrokenText()  # type: ignore[assignment]

    client = PipelineClient(make_server(registry=own), version=version)
    for _ in range(2):
        assert await names(client) == ["fine", "question", "document", "page"]
    [record] = caplog.records  # the four declarations have one fault
    assert record.levelname == "ERROR"
    assert "broken (line" in record.getMessage()
    assert "LookupError: no catalogue here" in record.getMessage()


@pytest.mark.usefixtures("good")
@pytest.mark.parametrize("value", [object(), 10**5000, {1: object()}, [...]], ids=repr_class)
@pytest.mark.parametrize("version", [HANDSHAKE, STATELESS])
async def test_an_entry_that_cannot_be_encoded_is_left_out_of_its_list_only(version: str, value: Any) -> None:
    def broken(number: str = "") -> str:
        return number

    for declare in (
        tool(meta={"shop/x": value}),
        prompt(meta={"shop/x": value}),
        resource("shop://broken", meta={"shop/x": value}),
        resource("shop://broken/{number}", meta={"shop/x": value}),
    ):
        declare(broken)
    client = PipelineClient(make_server(registry=registry.get_registry("default")), version=version)
    assert await names(client) == ["fine", "question", "document", "page"]


@settings(max_examples=40, deadline=None)
@given(
    text=st.text(st.characters(categories=["Cs", "Lu", "Cc"]), max_size=5),
    number=st.integers(-(10**4400), 10**4400) | st.floats(),
)
def test_an_invalid_meta_of_one_entry_does_not_affect_the_others(text: str, number: float) -> None:
    own = Registry()
    for name, meta in (("a", None), ("bad", {"shop/x": {text: [text, number]}}), ("z", None)):

        def answer() -> str:
            return ""

        register_tool(own, answer, name, {"meta": meta} if meta else {})
    found = asyncio.run(PipelineClient(make_server(registry=own)).names())
    assert {"a", "z"} <= set(found)


async def test_a_failed_entry_is_listed_once_it_can_be_built() -> None:
    rows: list[str] = []

    @tool(title=LateText(lambda: rows[0]))  # type: ignore[arg-type]
    def late() -> str:
        return ""

    client = PipelineClient(make_server(registry=registry.get_registry("default")))
    assert await client.names() == []
    rows.append("filled")
    assert await client.names() == ["late"]


@pytest.mark.usefixtures("good")
def test_an_entry_that_fails_is_reported_once_with_its_declaration(found: Registry) -> None:
    @tool(title=BrokenText())  # type: ignore[arg-type]
    def broken() -> str:
        return ""

    for _ in range(2):
        [problem] = registry.collect_problems()
    assert "test_broken_declarations" in str(problem)
    assert "broken" in str(problem)
    assert "cannot be built: LookupError: no catalogue here" in str(problem)
    assert problem.covers("broken")
    assert isinstance(problem.cause, LookupError)


@pytest.mark.usefixtures("good")
def test_code_that_fails_at_registration_refuses_its_declaration_only(
    found: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    class Unreadable(type):
        @property
        def __mcp_declarations__(cls) -> Any:
            raise RuntimeError("attributes are not ready")

    class Failing(Toolset):
        part = Unreadable("part", (), {})

    class Unmade(Toolset):
        def __init__(self) -> None:
            raise ImportError("no module named 'elsewhere'")

        @tool
        def lost(self) -> str:
            return ""

    class Unattached(Toolset):
        prefix = "un_"

        def attach(self, registry: Registry) -> None:
            raise KeyError("settings")

    for kind in (Failing, Unmade, Unattached):
        assert register(kind) is kind
    assert [one.name for one in found.tools] == ["fine"]
    assert found.toolsets == []
    texts = [record.getMessage() for record in caplog.records]
    assert ["RuntimeError" in texts[0], "ImportError" in texts[1], "KeyError" in texts[2]] == [True] * 3
    assert [kind.__name__ in text for kind, text in zip((Failing, Unmade, Unattached), texts, strict=True)] == [
        True
    ] * 3
    assert found.problems[1].covers("lost")
    assert found.problems[2].covers("un_anything")


def test_a_server_outside_the_registry_raises_the_failure() -> None:
    class Unattached(Toolset):
        def attach(self, registry: Registry) -> None:
            raise KeyError("settings")

    with pytest.raises(DeclarationError, match="KeyError: 'settings'") as refused:
        make_server(toolsets=[Unattached()])
    assert isinstance(refused.value.__cause__, KeyError)


def test_characters_outside_ascii_are_encoded_in_uris(found: Registry) -> None:
    @resource("shop://größe")
    def size() -> str:
        return "10 m"

    @resource("shop://größe/{länge}{?farbe,größe}")
    def sizes(länge: str, farbe: str = "", größe: str = "") -> str:
        return f"{länge} {farbe} {größe}"

    @completion("shop://größe/{länge}{?farbe,größe}", "größe")
    def complete(value: str) -> list[str]:
        return [f"{value}!"]

    assert [one.uri for one in found.resources] == ["shop://gr%C3%B6%C3%9Fe"]
    [template] = found.templates
    assert template.template.text == "shop://gr%C3%B6%C3%9Fe/{l%C3%A4nge}{?farbe,gr%C3%B6%C3%9Fe}"
    assert (template.template.text, "größe") in found.completers


@pytest.mark.usefixtures("found")
async def test_a_template_with_names_outside_ascii_is_read_and_completed() -> None:
    @resource("shop://größe/{länge}{?farbe,größe}")
    def sizes(länge: str, farbe: str = "", größe: str = "") -> str:
        return f"{länge} {farbe} {größe}"

    @completion("shop://größe/{länge}{?farbe,größe}", "größe")
    def complete(value: str) -> list[str]:
        return [f"{value}!"]

    client = PipelineClient(make_server(registry=registry.get_registry("default")))
    uri = "shop://gr%C3%B6%C3%9Fe/7?gr%C3%B6%C3%9Fe=8&farbe=rot"
    [contents] = (await client.request("resources/read", {"uri": uri}))["contents"]
    assert contents["text"] == "7 rot 8"
    [listed] = (await client.request("resources/templates/list"))["resourceTemplates"]
    for name in ("größe", "gr%C3%B6%C3%9Fe"):
        asked = {
            "ref": {"type": "ref/resource", "uri": listed["uriTemplate"]},
            "argument": {"name": name, "value": "8"},
        }
        assert (await client.request("completion/complete", asked))["completion"]["values"] == ["8!"]
