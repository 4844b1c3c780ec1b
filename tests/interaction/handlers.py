"""Handlers of the interaction tests, each written once for clients of all revisions."""

import functools
import logging
from typing import Annotated, Any, TypedDict

from pydantic import Field

import mcp_django
from mcp_django import Context, ToolError, ToolResult
from mcp_django.protocol.content import (
    Annotations,
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    ResourceLink,
    TextContent,
    TextResourceContents,
    assistant,
    user,
)
from mcp_django.protocol.types import Icon, ToolAnnotations
from tests.interaction.checkpoints import CHECKPOINTS

SERVER = "interaction"
tool = functools.partial(mcp_django.tool, server=SERVER)
resource = functools.partial(mcp_django.resource, server=SERVER)
prompt = functools.partial(mcp_django.prompt, server=SERVER)
completion = functools.partial(mcp_django.completion, server=SERVER)

ICON = Icon("https://example.com/icon.png", mime_type="image/png", sizes=["48x48"], theme="light")
NOTED = Annotations(audience=["user"], priority=0.5, last_modified="2026-01-02T03:04:05Z")
PNG, WAV = b"\x89PNG\r\n", b"RIFF"


@tool()
async def add(a: int, b: int) -> int:
    """Add two integers.

    Args:
        a: The first.
        b: The second.
    """
    CHECKPOINTS.note("add")
    return a + b


@tool()
def add_in_a_thread(a: int, b: int) -> int:
    """Add two integers, in a plain function."""
    return a + b


@tool()
async def nothing() -> None:
    """Take nothing and return nothing."""


class Summary(TypedDict):
    """The structured content of `rich`."""

    count: int
    ratio: float


@tool(
    title="Everything",
    icons=[ICON],
    tags=["demo"],
    meta={"example.com/colour": "blue"},
    annotations=ToolAnnotations(title="All of it", read_only=True, idempotent=True, open_world=False),
    output_schema=Summary,
)
async def rich() -> ToolResult:
    """Return every kind of content there is."""
    return ToolResult(
        content=[
            TextContent("a text", annotations=NOTED, meta={"example.com/n": 1}),
            ImageContent(PNG, "image/png"),
            AudioContent(WAV, "audio/wav"),
            ResourceLink(
                "note://static", "static", title="Static", description="A note", mime_type="text/plain", icons=[ICON]
            ),
            EmbeddedResource(TextResourceContents("inside", uri="note://inside", mime_type="text/plain")),
        ],
        structured={"count": 5, "ratio": 0.5},
        meta={"example.com/result": True},
    )


@tool()
async def listing() -> list[int]:
    """Return a list, where an object is expected."""
    return [1, 2, 3]


@tool()
async def steps(count: int, ctx: Context) -> str:
    """Report progress, step by step."""
    for step in range(1, count + 1):
        await ctx.report_progress(step, count, f"step {step}")
    return "done"


@tool()
async def backwards(ctx: Context) -> str:
    """Report progress that does not increase."""
    for value in (1, 3, 2, 3, 4):
        await ctx.report_progress(value)
    return "done"


@tool()
async def chatter(ctx: Context) -> str:
    """Log at four levels."""
    await ctx.debug("fine detail")
    await ctx.info({"what": "an object"}, logger="chatter")
    await ctx.warning("careful")
    await ctx.error("broken")
    return "said"


@tool()
async def flood(ctx: Context) -> str:
    """Log a thousand lines, faster than anybody reads."""
    try:
        for number in range(1000):
            await ctx.error(number)
            CHECKPOINTS.note("flood")
    finally:
        CHECKPOINTS.note("flood over")
    return "done"


@tool()
def plain_flood(ctx: Context) -> str:
    """The same from a thread."""
    try:
        for number in range(1000):
            ctx.sync.error(number)
    finally:
        CHECKPOINTS.note("flood over")
    return "done"


@tool()
def log_records() -> str:
    """Log as Django code does, from a thread, without a context."""
    logger = logging.getLogger("tests.interaction.shop")
    logger.info("packing, password=%s", "hunter2")
    logger.warning("packed")
    return "done"


@tool()
async def wait() -> str:
    """Wait at a gate."""
    await CHECKPOINTS.wait_at("wait")
    return "waited"


@tool()
async def speak_then_wait(ctx: Context) -> str:
    """Log a message, then wait at a gate."""
    await ctx.report_progress(1)
    await CHECKPOINTS.wait_at("wait")
    return "waited"


@tool(timeout=0.05)
async def too_slow() -> str:
    """Take longer than its timeout."""
    await CHECKPOINTS.wait_at("never")
    return "unreachable"


@tool()
async def refuse() -> str:
    """Fail with an error for the model."""
    raise ToolError("No seats left; try another day")


@tool()
async def buggy() -> str:
    """Fail with a bug."""
    raise RuntimeError("the password is swordfish")


