"""Prompts and a completion."""

from mcp_django import Context, completion, prompt
from mcp_django.protocol.content import (
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    TextResourceContents,
    user,
)
from tests.conformance.mcp_tools.media import PNG
from tests.conformance.mcp_tools.questions import ContextForm


@prompt(title="Simple Test Prompt")
def test_simple_prompt() -> str:
    """A simple prompt without arguments."""
    return "This is a simple prompt for testing."


@prompt(title="Prompt With Arguments")
def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt with required arguments.

    Args:
        arg1: First test argument.
        arg2: Second test argument.
    """
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@completion("test_prompt_with_arguments", "arg1")
def complete_arg1(value: str) -> list[str]:
    """Values that begin as the user began."""
    return [word for word in ("test", "testing", "hello", "world") if word.startswith(value)]


@prompt(title="Prompt With Embedded Resource")
def test_prompt_with_embedded_resource(resourceUri: str) -> list[PromptMessage]:  # noqa: N803
    """A prompt that includes an embedded resource.

    Args:
        resourceUri: URI of the resource to embed.
    """
    contents = TextResourceContents("Embedded resource content for testing.", uri=resourceUri, mime_type="text/plain")
    return [user(EmbeddedResource(contents)), user("Please process the embedded resource above.")]


@prompt(title="Prompt With Image")
def test_prompt_with_image() -> list[PromptMessage]:
    """A prompt that includes an image."""
    return [user(ImageContent(PNG, "image/png")), user("Please analyze the image above.")]


@prompt()
async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks for its context."""
    answer = await ctx.elicit("What context should the prompt use?", ContextForm, key="user_context")
    return f"Prompt with context: {answer.data.context if answer else 'none'}"
