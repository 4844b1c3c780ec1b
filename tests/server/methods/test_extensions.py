"""Extensions: declaration, methods, notifications and results, in both eras."""

from dataclasses import dataclass
from typing import Any

import pytest

from mcp_django import Context, Server
from mcp_django.extensions import Extension, ExtensionResult, method, notification, subscription
from mcp_django.protocol import meta
from mcp_django.protocol.errors import (
    HeaderMismatch,
    InternalError,
    InvalidParams,
    MethodNotFound,
    MissingClientCapability,
)
from mcp_django.protocol.headers import Headers
from mcp_django.protocol.revisions import REVISIONS, Era
from mcp_django.schema import DeclarationError
from mcp_django.server.calls.pending import PendingResponse
from mcp_django.server.composition.extension_handlers import ExtensionMethod, build_handlers
from mcp_django.server.composition.extension_registry import ExtensionRegistry
from mcp_django.types import TaskOptions
from tests.server.client import HANDSHAKE, STATELESS, PipelineClient, make_principal, make_server
from tests.server.listening import ListenClient, taken

IDENTIFIER = "com.example/audit"
DECLARED = {"extensions": {IDENTIFIER: {}}}


@dataclass
class Page:
    entries: list[str]
    total: int


class Audit(Extension):
    """A complete third-party extension."""

    identifier = IDENTIFIER
    result_types = frozenset({"receipt"})

    def __init__(self) -> None:
        self.seen: list[str] = []

    def get_settings(self, revision: Any) -> dict[str, Any]:
        return {"retentionDays": 30}

    @method("audit/list")
    async def list_entries(self, ctx: Context, limit: int = 2) -> Page:
        return Page([f"{ctx.principal.user} {number}" for number in range(limit)], 7)

    @method("audit/read", name_param="entryId")
    async def read_entry(self, entry_id: str) -> dict[str, Any]:
        return {"entryId": entry_id}

    @method("audit/ping", requires_declaration=False)
    async def ping(self) -> dict[str, Any]:
        return {}

    @method("audit/secret", permission="shop.view_order")
    async def secret(self) -> dict[str, Any]:
        return {}

    @method("audit/receipt")
    async def receipt(self) -> ExtensionResult:
        return ExtensionResult("receipt", number=1)

    @method("audit/broken")
    async def broken(self) -> dict[str, Any]:
        raise RuntimeError("the password is swordfish")

    @notification("notifications/audit/seen")
    async def mark_seen(self, entry_id: str) -> None:
        self.seen.append(entry_id)


async def read_note(extension: Any, key: str) -> dict[str, Any] | None:
    return {"entryId": key, "state": extension.states[key]} if key in extension.states else None


class Notes(Extension):
    """An extension whose keys clients follow."""

    identifier = IDENTIFIER
    eras = frozenset({Era.STATELESS})

    def __init__(self) -> None:
        self.states = {"1": "new", "2": "new"}

    read = subscription("entryIds", notification="notifications/audit")(read_note)


class AuditClient(PipelineClient):
    """A client of a server with the extension, and with a tool that returns a result of it."""

    def __init__(self, extension: Extension, *permissions: str, **options: Any) -> None:
        server = make_server(extensions=[extension])

        @server.tool
        async def buy() -> ExtensionResult:
            """Buy."""
            return ExtensionResult("receipt", number=2)

        options.setdefault("capabilities", DECLARED)
        super().__init__(server, principal=make_principal(*permissions), **options)


async def test_both_eras_declare_the_extension_with_its_settings() -> None:
    found = await AuditClient(Audit()).request("server/discover")
    assert found["capabilities"]["extensions"] == {IDENTIFIER: {"retentionDays": 30}}

    handshake = make_server(extensions=[Audit()]).capabilities(REVISIONS[HANDSHAKE])
    assert handshake["extensions"] == {IDENTIFIER: {"retentionDays": 30}}


async def test_an_extension_of_one_era_does_not_exist_in_the_other() -> None:
    server = make_server(extensions=[Notes()])
    assert "extensions" not in server.capabilities(REVISIONS[HANDSHAKE])
    assert server.capabilities(REVISIONS[STATELESS])["extensions"] == {IDENTIFIER: {}}


@pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])
async def test_a_method_takes_checked_params_and_returns_a_body(version: str) -> None:
    client = AuditClient(Audit(), version=version)

    found = await client.request("audit/list", {"limit": 1, "unknown": True})
    assert found["total"] == 7
    assert len(found["entries"]) == 1
    assert found.get("resultType") == ("complete" if version == STATELESS else None)

    with pytest.raises(InvalidParams, match="limit"):
        await client.request("audit/list", {"limit": "many"})


async def test_a_client_that_did_not_declare_the_extension_is_refused_before_its_params_are_read() -> None:
    with pytest.raises(MissingClientCapability) as refused:
        await AuditClient(Audit(), capabilities={}).request("audit/list", {"limit": "many"})
    assert refused.value.data == {"requiredCapabilities": DECLARED}

    with pytest.raises(MethodNotFound, match="was not declared"):
        await AuditClient(Audit(), capabilities={}, version=HANDSHAKE).request("audit/list")

    open_to_all = await AuditClient(Audit(), capabilities={}).request("audit/ping")
    assert open_to_all["resultType"] == "complete"