@tool()
async def whoami(ctx: Context) -> dict[str, Any]:
    """Return the attributes of the context."""
    return {
        "user": None if ctx.user is None else ctx.user.username,
        "principal": ctx.principal.key,
        "tool": ctx.tool_name,
        "call": ctx.call_id,
        "client": ctx.client_info.get("name"),
        "url": ctx.supports("elicitation.url"),
        "form": ctx.supports("elicitation.form"),
        "session": ctx.session is not None,
        "path": ctx.request and ctx.request.path,
        "agent": ctx.headers.get("user-agent"),
        "authorization": ctx.headers.get("authorization"),
    }


@tool()
async def remember(ctx: Context) -> int:
    """Count the calls of one session."""
    ctx.state["calls"] = ctx.state.get("calls", 0) + 1
    count: int = ctx.state["calls"]
    return count


def _mirrored(name: str) -> Any:
    return Field(json_schema_extra={"x-mcp-header": name})


@tool()
async def routed(
    region: Annotated[str | None, _mirrored("Region")] = None,
    shard: Annotated[int | None, _mirrored("Shard")] = None,
    urgent: Annotated[bool | None, _mirrored("Urgent")] = None,
) -> str:
    """Take arguments that clients mirror into headers."""
    return f"{region} {shard} {urgent}"


@resource(
    "note://static",
    name="static",
    title="A note",
    mime_type="text/plain",
    size=9,
    icons=[ICON],
    annotations=NOTED,
    meta={"example.com/shelf": 3},
)
async def static_note() -> str:
    """A note that never changes."""
    return "Hello you"


@resource("note://picture", name="picture", mime_type="image/png")
async def picture() -> bytes:
    """A note in bytes."""
    return PNG


@resource("note://both", name="both")
async def both_contents() -> list[TextResourceContents | BlobResourceContents]:
    """A note in two parts."""
    return [
        TextResourceContents("one", uri="note://both/1", mime_type="text/plain", meta={"example.com/part": 1}),
        BlobResourceContents(b"two", uri="note://both/2", mime_type="application/octet-stream"),
    ]


@resource("note://buggy", name="buggy")
async def buggy_note() -> str:
    """A note that cannot be read."""
    raise RuntimeError("the password is swordfish")


@resource("note://by/{author}", name="by", title="Notes by", mime_type="application/json")
async def by_author(author: str) -> dict[str, str]:
    """The notes of an author."""
    return {"author": author}


@resource("note://numbered/{number}", name="numbered")
async def numbered(number: int) -> str:
    """A note by its number."""
    return f"note {number + 0}"


@completion("note://by/{author}", "author")
async def complete_author(value: str) -> list[str]:
    """Authors by the beginning of their names."""
    return [name for name in ("alice", "albert", "bob") if name.startswith(value)]


@prompt(title="A welcome", icons=[ICON], tags=["demo"], meta={"example.com/tone": "warm"})
async def welcome(name: str, tone: str = "warm") -> str:
    """Welcome a guest.

    Args:
        name: Whom.
        tone: How.
    """
    return f"Welcome {name}, {tone}ly"


@prompt()
async def scripted() -> list[PromptMessage]:
    """Messages of all kinds of content."""
    return [
        user("Look at this"),
        user(ImageContent(PNG, "image/png")),
        user(AudioContent(WAV, "audio/wav")),
        user(ResourceLink("note://static", "static")),
        assistant(EmbeddedResource(TextResourceContents("inside", uri="note://inside"))),
    ]


@completion("welcome", "tone")
async def complete_tone(value: str, ctx: Context, arguments: dict[str, str]) -> list[str]:
    """Tones, which depend on the guest."""
    if arguments.get("name") == "enemy":
        return ["cold"]
    return [tone for tone in ("warm", "wild", "weary") if tone.startswith(value)]


@completion("welcome", "name")
async def complete_name(value: str) -> list[str]:
    """More names than one answer may hold."""
    return [f"{value}{number}" for number in range(250)]


@tool(permission="auth.view_user")
async def guarded() -> str:
    """A tool with the permission to view users."""
    return "users"


@tool(scopes=["notes:write", "notes:read"])
async def scoped(region: Annotated[str | None, _mirrored("Region")] = None) -> str:
    """A tool that takes two scopes."""
    return "written"


@resource("note://guarded", name="guarded", permission="auth.view_user")
async def guarded_note() -> str:
    """A note with the permission to view users."""
    return "users"


@prompt(permission="auth.view_user")
async def guarded_prompt(name: str) -> str:
    """A prompt with the permission to view users."""
    return name


@completion("guarded_prompt", "name")
async def complete_guarded(value: str) -> list[str]:
    """Must not be asked by others."""
    return ["secret"]


@prompt(timeout=0.05)
async def slow_prompt() -> str:
    """Take longer than its timeout."""
    await CHECKPOINTS.wait_at("never")
    return "unreachable"


for _number in range(5):

    async def _numbered_tool() -> str:
        """One of several."""
        return "one of several"

    _numbered_tool.__name__ = f"tool_{_number}"
    mcp_django.tool(_numbered_tool, server="pages")
    mcp_django.resource(f"page://{_number}", server="pages")(_numbered_tool)
