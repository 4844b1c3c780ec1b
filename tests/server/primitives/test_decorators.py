"""Declarations: refused ones, defaults, and the callables that can be declared."""

import functools

import pytest

from mcp_django import Context, MCPError
from mcp_django.protocol.meta import TAGS_KEY
from mcp_django.schema import DeclarationError
from mcp_django.server.primitives.decorators import build_completer, build_prompt, build_resource, build_tool
from mcp_django.types import Icon, ToolAnnotations
from tests.server.client import STATELESS, PipelineClient, make_server


def hello(name: str = "you") -> str:
    """Return a greeting.

    Args:
        name: To whom.
    """
    return f"hello {name}"


def test_a_name_that_clients_refuse_is_refused(subtests: pytest.Subtests) -> None:
    for name in ["", " ", "a b", "a/b", "ä", "a" * 65, "a\n", "a:b"]:
        with subtests.test(name=name):
            for build in (build_tool, build_prompt):
                if name:
                    with pytest.raises(DeclarationError, match="must have 1 to 64 letters"):
                        build(hello, name)
                else:
                    assert build(hello, name).name == "hello"


def test_a_name_has_letters_digits_and_three_other_characters(subtests: pytest.Subtests) -> None:
    for name in ["a", "A-b_c.1", "a" * 64]:
        with subtests.test(name=name):
            assert build_tool(hello, name).name == build_prompt(hello, name).name == name


def test_a_function_without_a_name_needs_one() -> None:
    nameless = functools.partial(hello, name="x")
    with pytest.raises(DeclarationError, match="the name ''"):
        build_tool(nameless)
    with pytest.raises(DeclarationError, match="'<lambda>'"):
        build_tool(lambda: None)
    assert build_tool(lambda: None, "named").name == "named"


def test_a_uri_without_a_scheme_is_refused(subtests: pytest.Subtests) -> None:
    cases = ["airports", "/airports", "1a://x", "://x", "{code}", "{scheme}://x", ""]
    for uri in cases:
        with subtests.test(uri=uri):

            def read(code: str = "", scheme: str = "") -> str:
                return code

            with pytest.raises(DeclarationError):
                build_resource(read, uri)


def test_a_malformed_template_is_refused_with_the_source(subtests: pytest.Subtests) -> None:
    for uri in ["test://{x", "test://{x}{x}", "test://{}", "test://{x:3}"]:
        with subtests.test(uri=uri):

            def read(x: str) -> str:
                return x

            with pytest.raises(DeclarationError, match=r"test_decorators.*read \(line"):
                build_resource(read, uri)


def test_parameters_and_variables_must_agree(subtests: pytest.Subtests) -> None:
    for uri in ["test://{y}", "test://static"]:
        with subtests.test(uri=uri):

            def read(x: str) -> str:
                return x

            with pytest.raises(DeclarationError, match="URI template"):
                build_resource(read, uri)


def test_a_completer_takes_the_text_and_optionally_the_arguments() -> None:
    def good(text: str, ctx: Context, arguments: dict[str, str]) -> list[str]:
        return []

    def nothing(ctx: Context) -> list[str]:
        return []

    def more(value: str, other: str) -> list[str]:
        return []

    built = build_completer(good, "trip", "city")
    assert (built.value, built.takes_arguments) == ("text", True)
    for bad in (nothing, more):
        with pytest.raises(DeclarationError, match="first parameter"):
            build_completer(bad, "trip", "city")


def test_an_unknown_option_is_refused_by_name(subtests: pytest.Subtests) -> None:
    cases = [
        (lambda **o: build_tool(hello, **o), "permisson"),
        (lambda **o: build_tool(hello, **o), "mime_type"),
        (lambda **o: build_prompt(hello, **o), "input_schema"),
        (lambda **o: build_resource(lambda: "x", "test://x", **o), "scope"),
    ]
    for build, option in cases:
        with subtests.test(build=build, option=option), pytest.raises(DeclarationError, match=option):
            build(**{option: "shop.view_order"})


def test_a_misspelt_option_is_refused_with_a_suggestion() -> None:
    with pytest.raises(DeclarationError, match="did you mean 'permission'"):
        build_tool(hello, permisson="shop.view_order")  # type: ignore[call-arg]


def test_a_string_in_place_of_a_list_is_refused(subtests: pytest.Subtests) -> None:
    for option in ["icons", "tags", "scopes"]:
        with subtests.test(option=option), pytest.raises(DeclarationError, match=rf"{option}=\['shop:read'\]"):
            build_tool(hello, **{option: "shop:read"})  # type: ignore[arg-type]


