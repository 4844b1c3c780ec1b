"""Tools that ask: forms, samples, roots; one after the other and several at once."""

import asyncio
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, Field

from mcp_django import Context, tool
from mcp_django.types import TaskOptions


@dataclass
class NameForm:
    """Asked where one name is wanted."""

    name: str


@dataclass
class ColorForm:
    """Asked in the second of two rounds."""

    color: str


@dataclass
class ContextForm:
    """Asked by a prompt."""

    context: str


@dataclass
class Confirmation:
    """Asked before something happens."""

    ok: bool


@dataclass
class Deletion:
    """Asked before a file is deleted."""

    confirm: bool


class Contact(BaseModel):
    """What `test_elicitation` asks for."""

    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


class Defaults(BaseModel):
    """A default value of every primitive type."""

    name: str = Field("John Doe", description="User name")
    age: int = Field(30, description="User age")
    score: float = Field(95.5, description="User score")
    status: Literal["active", "inactive", "pending"] = Field("active", description="User status")
    verified: bool = Field(True, description="Verification status")


def _titled(**titles: str) -> list[dict[str, str]]:
    return [{"const": const, "title": title} for const, title in titles.items()]


ENUMS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {
            "type": "string",
            "oneOf": _titled(value1="First Option", value2="Second Option", value3="Third Option"),
        },
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2", "option3"]}},
        "titledMulti": {
            "type": "array",
            "items": {"anyOf": _titled(value1="First Choice", value2="Second Choice", value3="Third Choice")},
        },
    },
}
"""All five ways to write a choice (client/elicitation, 2025-11-25)."""


@tool()
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Ask the client's model.

    Args:
        prompt: What to send to it.
    """
    return f"LLM response: {(await ctx.sample(prompt, max_tokens=100)).text}"


@tool()
async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the user for a name and an address.

    Args:
        message: The message to show.
    """
    answer = await ctx.elicit(message, Contact)
    return f"User response: action={answer.action}, content={_shown(answer.data)}"


@tool()
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask with a default value of every primitive type."""
    answer = await ctx.elicit("Please review and update the form fields with defaults", Defaults)
    return f"Elicitation completed: action={answer.action}, content={_shown(answer.data)}"


@tool()
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask with all kinds of choices."""
    answer = await ctx.elicit("Please select options from the enum fields", ENUMS)
    return f"Elicitation completed: action={answer.action}, content={answer.data}"


def _shown(data: BaseModel | None) -> str:
    return "{}" if data is None else data.model_dump_json()


@tool()
async def test_missing_capability(ctx: Context) -> str:
    """Need the client's model, whether or not the client has one."""
    await ctx.sample("Is anybody there?", max_tokens=10)
    return "Success"


@tool()
async def test_streaming_elicitation(ctx: Context) -> str:
    """Report progress, then ask."""
    await ctx.report_progress(50, 100)
    answer = await ctx.elicit("What is your name?", NameForm, key="user_name")
    return f"Streaming complete: {answer.action}"


@tool()
async def test_input_required_result_elicitation(ctx: Context) -> str:
    """Ask for a name."""
    answer = await ctx.elicit("What is your name?", NameForm, key="user_name")
    return f"Hello, {answer.data.name}!" if answer else "Hello!"


@tool()
async def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask the client's model for a capital."""
    sample = await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")
    return f"Sampling result: {sample.text}"


@tool()
async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Ask where the client works."""
    roots = await ctx.list_roots(key="client_roots")
    return f"Found {len(roots)} root(s): {', '.join(root.uri for root in roots)}"


@tool()
async def test_input_required_result_request_state(ctx: Context) -> str:
    """Ask, with a state that the client brings back."""
    answer = await ctx.elicit("Please confirm", Confirmation, key="confirm")
    return f"state-ok: {answer.action}"


@tool()
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask the user, the model and the client in one round."""
    name, greeting, roots = await ctx.gather(
        ctx.elicit("What is your name?", NameForm, key="user_name"),
        ctx.sample("Generate a greeting", max_tokens=50, key="greeting"),
        ctx.list_roots(key="client_roots"),
    )
    return f"Name: {name.data.name if name else 'unknown'}; Greeting: {greeting.text}; Roots: {len(roots)}"


@tool()
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask twice, one round after the other."""
    name = await ctx.elicit("Step 1: What is your name?", NameForm, key="step1")
    color = await ctx.elicit("Step 2: What is your favorite color?", ColorForm, key="step2")
    who, what = (name.data.name if name else "friend"), (color.data.color if color else "none")
    return f"Multi-round complete for {who} who likes {what}"


@tool()
async def test_input_required_result_tampered_state(ctx: Context) -> str:
    """Ask, with a state that nobody may change."""
    answer = await ctx.elicit("Please confirm", Confirmation, key="confirm")
    return f"integrity-ok: {answer.action}"


@tool()
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask only what the client declared it can answer."""
    asked: list[Any] = []
    if ctx.supports("elicitation"):
        asked.append(ctx.elicit("Elicitation input", str, key="elicit_input"))
    if ctx.supports("sampling"):
        asked.append(ctx.sample("Sample request", max_tokens=50, key="sample_input"))
    answers = await ctx.gather(*asked)
    return f"capabilities-ok: received {len(answers)}"


@tool(task=TaskOptions(grace=0))
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Ask before a file would be deleted.

    Args:
        filename: The file in question; none is touched.
    """
    answer = await ctx.elicit(f"Delete {filename}?", Deletion, key="confirm")
    return f"Deleted {filename}" if answer and answer.data.confirm else f"Kept {filename}"


@tool(task=TaskOptions(grace=0))
async def multi_input(ctx: Context) -> str:
    """Ask two questions at once."""
    answers = await ctx.gather(
        ctx.elicit("First name?", NameForm, key="first"), ctx.elicit("Second name?", NameForm, key="second")
    )
    return "Names: " + ", ".join(answer.data.name if answer else "none" for answer in answers)


@tool(task=TaskOptions(grace=1))
async def test_tool_with_task(ctx: Context) -> str:
    """Ask for a name, then work for longer than the grace."""
    answer = await ctx.elicit("What is your name?", NameForm, key="user_name")
    await asyncio.sleep(2)
    return f"Task done for {answer.data.name if answer else 'nobody'}"
