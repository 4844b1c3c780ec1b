"""Size limit of results and errors: of tools, resources and prompts."""

from typing import Final

from mcp_django.protocol.display_text import truncate
from mcp_django.protocol.errors import InternalError
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.server.calls.call import Call
from mcp_django.server.execution.failures import RESOURCES_READ, TOOLS_CALL
from mcp_django.server.primitives.results import build_tool_error

MAX_ERROR_CHARACTERS: Final = 1000
"""Maximum characters of the message of an error that is too large."""
LIMITED_METHODS: Final = frozenset({TOOLS_CALL, RESOURCES_READ, "prompts/get"})
"""Methods whose results come from handlers. Lists have pages."""
PAGING_ARGUMENTS: Final = ("limit", "page_size", "offset", "cursor", "page")
"""Arguments by which tools are asked for a smaller part, in the order of a hint."""


def is_too_large(call: Call, answer: bytes) -> bool:
    """Return True if an encoded answer exceeds the limit of its tool or server."""
    return len(answer) > get_max_bytes(call) and call.method in LIMITED_METHODS


def build_size_error(call: Call, answer: bytes) -> JSONObject:
    """Return the result in place of a tool's answer that is too large.

    Raises InternalError for a resource or a prompt.
    """
    text = f"The result has {len(answer)} bytes, and at most {get_max_bytes(call)} are sent."
    if call.method != TOOLS_CALL:
        raise InternalError(text)
    return build_tool_error(f"{text} {_describe_remedy(call)}")


def shorten_message(message: str, size: int, limit: int) -> str:
    """Return the message of an error that is sent or stored without its data, because it is too large.

    `size` is its number of bytes.
    """
    text = truncate(message, MAX_ERROR_CHARACTERS)
    return f"{text} (shortened: the error has {size} bytes, at most {limit} are allowed)"


def get_max_bytes(call: Call) -> int:
    """Return the maximum size of the result of a call, as encoded JSON."""
    limit = call.record.max_result_bytes
    return call.server.options.result_bytes if limit is None else limit


def _describe_remedy(call: Call) -> str:
    """Name the arguments of the tool that select a page, if it has any."""
    tool = call.server.registry.tools.get(str(call.params.get("name")))
    declared = {} if tool is None else tool.parameters.schema.get("properties", {})
    names = [name for name in PAGING_ARGUMENTS if name in declared]
    return f"Request a smaller page, with {' and '.join(names)}." if names else "Request less data."
