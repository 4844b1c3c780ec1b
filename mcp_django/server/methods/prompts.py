"""The methods `prompts/list` and `prompts/get` (server/prompts)."""

from typing import cast

from mcp_django.protocol.errors import InvalidParams
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.schema import ArgumentError
from mcp_django.server.calls.call import Call
from mcp_django.server.composition.mounting import run_mounted
from mcp_django.server.composition.provider import find_provided, get_providers
from mcp_django.server.context.context import Context
from mcp_django.server.context.conversation import InputRequired
from mcp_django.server.execution.invoke import run_primitive, run_provider
from mcp_django.server.execution.permissions import check_permission
from mcp_django.server.primitives.base import Primitive, Prompt
from mcp_django.server.primitives.results import build_prompt_result


async def get_prompt(call: Call) -> JSONObject:
    """Run a prompt. Its arguments are strings, converted to the annotated types."""
    name, arguments = call.params.get("name"), call.params.get("arguments", {})
    if type(name) is not str:
        raise InvalidParams("params.name must be a string")
    if type(arguments) is not dict or not all(type(value) is str for value in arguments.values()):
        raise InvalidParams("params.arguments must be an object of strings")

    unknown = InvalidParams(f"Unknown prompt: {name[:128]}")
    prompt = await find_prompt(call, name)
    if prompt is None:
        raise unknown
    await check_permission(call, prompt, unknown)
    call.record.target = prompt.name
    return await run_mounted(call, prompt, _run_prompt)


async def _run_prompt(call: Call, primitive: Primitive) -> JSONObject:
    prompt = cast(Prompt, primitive)
    try:
        values = prompt.parameters.convert(call.params.get("arguments", {}))
    except ArgumentError as problem:
        raise InvalidParams(str(problem)) from None
    value = await run_primitive(call, prompt, values)
    return (
        value if type(value) is InputRequired else call.revision.shape_prompt_result(build_prompt_result(prompt, value))
    )


async def find_prompt(call: Call, name: str) -> Prompt | None:
    """Find a registered or provided prompt by name."""
    prompt = call.server.registry.prompts.get(name)
    if prompt is not None:
        return prompt
    context, providers = Context(call), get_providers(call, "prompts")
    if not providers:
        return None
    return await run_provider(
        context, lambda: find_provided(call, providers, lambda provider: provider.prompt(name, context))
    )
