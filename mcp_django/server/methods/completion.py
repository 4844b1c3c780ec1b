"""The method `completion/complete` (server/utilities/completion)."""

from typing import Any, NamedTuple

from mcp_django.protocol.errors import InvalidParams
from mcp_django.server.calls.call import Call
from mcp_django.server.composition.mounting import served
from mcp_django.server.context.context import Context
from mcp_django.server.execution.invoke import run_primitive
from mcp_django.server.execution.permissions import permit
from mcp_django.server.methods.prompts import find_prompt
from mcp_django.server.primitives.base import Completer, Primitive
from mcp_django.server.primitives.results import completion_result


class Asked(NamedTuple):
    """A parsed completion request."""

    target: str
    argument: str
    value: str
    arguments: dict[str, str]
    is_prompt: bool


async def complete(call: Call) -> dict[str, Any]:
    """Complete an argument with its completer, else with a provider.

    Without either the result has no values.
    """
    asked = _read(call.params)
    unknown = InvalidParams(f"Unknown {'prompt' if asked.is_prompt else 'resource template'}: {asked.target[:128]}")
    primitive = await _target(call, asked)

    if primitive is None:
        found = await _provided(call, None, asked)
        if found is None:
            raise unknown
        return found

    await permit(call, primitive, unknown)
    return await served(call, primitive, _complete)


async def _complete(call: Call, primitive: Primitive) -> dict[str, Any]:
    asked = _read(call.params)
    completer = call.server.registry.completers.get((primitive.key, asked.argument))
    if completer is not None:
        return completion_result(await _run(call, primitive, completer, asked))
    return await _provided(call, primitive, asked) or completion_result(())


async def _provided(call: Call, primitive: Primitive | None, asked: Asked) -> dict[str, Any] | None:
    """Return the first completion that a provider returns, or None."""
    context = Context(call, primitive)
    for provider in call.server.providers:
        if "completions" in provider.offers:
            found = await provider.complete(asked.target, asked.argument, asked.value, asked.arguments, context)
            if found is not None:
                return completion_result(found)
    return None


def _read(params: dict[str, Any]) -> Asked:
    ref, argument, context = params.get("ref"), params.get("argument"), params.get("context", {})
    if type(ref) is not dict or ref.get("type") not in ("ref/prompt", "ref/resource"):
        raise InvalidParams("params.ref must be an object of type ref/prompt or ref/resource")

    is_prompt = ref["type"] == "ref/prompt"
    target = ref.get("name" if is_prompt else "uri")
    if type(target) is not str:
        raise InvalidParams(f"params.ref.{'name' if is_prompt else 'uri'} must be a string")

    if type(argument) is not dict or type(argument.get("name")) is not str or type(argument.get("value")) is not str:
        raise InvalidParams("params.argument must be an object with a name and a value, both strings")

    arguments = context.get("arguments", {}) if type(context) is dict else None
    if type(arguments) is not dict or not all(type(value) is str for value in arguments.values()):
        raise InvalidParams("params.context.arguments must be an object of strings")
    return Asked(target, argument["name"], argument["value"], arguments, is_prompt)


async def _target(call: Call, asked: Asked) -> Primitive | None:
    """Find the prompt or template by name, by template text, or by a matching URI."""
    if asked.is_prompt:
        return await find_prompt(call, asked.target)

    registry = call.server.registry
    named = registry.templates.get(asked.target) or registry.resources.get(asked.target)
    if named is not None:
        return named
    found = registry.match(asked.target)
    if found is not None:
        return found[0]

    context = Context(call)
    for provider in call.server.providers:
        if "resources" in provider.offers:
            for template in await provider.templates(context):
                if template.key == asked.target:
                    return template
    return None


async def _run(call: Call, primitive: Primitive, completer: Completer, asked: Asked) -> Any:
    values: dict[str, Any] = {completer.value: asked.value}
    if completer.takes_arguments:
        values["arguments"] = asked.arguments
    return await run_primitive(call, primitive, values, handler=completer.handler)