def test_a_key_of_meta_that_the_protocol_does_not_allow_is_refused_by_name(subtests: pytest.Subtests) -> None:
    for key in ["-owner", "two words", "/owner", "a/b/c"]:
        with subtests.test(key=key), pytest.raises(DeclarationError, match=key):
            build_tool(hello, meta={key: "x"})


def test_keys_of_meta_that_the_protocol_allows_reach_the_wire() -> None:
    meta = {"owner": "x", "example.com/owner": "y", "ui": {"resourceUri": "ui://x"}}
    assert build_tool(hello, meta=meta).wire["_meta"] == meta


def test_omitted_options_come_from_the_function() -> None:
    def order_status(number: int) -> None: ...

    built = build_tool(hello)
    assert (built.name, built.description) == ("hello", "Return a greeting.")
    assert build_tool(order_status).description == "Order status"
    assert build_tool(hello, description="Greets.").description == "Greets."
    assert build_resource(hello, "test://{?name}").name == "hello"


def test_every_option_of_a_tool_is_listed_as_the_wire_writes_it() -> None:
    server = make_server()
    server.tool(
        hello,
        title="Hello",
        icons=[Icon("https://example.com/a.png", mime_type="image/png")],
        tags=["polite"],
        meta={"example.com/a": 1},
        annotations=ToolAnnotations(read_only=True),
        metadata={"secret": True},
        permission="a.b",
        scopes=["c"],
        timeout=3,
    )
    (listed,) = [tool.wire for tool in server.registry.tools]
    assert listed["title"] == "Hello"
    assert listed["icons"] == [{"src": "https://example.com/a.png", "mimeType": "image/png"}]
    assert listed["_meta"] == {"example.com/a": 1, TAGS_KEY: ["polite"]}
    assert listed["annotations"] == {"readOnlyHint": True}
    assert "secret" not in str(listed)
    assert not {"metadata", "permission", "scopes", "timeout"} & set(listed)


def test_every_option_of_a_resource_is_listed() -> None:
    built = build_resource(lambda: "x", "test://x", name="x", mime_type="text/plain", size=3, title="X")
    listed = {"uri": "test://x", "name": "x", "title": "X", "description": "X", "mimeType": "text/plain", "size": 3}
    assert built.wire == listed


class Greeter:
    """An object that can be called, and one of its methods."""

    def __init__(self, word: str) -> None:
        self.word = word

    def __call__(self, name: str) -> str:
        return f"{self.word} {name}"

    def greet(self, name: str) -> str:
        return f"{self.word}, {name}"

    @classmethod
    def made(cls, name: str) -> str:
        return f"{cls.__name__} {name}"


class AsyncGreeter(Greeter):
    async def __call__(self, name: str) -> str:  # type: ignore[override]
        return f"async {self.word} {name}"


class Inherits(AsyncGreeter):
    """Its async `__call__` is inherited."""


async def test_any_callable_may_be_a_tool() -> None:
    server = make_server()
    server.tool(Greeter("hello"), name="object")
    server.tool(AsyncGreeter("hello"), name="async_object")
    server.tool(Inherits("hello"), name="inherited")
    server.tool(functools.partial(hello, "partial"), name="partial")
    server.tool(lambda: "lambda", name="lambda")
    server.tool(Greeter("bound").greet, name="bound")
    server.tool(Greeter.made, name="made")
    peer = PipelineClient(server)
    assert await peer.text("object", name="A") == "hello A"
    assert await peer.text("async_object", name="A") == "async hello A"
    assert await peer.text("inherited", name="A") == "async hello A"
    assert await peer.text("partial") == "hello partial"
    assert await peer.text("lambda") == "lambda"
    assert await peer.text("bound", name="A") == "bound, A"
    assert await peer.text("made", name="A") == "Greeter A"


def test_functions_inside_functions_of_classes_are_functions() -> None:
    server = make_server()

    class Maker:
        def make(self) -> None:
            @server.tool
            def inner() -> None: ...

    Maker().make()
    assert "inner" in server.registry.tools


def test_a_server_s_strict_registry_raises_at_the_declaration() -> None:
    server = make_server()
    with pytest.raises(DeclarationError, match="rest"):

        @server.tool
        def takes(*rest: int) -> None: ...

    assert len(server.registry.tools) == 0


