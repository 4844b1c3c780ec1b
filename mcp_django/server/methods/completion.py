"""The method `completion/complete` (server/utilities/completion)."""

from typing import Any, NamedTuple
from urllib.parse import unquote

from mcp_django.protocol.errors import InvalidParams
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.server.calls.call import Call
from mcp_django.server.composition.mounting import run_mounted
from mcp_django.server.composition.provider import find_provided, get_providers, list_provided
from mcp_django.server.context.context import Context
from mcp_django.server.execution.invoke import run_primitive, run_provider
from mcp_django.server.execution.permissions import check_permission
from mcp_django.server.methods.prompts import find_prompt
from mcp_django.server.primitives.base import Primitive
from mcp_django.server.primitives.results import build_completion_result


class CompletionRequest(NamedTuple):
    """A parsed completion request."""

    target: str
    argument: str
    value: str
    arguments: dict[str, str]
    is_prompt: bool


async def complete(call: Call) -> JSONObject:
    """Complete an argument with its completer, else with a provider.

    Without either the result has no values.
    """
    request = _parse_request(call.params)
    unknown = InvalidParams(f"Unknown {'prompt' if request.is_prompt else 'resource template'}: {request.target[:128]}")
    primitive = await _find_target(call, request)

    if primitive is None:
        provided = await _complete_by_provider(call, None, request)
        if provided is None:
            raise unknown
        return provided

    await check_permission(call, primitive, unknown)
    return await run_mounted(call, primitive, _run_completion)


async def _run_completion(call: Call, primitive: Primitive) -> JSONObject:
    request = _parse_request(call.params)
    completer = call.server.registry.completers.get((primitive.key, request.argument))
    if completer is None:
        return await _complete_by_provider(call, primitive, request) or build_completion_result(())

    values: dict[str, Any] = {completer.value: request.value}
    if completer.takes_arguments:
        values["arguments"] = request.arguments
    return build_completion_result(await run_primitive(call, primitive, values, handler=completer.handler))


async def _complete_by_provider(
    call: Call, primitive: Primitive | None, request: CompletionRequest
) -> JSONObject | None:
    """Return the first completion that a provider returns, or None."""
    context, providers = Context(call, primitive), get_providers(call, "completions")
    if not providers:
        return None
    asked = request.target, request.argument, request.value, request.arguments
    completion = await run_provider(
        context, lambda: find_provided(call, providers, lambda provider: provider.complete(*asked, context))
    )
    return None if completion is None else build_completion_result(completion)


def _parse_request(params: JSONObject) -> CompletionRequest:
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
    if not is_prompt:  # clients read the names of variables in the template, where they are encoded
        arguments = {unquote(name): value for name, value in arguments.items()}
    name = argument["name"] if is_prompt else unquote(argument["name"])
    return CompletionRequest(target, name, argument["value"], arguments, is_prompt)


async def _find_target(call: Call, request: CompletionRequest) -> Primitive | None:
    """Find the prompt or template by name, by template text, or by a matching URI."""
    if request.is_prompt:
        return await find_prompt(call, request.target)

    registry = call.server.registry
    named = registry.templates.get(request.target) or registry.resources.get(request.target)
    if named is not None:
        return named
    matched = registry.match(request.target)
    if matched is not None:
        return matched[0]

    context = Context(call)
    for provider in get_providers(call, "resources"):
        for template in await list_provided(call, provider, "templates", context):
            if template.key == request.target:
                return template
    return None