async def test_a_method_is_unknown_to_callers_without_permission() -> None:
    with pytest.raises(MethodNotFound):
        await AuditClient(Audit()).request("audit/secret")
    assert await AuditClient(Audit(), "shop.view_order").request("audit/secret")


async def test_the_text_of_a_bug_is_not_sent() -> None:
    with pytest.raises(InternalError) as failed:
        await AuditClient(Audit()).request("audit/broken")
    assert "swordfish" not in failed.value.message


async def test_methods_outside_of_extensions_are_unknown() -> None:
    with pytest.raises(MethodNotFound):
        await AuditClient(Audit()).request("audit/unknown")
    with pytest.raises(MethodNotFound):
        await PipelineClient(make_server(), capabilities=DECLARED).request("audit/list")


@pytest.mark.parametrize("version", [STATELESS, HANDSHAKE])
async def test_notifications_reach_the_extension_and_invalid_ones_are_ignored(version: str) -> None:
    audit = Audit()
    client = AuditClient(audit, version=version)

    await client.notify("notifications/audit/seen", {"entryId": "1"})
    await client.notify("notifications/audit/seen", {"entryId": 2})
    await client.notify("notifications/audit/unknown", {})

    assert audit.seen == ["1"]


async def test_methods_and_tools_return_results_of_its_types() -> None:
    client = AuditClient(Audit())
    from_method, from_tool = await client.request("audit/receipt"), await client.call("buy")

    assert [from_method["resultType"], from_method["number"]] == ["receipt", 1]
    assert [from_tool["resultType"], from_tool["number"]] == ["receipt", 2]
    assert meta.SERVER_INFO in from_tool["_meta"]

    assert await AuditClient(Audit(), version=HANDSHAKE).call("buy") == {"number": 2}


async def test_a_result_type_needs_the_declaration_of_the_client() -> None:
    with pytest.raises(MissingClientCapability):
        await AuditClient(Audit(), capabilities={}).call("buy")
    assert "Internal error" in await AuditClient(Notes()).error("buy"), "no extension has the type, which is a bug"


async def test_the_name_header_repeats_the_parameter_if_it_is_sent() -> None:
    client = ListenClient(headers=Headers([]))
    client.server.extensions = ExtensionRegistry([Audit()])

    def read(name: bytes | None, entry: str = "7") -> Any:
        pairs = [(b"mcp-protocol-version", STATELESS.encode()), (b"mcp-method", b"audit/read")]
        client.connection.message_headers = Headers([*pairs, *([] if name is None else [(b"mcp-name", name)])])
        return client.send("audit/read", {"entryId": entry}, 1, capabilities=DECLARED)

    for accepted in (b"7", None, b"=?base64?Nw==?="):
        work = read(accepted)
        assert isinstance(work, PendingResponse)
        assert b'"entryId":"7"' in await work.run
    with pytest.raises(HeaderMismatch, match=r"params\.entryId"):
        read(b"8")


async def test_a_stream_sends_changes_of_the_keys_that_the_caller_may_follow() -> None:
    client, notes = ListenClient(), Notes()
    client.server.extensions = ExtensionRegistry([notes])
    stream = await client.listen(capabilities=DECLARED, entryIds=["1", "2", "foreign"])
    (acknowledged,) = await taken(stream) or []
    assert acknowledged["params"]["notifications"] == {"entryIds": ["1", "2"]}

    notes.states = {"1": "read"}
    for key in ("1", "1", "2", "foreign"):
        client.log.deliver("extension", field="entryIds", key=key)

    (changed,) = await taken(stream) or []
    assert changed["method"] == "notifications/audit"
    assert changed["params"] == {"_meta": {meta.SUBSCRIPTION_ID: 1}, "entryId": "1", "state": "read"}


async def test_a_stream_of_keys_needs_the_declaration_and_strings() -> None:
    client = ListenClient()
    client.server.extensions = ExtensionRegistry([Notes()])
    with pytest.raises(MissingClientCapability):
        await client.listen(entryIds=["1"])
    with pytest.raises(InvalidParams, match="entryIds must be an array of strings"):
        await client.listen(capabilities=DECLARED, entryIds=[1])
    assert client.log.open == []


def declare(decorate: Any = None, run: Any = None, **members: Any) -> type[Extension]:
    """An extension with one decorated method."""

    async def run_nothing(self: Any) -> dict[str, Any]:
        return {}

    marked = {} if decorate is None else {"run": decorate(run or run_nothing)}
    return type("Declared", (Extension,), {"identifier": IDENTIFIER, **marked, **members})


async def run_scalar(self: Any) -> int:
    return 1


async def read_two(self: Any, key: str, other: str) -> None: ...


