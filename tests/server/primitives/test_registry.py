"""Registries: unique names, errors with both sources, and versions."""

from typing import Any

import pytest

from mcp_django import Server, Toolset, completion, prompt, register, resource, tool
from mcp_django.schema import DeclarationError
from mcp_django.server.primitives import registry
from mcp_django.server.primitives.decorators import build_prompt, build_resource, build_tool, register_tool
from mcp_django.server.primitives.registry import Registry
from tests.server.client import PipelineClient, make_server


@pytest.fixture(autouse=True)
def _registries_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "REGISTRIES", {})


def first() -> str:
    return "first"


def second() -> str:
    return "second"


def declare(server: Server, kind: str, fn: Any) -> None:
    """Declare `fn` under the one name of its kind."""
    match kind:
        case "tool":
            server.tool(fn, name="same")
        case "prompt":
            server.prompt(fn, name="same")
        case "resource":
            server.resource("test://same")(fn)
        case "completion":
            server.completion("same", "argument")(fn)


def test_a_duplicate_name_is_refused_with_both_sources(subtests: pytest.Subtests) -> None:
    for kind in ["tool", "prompt", "resource"]:
        with subtests.test(kind=kind):
            server = make_server()
            declare(server, kind, first)
            with pytest.raises(DeclarationError) as refused:
                declare(server, kind, second)
            assert "test_registry.first (line" in str(refused.value)
            assert "test_registry.second (line" in str(refused.value)
            assert "same" in str(refused.value)


def test_a_duplicate_template_is_refused() -> None:
    server = make_server()

    @server.resource("test://{x}")
    def one(x: str) -> str:
        return x

    with pytest.raises(DeclarationError, match=r"already registered by .*one \(line"):

        @server.resource("test://{x}")
        def two(x: str) -> str:
            return x


def test_a_second_completer_of_an_argument_is_refused() -> None:
    server = make_server()

    @server.completion("trip", "city")
    def one(value: str) -> list[str]:
        return []

    with pytest.raises(DeclarationError, match=r"completion of 'city' for 'trip' .*two .*already registered .*one"):

        @server.completion("trip", "city")
        def two(value: str) -> list[str]:
            return []


def test_names_are_unique_within_a_kind_only() -> None:
    server = make_server()
    for kind in ("tool", "prompt", "resource"):
        declare(server, kind, first)
    assert [len(c) for c in (server.registry.tools, server.registry.prompts, server.registry.resources)] == [1, 1, 1]


def test_registries_of_aliases_collect_problems_and_keep_the_first_declaration() -> None:
    tool(first, name="same")
    tool(second, name="same")
    tool(second, name="not a name")
    prompt(first, name="same", server="staff")
    prompt(second, name="same", server="staff")
    texts = [problem.text for problem in registry.collect_problems() if "test_registry" in problem.source]
    assert len(texts) == 3
    assert "already registered" in texts[0]
    assert "'not a name'" in texts[1]
    assert "already registered" in texts[2]
    kept = registry.get_registry("default").tools.get("same")
    assert kept is not None
    assert kept.handler.fn is first


def test_a_refused_function_can_be_called() -> None:
    assert tool(name="not a name")(first) is first


def test_names_of_one_alias_do_not_conflict_with_another() -> None:
    tool(first, name="same")
    tool(second, name="same", server="staff")
    assert not [problem for problem in registry.collect_problems() if "test_registry" in problem.source]


def test_a_method_of_a_class_that_is_no_toolset_is_reported() -> None:
    class Plain:
        @tool
        def lost(self) -> None: ...

    (problem,) = [problem for problem in registry.collect_problems() if "Plain.lost" in problem.source]
    assert "its class is not a Toolset" in problem.text
    assert "Toolset" in problem.hint
    assert len(registry.get_registry("default").tools) == 0
    registry.MARKED_METHODS.claim(Plain)


def test_every_change_makes_a_new_version() -> None:
    found = Registry()
    seen = [found.version]
    for step in (
        lambda: found.add(lambda: build_tool(first), "first"),
        lambda: found.add(lambda: build_prompt(first), "first"),
        lambda: found.add(lambda: build_resource(first, "test://a"), "first"),
        lambda: found.tools.remove("first"),
    ):
        step()
        seen.append(found.version)
    assert sorted(set(seen)) == seen


def test_removing_returns_the_item_or_none() -> None:
    found = Registry()
    added = found.add(lambda: build_tool(first), "first")
    assert found.tools.remove("first") is added
    assert found.tools.remove("first") is None
    assert "first" not in found.tools


def test_a_template_is_found_in_the_order_of_the_list() -> None:
    found = Registry()

    def one(x: str) -> str:
        return x

    for uri in ("test://{+x}", "test://a/{x}"):
        found.add(lambda uri=uri: build_resource(one, uri), "one")  # type: ignore[misc]
    assert [template.key for template in found.templates] == ["test://a/{x}", "test://{+x}"]
    narrow, wide = found.match("test://a/b"), found.match("test://b/c")
    assert narrow is not None
    assert wide is not None
    assert (narrow[0].key, narrow[1]) == ("test://a/{x}", {"x": "b"})
    assert (wide[0].key, wide[1]) == ("test://{+x}", {"x": "b/c"})
    assert found.match("other://a") is None


