"""Toolsets: options of the class, options of its methods, and their combination."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from mcp_django import Context, ToolError, ToolResult, Toolset, completion, prompt, register, resource, tool
from mcp_django.protocol.errors import InsufficientScope, InvalidParams
from mcp_django.protocol.meta import TAGS_KEY
from mcp_django.schema import DeclarationError
from mcp_django.server.primitives import registry
from mcp_django.server.primitives.toolset import add_toolset, find_misspelt_attributes
from tests.server.client import PipelineClient, make_principal, make_server


@pytest.fixture(autouse=True)
def _registries_of_this_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "REGISTRIES", {})


def serve(cls: type[Toolset], principal: Any = None) -> PipelineClient:
    """A peer of a server with one toolset."""
    server = make_server(toolsets=[cls()])
    return PipelineClient(server) if principal is None else PipelineClient(server, principal)


class Rooms(Toolset):
    prefix = "rooms_"
    permission = "hotel.view"
    scopes = ["hotel:read"]
    tags = ["hotel", "rooms"]
    metadata = {"table": "rooms", "level": 1}
    timeout = 3.0

    @tool(permission="hotel.book", scopes=["hotel:write"], tags=["rooms", "booking"], metadata={"level": 2}, timeout=9)
    def book(self, number: int, ctx: Context) -> dict[str, Any]:
        """Book a room."""
        return dict(ctx.metadata)

    @tool(name="list")
    async def every(self) -> str:
        """List the rooms."""
        return "all"

    @prompt
    def complaint(self, about: str) -> str:
        """Complain."""
        return f"about {about}"

    @resource("room://{number}")
    def room(self, number: int) -> str:
        """A room."""
        return f"room {number}"

    @completion("rooms_complaint", "about")
    def what_about(self, value: str) -> list[str]:
        return [f"{value}ise"]


BOTH = {"permission": ["hotel.view", "hotel.book"], "scopes": ["hotel:read", "hotel:write"]}
GUEST = make_principal("hotel.view", "hotel.book", scopes=["hotel:read", "hotel:write"])


async def test_the_prefix_applies_to_tools_and_prompts_and_not_to_resources() -> None:
    peer = serve(Rooms)
    assert await peer.names() == ["rooms_book", "rooms_list"]
    assert await peer.names("prompts/list", "prompts") == ["rooms_complaint"]
    assert await peer.names("resources/templates/list", "resourceTemplates") == ["room"]


async def test_methods_of_every_kind_run_on_the_instance() -> None:
    peer = serve(Rooms, GUEST)
    assert await peer.text("rooms_list") == "all"
    read = await peer.request("resources/read", {"uri": "room://101"})
    assert read["contents"][0]["text"] == "room 101"
    got = await peer.request("prompts/get", {"name": "rooms_complaint", "arguments": {"about": "noise"}})
    assert got["messages"][0]["content"]["text"] == "about noise"
    ref = {"ref": {"type": "ref/prompt", "name": "rooms_complaint"}, "argument": {"name": "about", "value": "no"}}
    assert (await peer.request("completion/complete", ref))["completion"]["values"] == ["noise"]


@pytest.mark.parametrize("missing", BOTH["permission"])
async def test_the_permissions_of_class_and_method_are_both_required(missing: str) -> None:
    held = [name for name in BOTH["permission"] if name != missing]
    peer = serve(Rooms, make_principal(*held, scopes=BOTH["scopes"]))
    assert "rooms_book" not in await peer.names()
    with pytest.raises(InvalidParams, match="Unknown tool: rooms_book"):
        await peer.call("rooms_book", number=1)


@pytest.mark.parametrize("missing", BOTH["scopes"])
async def test_the_scopes_of_class_and_method_are_both_required(missing: str) -> None:
    held = [name for name in BOTH["scopes"] if name != missing]
    with pytest.raises(InsufficientScope) as refused:
        await serve(Rooms, make_principal(*BOTH["permission"], scopes=held)).call("rooms_book", number=1)
    assert set(refused.value.scopes) == set(BOTH["scopes"])


async def test_a_caller_with_permission_and_scopes_is_served() -> None:
    assert not (await serve(Rooms, GUEST).call("rooms_book", number=1))["isError"]


async def test_a_permission_function_of_the_class_and_one_of_the_method_both_apply() -> None:
    async def is_open(principal: Any) -> bool:
        return bool(principal.subject == "guest")

    class Bar(Toolset):
        permission = [is_open]

        @tool(permission="hotel.drink")
        def drink(self) -> str:
            return "cheers"

    assert await serve(Bar, make_principal("hotel.drink", name="guest")).text("drink") == "cheers"
    for other in (make_principal("hotel.drink", name="thief"), make_principal(name="guest")):
        with pytest.raises(InvalidParams):
            await serve(Bar, other).call("drink")


@pytest.mark.parametrize("allowed", [True, False])
async def test_the_permission_of_a_class_may_be_a_function_of_the_principal(allowed: bool) -> None:
    class Bar(Toolset):
        permission = lambda principal: principal.user is not None and allowed  # noqa: E731

        @tool
        def drink(self) -> str:
            return "cheers"

    assert await serve(Bar, make_principal()).names() == (["drink"] if allowed else [])


@pytest.mark.parametrize("allowed", [True, False])
async def test_the_permission_of_a_class_may_be_a_method(allowed: bool) -> None:
    class Bar(Toolset):
        is_open = allowed

        def permission(self, principal: Any) -> bool:
            return principal.user is not None and self.is_open

        @tool
        def drink(self) -> str:
            return "cheers"

    assert await serve(Bar, make_principal()).names() == (["drink"] if allowed else [])


async def test_tags_of_class_and_method_are_merged_in_order() -> None:
    listed = (await serve(Rooms).request("tools/list"))["tools"]
    assert [entry["_meta"][TAGS_KEY] for entry in listed] == [["hotel", "rooms", "booking"], ["hotel", "rooms"]]


async def test_the_method_s_metadata_and_timeout_win_over_the_class_s() -> None:
    peer = serve(Rooms, GUEST)
    found = (await peer.call("rooms_book", number=1))["structuredContent"]
    assert found == {"table": "rooms", "level": 2}
    tools = peer.server.registry.tools
    assert [item.timeout for item in tools] == [9, 3.0]


def record_calls(log: list[str], what: str) -> Any:
    """Return an interceptor that records its entry and exit."""

    async def interceptor(ctx: Context, proceed: Any) -> Any:
        log.append(f"{what} in")
        result = await proceed()
        log.append(f"{what} out")
        return result

    return interceptor


async def test_guards_run_first_and_interceptors_of_the_class_are_the_outermost() -> None:
    log: list[str] = []

    class Bar(Toolset):
        guards = [lambda ctx: log.append("class guard")]
        interceptors = [record_calls(log, "class")]

        @tool(
            guards=[lambda ctx: log.append("method guard")],
            interceptors=[record_calls(log, "first"), record_calls(log, "second")],
        )
        def drink(self) -> str:
            log.append("drink")
            return "cheers"

    assert await serve(Bar).text("drink") == "cheers"
    entered = ["class in", "first in", "second in"]
    left = ["second out", "first out", "class out"]
    assert log == ["class guard", "method guard", *entered, "drink", *left]


async def test_a_guard_that_returns_false_stops_the_call_before_interceptors() -> None:
    log: list[str] = []

    class Bar(Toolset):
        guards = [lambda ctx: False]
        interceptors = [record_calls(log, "class")]

        @tool
        def drink(self) -> None:
            log.append("drink")

    assert "'drink' may not be used here" in await serve(Bar).error("drink")
    assert log == []


async def test_a_guard_may_be_async_and_its_tool_error_is_the_answer() -> None:
    async def closed(ctx: Context) -> None:
        raise ToolError(f"{ctx.tool_name} is closed")

    class Bar(Toolset):
        @tool(guards=[closed])
        def drink(self) -> None: ...

    assert await serve(Bar).error("drink") == "drink is closed"


async def test_arguments_are_checked_before_guards_run() -> None:
    log: list[str] = []

    class Bar(Toolset):
        guards = [lambda ctx: log.append("guard")]

        @tool
        def drink(self, glasses: int) -> None: ...

    assert "glasses" in await serve(Bar).error("drink", glasses="many")
    assert log == []


async def test_an_interceptor_may_answer_change_and_repeat() -> None:
    runs: list[int] = []

    async def twice(ctx: Context, proceed: Any) -> Any:
        return [await proceed(), await proceed()]

    async def never(ctx: Context, proceed: Any) -> str:
        return "closed"

    class Bar(Toolset):
        @tool(interceptors=[twice])
        def drink(self, name: str, ctx: Context):  # type: ignore[no-untyped-def]
            runs.append(len(runs))
            return f"{name} {len(runs)}"

        @tool(interceptors=[never])
        def eat(self) -> str:
            raise AssertionError("the handler continued")

    peer = serve(Bar)
    assert await peer.text("drink", name="beer") == '["beer 1","beer 2"]'
    assert await peer.text("eat") == "closed"


async def test_the_exception_handler_of_the_method_and_of_the_nearest_class_wins() -> None:
    class Bar(Toolset):
        exception_handlers = {
            LookupError: lambda problem, ctx: f"class: {type(problem).__name__}",
            ValueError: lambda problem, ctx: "class: value",
        }

        @tool(exception_handlers={ValueError: lambda problem, ctx: f"method: {problem} in {ctx.tool_name}"})
        def drink(self, what: str) -> str:
            raise {"value": ValueError("empty"), "key": KeyError("beer")}[what]

    peer = serve(Bar)
    assert await peer.text("drink", what="value") == "method: empty in drink"
    assert await peer.text("drink", what="key") == "class: KeyError"


async def test_exception_handlers_get_exceptions_of_guards_and_interceptors() -> None:
    async def excuse(problem: Exception, ctx: Context) -> str:
        return f"excuse {problem}"

    def guard(ctx: Context) -> None:
        raise RuntimeError("me")

    class Bar(Toolset):
        exception_handlers = {RuntimeError: excuse}

        @tool(guards=[guard])
        def drink(self) -> str:
            return "cheers"

    assert await serve(Bar).text("drink") == "excuse me"


async def test_an_exception_handler_may_raise_a_tool_error() -> None:
    def sorry(problem: Exception, ctx: Context) -> None:
        raise ToolError("sorry") from problem

    class Bar(Toolset):
        exception_handlers = {ZeroDivisionError: sorry}

        @tool
        def divide(self) -> float:
            return 1 / 0

    assert await serve(Bar).error("divide") == "sorry"


async def test_an_exception_handler_of_a_tool_with_a_schema_returns_a_tool_result() -> None:
    class Bar(Toolset):
        exception_handlers = {KeyError: lambda problem, ctx: ToolResult(f"no {problem}", is_error=True)}

        @tool
        def bottles(self, of: str) -> int:
            return {"beer": 99}[of]

    assert await serve(Bar).text("bottles", of="beer") == "99"
    assert await serve(Bar).error("bottles", of="wine") == "no 'wine'"


async def test_static_and_class_methods_are_served_in_either_order_of_decorators() -> None:
    class Bar(Toolset):
        @tool
        @staticmethod
        def one(n: int) -> int:
            return n

        @staticmethod
        @tool
        def two(n: int) -> int:
            return n

        @tool
        @classmethod
        def three(cls, n: int) -> str:
            return f"{cls.__name__} {n}"

        @classmethod
        @tool
        def four(cls, n: int) -> str:
            return f"{cls.__name__} {n}"

    peer = serve(Bar)
    assert [await peer.text(name, n=1) for name in ("one", "two", "three", "four")] == ["1", "1", "Bar 1", "Bar 1"]
    assert not registry.collect_problems()


async def test_inherited_methods_are_served_with_the_options_of_the_subclass() -> None:
    class Base(Toolset):
        greeting = "hello"

        @tool
        def greet(self) -> str:
            return self.greeting

        @tool
        def hidden(self) -> str:
            return "base"

    class Child(Base):
        prefix = "child_"
        greeting = "hi"

        def hidden(self) -> str:
            return "not marked, not served"

    peer = serve(Child)
    assert await peer.names() == ["child_greet"]
    assert await peer.text("child_greet") == "hi"


async def test_an_overriding_method_that_is_marked_replaces_the_inherited_one() -> None:
    class Base(Toolset):
        @tool(tags=["base"])
        def greet(self) -> str:
            return "base"

    class Child(Base):
        @tool(name="welcome")
        def greet(self) -> str:
            return "child"

    peer = serve(Child)
    assert await peer.names() == ["welcome"]
    assert await peer.text("welcome") == "child"


async def test_marked_methods_of_a_plain_base_class_are_served() -> None:
    class Shared:
        @tool
        def greet(self) -> str:
            return "hello"

    class Bar(Shared, Toolset):
        """Takes the greeting along."""

    assert await serve(Bar).text("greet") == "hello"
    assert not [problem for problem in registry.collect_problems() if "Shared.greet" in problem.source]


def test_a_class_attribute_that_cannot_be_hashed_is_no_problem() -> None:
    class Sayer(list[str]):
        def __call__(self) -> None: ...

    class Bar(Toolset):
        sayer = Sayer()

    assert Bar.sayer == []


async def test_one_method_may_be_marked_twice() -> None:
    class Bar(Toolset):
        @tool(name="a")
        @tool(name="b")
        def drink(self) -> str:
            return "cheers"

    assert await serve(Bar).names() == ["a", "b"]


def test_register_adds_to_the_registry_of_its_server_and_returns_the_class() -> None:
    @register
    class DefaultTools(Toolset):
        @tool
        def list_rooms(self) -> None: ...

    @register(server="staff")
    class StaffTools(Toolset):
        @tool
        def inspect_room(self) -> None: ...

    assert DefaultTools.__name__ == "DefaultTools"
    assert StaffTools.__name__ == "StaffTools"
    assert "list_rooms" in registry.get_registry("default").tools
    assert list(registry.get_registry("staff").tools.sorted()) == [
        registry.get_registry("staff").tools.get("inspect_room")
    ]


def test_register_takes_toolsets_only() -> None:
    with pytest.raises(DeclarationError, match="subclass of Toolset"):
        register(dict)  # type: ignore[type-var]


def test_a_name_of_two_toolsets_is_refused() -> None:
    class First(Toolset):
        @tool
        def drink(self) -> None: ...

    class Second(Toolset):
        @tool
        def drink(self) -> None: ...

    found = registry.Registry(strict=False)
    add_toolset(found, First())
    add_toolset(found, Second())
    (problem,) = found.problems
    assert "First.drink" in problem.text
    assert "Second.drink" in problem.text
    assert "Second.drink" in problem.source


async def test_a_toolset_s_lifespan_is_entered_once_before_the_first_call_and_left() -> None:
    log: list[str] = []

    class Bar(Toolset):
        @contextlib.asynccontextmanager
        async def lifespan(self) -> AsyncIterator[None]:
            self.keg = "beer"
            log.append("in")
            yield
            log.append("out")

        @tool
        def drink(self) -> str:
            return self.keg

    peer = serve(Bar)
    assert log == []
    assert [await peer.text("drink"), await peer.text("drink")] == ["beer", "beer"]
    assert log == ["in"]
    await peer.server.lifespan.exit()
    assert log == ["in", "out"]


class Library(Toolset):
    atomic = "books"
    timeout = 5

    @tool
    def enter(self) -> str:
        return ""

    @tool(atomic=False, timeout=1)
    def look(self) -> str:
        return ""

    @prompt
    def ask(self) -> str:
        return ""

    @completion("ask", "x")
    def complete(self, value: str) -> list[str]:
        return []


def test_transaction_and_timeout_of_a_toolset_are_defaults() -> None:
    found = make_server(toolsets=[Library()]).registry
    assert {item.source.split(".")[-1].split()[0]: item.handler.get_databases(()) for item in found.iter_all()} == {
        "enter": ("books",),
        "look": (),
        "ask": ("books",),
        "complete": ("books",),
    }
    assert [found.tools._items[name].timeout for name in ("enter", "look")] == [5, 1]


def test_options_of_a_toolset_are_checked_like_those_of_a_method(subtests: pytest.Subtests) -> None:
    for record_calls in [{"timeout": 0}, {"atomic": 3}]:
        with subtests.test(record_calls=record_calls):
            wrong = type("Wrong", (Library,), record_calls)
            with pytest.raises(DeclarationError, match=r"Wrong: (timeout|atomic)="):
                make_server(toolsets=[wrong()])


def test_a_misspelt_restriction_of_a_toolset_is_refused() -> None:
    class Open(Toolset):
        permisson = "shop.view_order"

        @tool
        def drink(self) -> None: ...

    found = registry.Registry(strict=False)
    add_toolset(found, Open())
    (problem,) = found.problems
    assert "'permisson'; did you mean 'permission'?" in problem.text
    assert problem.covers("drink")
    assert not found.tools.get("drink")


def test_similar_attributes_are_reported_and_others_are_allowed() -> None:
    class Own(Toolset):
        timout = 5
        rates = ("a", "b")
        _permisson = "private"

        def lifespn(self) -> None: ...

        @tool
        def atomics(self) -> None: ...

    assert dict(find_misspelt_attributes(Own)) == {"timout": "timeout", "lifespn": "lifespan"}


def test_a_name_is_checked_with_its_prefix() -> None:
    class Long(Toolset):
        prefix = "reservations_of_rooms_with_a_view_of_the_sea_"

        @tool
        def change_the_day_of_arrival(self) -> str:
            """70 characters with the prefix."""
            return "changed"

    with pytest.raises(DeclarationError, match=r"Long: the name 'reservations_.*must have 1 to 64.*another name= or p"):
        make_server(toolsets=[Long()])
