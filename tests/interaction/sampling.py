"""Handlers that sample the client's model."""

from dataclasses import dataclass

from mcp_django import Context
from mcp_django.types import AudioContent, ImageContent, SamplingMessage
from tests.interaction.checkpoints import CHECKPOINTS
from tests.interaction.handlers import tool

PNG = b"\x89PNG\r\n\x1a\n"


@dataclass
class Verdict:
    """A verdict of the model."""

    good: bool
    why: str = ""


def count(word: str) -> dict[str, int]:
    """Count the letters of a word."""
    CHECKPOINTS.note("count")
    return {"letters": len(word)}


@tool()
async def sample_with_tools(ctx: Context) -> str:
    """Let the client's model use a function and a tool of the server's."""
    reply = await ctx.sample("How long is it?", tools=[count, "add"], tool_choice="auto", max_iterations=2)
    return f"{reply.text} after {len(reply.messages)} messages"


@tool()
async def sample_media(ctx: Context) -> str:
    """Show the client's model a picture, with a word in front."""
    picture = ImageContent(PNG, "image/png")
    return (await ctx.sample(SamplingMessage("user", ["What is this?", picture], meta={"com.example/a": 1}))).text


@tool()
async def sample_sound(ctx: Context) -> str:
    """Let the client's model listen."""
    return (await ctx.sample(SamplingMessage("user", AudioContent(b"RIFF", "audio/wav")))).text


@tool()
async def sample_verdict(ctx: Context) -> Verdict:
    """Ask for a value."""
    return (await ctx.sample("Is it good?", result_type=Verdict, include_context="thisServer")).result