WRONG = {
    "an identifier without a prefix": (declare(identifier="audit"), "must be a name with a prefix"),
    "a method of the protocol": (declare(method("tools/list")), "the protocol itself defines"),
    "a method that is a notification": (declare(method("notifications/x")), "is not a name of a method"),
    "a notification that is a method": (declare(notification("a/b")), "is not a name of a notification"),
    "a result that is no object": (declare(method("a/b"), run_scalar), "is a JSON object"),
    "an unknown name parameter": (declare(method("a/b", name_param="id")), "is not a parameter"),
    "a reader of two parameters": (
        declare(subscription("ids", notification="notifications/a"), read_two),
        "`key: str`",
    ),
    "an unknown option": (declare(method("a/b", permision="x")), "did you mean 'permission'"),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_declarations_are_refused(wrong: str) -> None:
    kind, text = WRONG[wrong]
    with pytest.raises(DeclarationError, match=text):
        Server("tests", extensions=[kind()])


def test_servers_share_the_compiled_parameters_of_an_extension() -> None:
    first, second = ([h for h in build_handlers(Audit()) if isinstance(h, ExtensionMethod)] for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert one.parameters is other.parameters
        assert one.output is other.output
        assert one.extension is not other.extension


def test_two_extensions_share_neither_an_identifier_nor_a_method() -> None:
    with pytest.raises(DeclarationError, match="two extensions"):
        Server("tests", extensions=[Audit(), Notes()])
    other = declare(method("audit/list"), identifier="com.example/other")
    with pytest.raises(DeclarationError, match="is already a method of"):
        Server("tests", extensions=[Audit(), other()])


class Shortcut(Extension):
    """An extension that answers the calls of some tools itself, and passes others on with a mark."""

    identifier = IDENTIFIER
    result_types = frozenset({"receipt"})

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def intercepts(self, tool: Any) -> bool:
        return bool(tool.task)

    async def call_tool(self, call: Any, tool: Any, arguments: Any, proceed: Any) -> Any:
        self.seen.append(arguments)
        if tool.task.required:
            return ExtensionResult("receipt", number=3)
        return {**await proceed(call), "_meta": {"com.example/seen": len(self.seen)}}

    def get_tool_fields(self, tool: Any, revision: Any) -> dict[str, Any]:
        return {"execution": {"taskSupport": "optional"}} if tool.task and revision.core_tasks else {}

    @method("shortcut/old", eras=[Era.HANDSHAKE], requires_declaration=False)
    async def old(self) -> dict[str, Any]:
        return {"old": True}


def make_shortcut_client(version: str = STATELESS) -> tuple[Shortcut, PipelineClient]:
    extension = Shortcut()
    server = make_server(extensions=[extension])

    @server.tool(task=True)
    async def survey(days: int = 1) -> str:
        """Survey."""
        return f"{days} days"

    @server.tool(task=TaskOptions(required=True))
    async def export() -> str:
        """Export."""
        return "never"

    @server.tool
    async def greet() -> str:
        """Greet."""
        return "hello"

    return extension, PipelineClient(server, version=version, capabilities=DECLARED)


async def test_an_extension_intercepts_the_calls_of_the_tools_that_it_selects() -> None:
    extension, client = make_shortcut_client()

    passed = await client.call("survey", days=2)
    assert passed["content"] == [{"type": "text", "text": "2 days"}]
    assert passed["_meta"]["com.example/seen"] == 1
    answered = await client.call("export")
    assert (answered["resultType"], answered["number"]) == ("receipt", 3)
    assert "com.example/seen" not in (await client.call("greet"))["_meta"]
    assert extension.seen == [{"days": 2}, {}]


async def test_an_extension_does_not_see_calls_with_invalid_arguments() -> None:
    extension, client = make_shortcut_client()
    assert "days" in await client.error("survey", days="many")
    assert extension.seen == []


async def test_an_answer_of_an_interceptor_needs_the_declaration() -> None:
    _, client = make_shortcut_client()
    client.capabilities = {}
    with pytest.raises(MissingClientCapability):
        await client.call("export")


async def test_an_extension_adds_members_to_entries_of_tools_by_revision() -> None:
    for version, expected in ((HANDSHAKE, {"taskSupport": "optional"}), (STATELESS, None)):
        _, client = make_shortcut_client(version)
        entries = {entry["name"]: entry for entry in (await client.request("tools/list"))["tools"]}
        assert entries["survey"].get("execution") == expected
        assert "execution" not in entries["greet"]


async def test_a_method_may_exist_in_one_era_only() -> None:
    _, client = make_shortcut_client(HANDSHAKE)
    assert await client.request("shortcut/old") == {"old": True}
    _, client = make_shortcut_client()
    with pytest.raises(MethodNotFound):
        await client.request("shortcut/old")


@pytest.mark.parametrize("task", ["optional", 3, TaskOptions(ttl=0), TaskOptions(retry=-1), TaskOptions(queue="")])
def test_wrong_options_of_tasks_are_refused(task: Any) -> None:
    server = make_server()
    with pytest.raises(DeclarationError, match=r"[tT]ask"):

        @server.tool(task=task)
        async def survey() -> None:
            """Survey."""
