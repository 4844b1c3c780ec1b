"""Tools that answer at once, or report progress."""

import asyncio
from typing import Annotated, Any, TypedDict

from pydantic import Field

from mcp_django import Context, ToolError, tool
from mcp_django.protocol.content import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    TextContent,
    TextResourceContents,
)
from tests.conformance.mcp_tools.media import PNG, WAV

STEP = 0.05
"""Seconds between two messages of one call, so that a client sees them arrive."""


@tool()
def add_numbers(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@tool()
def test_simple_text() -> str:
    """Return a plain text."""
    return "This is a simple text response for testing."


@tool()
def test_image_content() -> ImageContent:
    """Return an image."""
    return ImageContent(PNG, "image/png")


@tool()
def test_audio_content() -> AudioContent:
    """Return a sound."""
    return AudioContent(WAV, "audio/wav")


@tool()
def test_embedded_resource() -> EmbeddedResource:
    """Return an embedded resource."""
    return EmbeddedResource(
        TextResourceContents(
            "This is an embedded resource content.", uri="test://embedded-resource", mime_type="text/plain"
        )
    )


@tool()
def test_multiple_content_types() -> list[TextContent | ImageContent | EmbeddedResource]:
    """Return a text, an image and an embedded resource."""
    return [
        TextContent("Multiple content types test:"),
        ImageContent(PNG, "image/png"),
        EmbeddedResource(
            TextResourceContents(
                '{"test":"data","value":123}', uri="test://mixed-content-resource", mime_type="application/json"
            )
        ),
    ]


@tool()
async def test_tool_with_logging(ctx: Context) -> str:
    """Send three log messages while it runs."""
    await ctx.info("Tool execution started")
    await asyncio.sleep(STEP)
    await ctx.info("Tool processing data")
    await asyncio.sleep(STEP)
    await ctx.info("Tool execution completed")
    return "Tool with logging executed successfully"


@tool()
def test_error_handling() -> str:
    """Fail with an error for the model."""
    raise ToolError("This tool intentionally returns an error for testing")


@tool()
async def test_tool_with_progress(ctx: Context) -> str:
    """Report progress three times."""
    await ctx.report_progress(0, 100, "Completed step 0 of 100")
    await asyncio.sleep(STEP)
    await ctx.report_progress(50, 100, "Completed step 50 of 100")
    await asyncio.sleep(STEP)
    await ctx.report_progress(100, 100, "Completed step 100 of 100")
    return str(ctx.meta.get("progressToken", 0))


class Weather(TypedDict):
    """The weather of a place."""

    city: str
    temperature: float
    conditions: str


@tool()
def structured_weather(city: str) -> Weather:
    """Return structured content that matches an output schema."""
    return {"city": city, "temperature": 21.5, "conditions": "sunny"}


@tool()
def test_x_mcp_header(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Take a parameter that clients repeat in a header.

    Args:
        region: Where to route the request.
    """
    return f"Region: {region}"


@tool()
async def test_logging_tool(ctx: Context) -> str:
    """Log a message, which only a client that asked for it may see."""
    await ctx.info("Diagnostic trace logging activated")
    return "Logging evaluated"


@tool()
async def test_reconnection(ctx: Context) -> str:
    """Send the client away for a moment; it comes back for the answer, in the revisions that know how."""
    await ctx.info("Reconnection test started")
    await ctx.close_stream(retry=0.5)
    await asyncio.sleep(2 * STEP)
    return "Reconnection test completed successfully."


JSON_SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


@tool(input_schema=JSON_SCHEMA_2020_12)
def json_schema_2020_12_tool(**arguments: Any) -> str:
    """Take arguments of a hand-written schema that uses all of JSON Schema 2020-12."""
    return f"JSON Schema 2020-12 tool called with: {sorted(arguments)}"