def test_capabilities_follow_the_declarations() -> None:
    server = make_server()
    assert server.offered_capabilities == {"logging"}
    server.tool(hello)
    assert server.offered_capabilities == {"logging", "tools"}
    server.resource("test://{name}")(hello)
    server.prompt(hello)
    server.completion("hello", "name")(lambda value: [value])
    assert server.offered_capabilities == {"logging", "tools", "resources", "prompts", "completions"}
    server.registry.tools.remove("hello")
    assert "tools" not in server.offered_capabilities


async def test_capabilities_of_the_options_are_added() -> None:
    server = make_server(options={"capabilities": {"experimental": {"x": {}}}})
    found = await PipelineClient(server, version=STATELESS).request("server/discover")
    assert found["capabilities"]["experimental"] == {"x": {}}


def test_an_invalid_timeout_is_refused_with_a_hint(subtests: pytest.Subtests) -> None:
    for timeout in [0, -1, 0.0, float("inf"), float("nan"), "10", True, [1]]:
        with subtests.test(timeout=timeout):
            for build in (build_tool, build_prompt):
                with pytest.raises(DeclarationError, match=r"hello.* is not a number of seconds above 0; omit it"):
                    build(hello, timeout=timeout)
            with pytest.raises(DeclarationError, match="not a number of seconds"):
                build_resource(lambda: "x", "test://x", timeout=timeout)


def test_a_timeout_is_in_seconds_or_left_to_the_server(subtests: pytest.Subtests) -> None:
    for timeout in [None, 1, 0.5]:
        with subtests.test(timeout=timeout):
            assert build_tool(hello, timeout=timeout).timeout == timeout


def test_atomic_names_the_databases_of_the_transactions_of_a_call(subtests: pytest.Subtests) -> None:
    """`beside_other`: in a project whose database "other" has ATOMIC_REQUESTS."""
    cases = [
        (None, (), ("other",)),
        (True, ("default",), ("default", "other")),
        (False, (), ()),
        ("other", ("other",), ("other",)),
        (["b", "a", "b"], ("b", "a"), ("b", "a")),
        ((), (), ()),
    ]
    for written, own, beside_other in cases:
        with subtests.test(written=written, own=own, beside_other=beside_other):
            built = [
                build_tool(hello, atomic=written),
                build_prompt(hello, atomic=written),
                build_resource(lambda: "x", "test://x", atomic=written),
                build_completer(lambda value: [], "hello", "name", written),
            ]
            assert {item.handler.get_databases(()) for item in built} == {own}
            assert {item.handler.get_databases(("other",)) for item in built} == {beside_other}


def test_the_default_database_is_named_once() -> None:
    assert build_tool(hello, atomic=True).handler.get_databases(("a", "default")) == ("default", "a")


def test_an_invalid_atomic_is_refused(subtests: pytest.Subtests) -> None:
    for atomic in [1, "", [""], [1], {"default": True}, object()]:
        with (
            subtests.test(atomic=atomic),
            pytest.raises(DeclarationError, match=r"atomic=.* is invalid; use True, False, the alias"),
        ):
            build_tool(hello, atomic=atomic)


async def test_a_name_may_be_the_first_argument() -> None:
    server = make_server()

    @server.tool("count", title="Count")
    def first() -> int:
        return 1

    @server.prompt("greet")
    def second() -> str:
        return "hi"

    @server.resource("city://oslo", "oslo", "The capital.")
    def third() -> str:
        return "x"

    peer = PipelineClient(server)
    assert await peer.names() == ["count"]
    assert await peer.names("prompts/list", "prompts") == ["greet"]
    [listed] = (await peer.request("resources/list"))["resources"]
    assert (listed["name"], listed["description"]) == ("oslo", "The capital.")


def test_a_name_given_twice_is_refused() -> None:
    server = make_server()
    with pytest.raises(TypeError, match="twice"):
        server.tool("a", name="b")
    with pytest.raises(TypeError, match="each once"):
        server.resource("city://oslo", "a", name="b")
    with pytest.raises(TypeError, match="each once"):
        server.resource("city://oslo", "a", "b", "c")


async def test_completions_that_are_not_strings_are_a_bug() -> None:
    server = make_server()
    server.prompt(lambda city: city, name="trip")
    server.completion("trip", "city")(lambda value: [1, {"a": 2}])
    asked = {"ref": {"type": "ref/prompt", "name": "trip"}, "argument": {"name": "city", "value": ""}}
    with pytest.raises(MCPError) as raised:
        await PipelineClient(server).request("completion/complete", asked)
    assert raised.value.code == -32603