async def test_a_resource_wins_over_a_matching_template() -> None:
    server = make_server()
    server.resource("test://{x}")(lambda x: f"template {x}")
    server.resource("test://same")(first)
    read = await PipelineClient(server).request("resources/read", {"uri": "test://same"})
    assert read["contents"][0]["text"] == "first"


def test_decorators_leave_the_function_as_it_is(subtests: pytest.Subtests) -> None:
    for own in [True, False]:
        with subtests.test(own=own):

            def function(value: str) -> str:
                return value

            server = make_server()
            decorators: list[Any] = [
                server.tool if own else tool,
                (server.tool if own else tool)(name="again"),
                server.prompt if own else prompt,
                (server.resource if own else resource)("test://{value}"),
                (server.completion if own else completion)("function", "value"),
            ]
            assert [decorate(function) for decorate in decorators] == [function] * 5
            assert not [problem for problem in registry.collect_problems() if "test_registry" in problem.source]


class Late(Toolset):
    """A declaration that is resolved only when the project is complete."""

    is_deferred = True
    complete = False

    def attach(self, registry: Registry) -> None:
        if not self.complete:
            raise DeclarationError("the project is not complete")

    @tool
    def late(self) -> str:
        return "late"


def test_deferred_declarations_are_registered_by_checks_and_servers() -> None:
    for settle in (registry.collect_problems, lambda: make_server(registry=registry.get_registry("default"))):
        registry.REGISTRIES.clear()
        toolset = register(Late())
        found = registry.get_registry("default")
        assert (len(found.tools), found.toolsets) == (0, [])
        toolset.complete = True
        settle()
        settle()
        assert ([one.name for one in found.tools], found.toolsets) == (["late"], [toolset])
        again = Late()
        again.prefix, again.complete = "again_", True
        assert len(register(again).get_declarations()) == 1
        assert [one.name for one in found.tools] == ["again_late", "late"]


def test_an_invalid_deferred_declaration_is_a_problem() -> None:
    register(Late())
    assert [problem.text for problem in registry.collect_problems()] == ["the project is not complete"]


def test_a_deferred_declaration_may_ask_for_the_server() -> None:
    found = Registry()
    seen: list[bool] = []

    def again() -> None:
        found.run_deferred()
        seen.append(True)

    found.defer(again)
    found.run_deferred()
    assert seen == [True]


def test_a_failed_deferred_declaration_is_tried_again() -> None:
    found, tries = Registry(), [ImportError("the URLconf"), None]

    def load() -> None:
        if (problem := tries.pop(0)) is not None:
            raise problem

    found.defer(load)
    with pytest.raises(ImportError, match="the URLconf"):
        found.run_deferred()
    found.run_deferred()
    assert tries == []


def test_a_deferred_declaration_of_a_server_with_mounts_is_deferred() -> None:
    own, tries = Registry(), [ImportError("the URLconf"), None]
    joint = registry.CombinedRegistry(own)

    def load() -> None:
        if (problem := tries.pop(0)) is not None:
            raise problem

    joint.defer(load)
    assert len(tries) == 2
    with pytest.raises(ImportError, match="the URLconf"):
        joint.run_deferred()
    own.run_deferred()
    assert tries == []


def test_resolving_a_server_with_mounts_does_not_build_it() -> None:
    joint = registry.CombinedRegistry(Registry(strict=True))
    joint.run_deferred()
    with pytest.raises(DeclarationError, match="taken"):
        joint.report_conflict("taken", "here")


def test_a_refused_declaration_is_logged_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    found = Registry("shop", strict=False)

    class Unserializable:
        pass

    def broken(value: Unserializable) -> str:
        return "x"

    register_tool(found, broken, None, {})
    [record] = caplog.records
    assert (record.name, record.levelname) == ("mcp_django.server", "ERROR")
    assert "broken" in record.getMessage()
    assert "value" in record.getMessage()


def test_the_hint_for_a_refused_declaration_fits_its_cause() -> None:
    found = Registry("shop", strict=False)
    register_tool(found, lambda: "x", "wrong name", {})
    register_tool(found, lambda: "x", "twice", {})
    register_tool(found, lambda: "y", "twice", {})
    first, second = found.problems
    assert "rename" not in first.hint.lower()
    assert "Correct the declaration" in first.hint
    assert "another name" in second.hint


def test_a_problem_is_found_by_the_name_of_the_missing_primitive() -> None:
    found = Registry("shop", strict=False)
    register_tool(found, lambda: "x", "wrong name", {})
    problem = registry.find_problem(found, "wrong name")
    assert problem is found.problems[0]
    assert registry.find_problem(registry.CombinedRegistry(found), "wrong name") is problem
    assert registry.find_problem(found, "other") is None
