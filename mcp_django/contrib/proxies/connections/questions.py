"""Conversion of requests of a remote server to requests to the client of its call."""

from typing import Any, NamedTuple

from mcp_django.extensions.calls import REVISIONS, Revision, jsonrpc
from mcp_django.extensions.conversations import InputRequest, InvalidInputResponse
from mcp_django.protocol.display_text import is_visible
from mcp_django.protocol.meta import remove_own_keys, remove_own_keys_of_block
from mcp_django.protocol.sampling_types import blocks_of, check_tool_balance
from mcp_django.server.context.elicitation import ACTIONS, clean_form_schema, is_absolute_url
from mcp_django.types import clean_line

Wire = dict[str, Any]

ELICITATION, SAMPLING, ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"
CAPABILITIES_BY_METHOD = {ELICITATION: "elicitation", SAMPLING: "sampling", ROOTS: "roots"}
"""Supported request methods, with the client capability that each requires."""
MAX_REQUEST_BYTES = 256 * 1024
"""Maximum bytes of JSON in one request."""
MAX_FORM_PROPERTIES = 100
"""Maximum properties of one form."""
_SAMPLING_OPTIONS = ("systemPrompt", "temperature", "stopSequences", "modelPreferences", "metadata")


class RemoteInputRequest(NamedTuple):
    """Unchanged request of a remote server."""

    method: str
    params: Wire | None


class UnsupportedInputRequest(ValueError):
    """Request that cannot be forwarded.

    The text gives the reason and quotes no content.
    """


def build_input_request(remote_request: RemoteInputRequest, revision: str, key: str, proxy: str) -> InputRequest:
    """Return the request in the client's revision; `proxy` is the displayed name of the remote server.

    Raises UnsupportedInputRequest.
    """
    if len(jsonrpc.dumps(remote_request.params)) > MAX_REQUEST_BYTES:
        raise UnsupportedInputRequest("it is too large")
    client_revision = REVISIONS[revision]
    params = remote_request.params or {}
    if type(params) is not dict:
        raise UnsupportedInputRequest("its parameters are not an object")

    try:
        if remote_request.method == ELICITATION:
            return (
                _build_url_request(params, client_revision, key, proxy)
                if params.get("mode") == "url"
                else _build_form_request(params, client_revision, key, proxy)
            )
        if remote_request.method == SAMPLING:
            return _build_sampling_request(params, client_revision, key)
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise (
            problem if isinstance(problem, UnsupportedInputRequest) else UnsupportedInputRequest("it is malformed")
        ) from None

    if remote_request.method == ROOTS:
        return InputRequest(ROOTS, None, {"roots": {}}, _parse_roots, key)
    raise UnsupportedInputRequest("its method is unknown")


def build_message(proxy: str, message: str) -> str:
    """Return a question as one line that starts with the name of the remote server.

    The text of the remote server can then not imitate a question of this site or of another server.
    """
    return f"{proxy}: {clean_line(message)}"


def _build_form_request(params: Wire, revision: Revision, key: str, proxy: str) -> InputRequest:
    message, schema = params.get("message"), params.get("requestedSchema")
    properties = schema.get("properties") if type(schema) is dict else None
    if type(message) is not str or type(schema) is not dict or type(properties) is not dict:
        raise UnsupportedInputRequest("its form has no message or no properties")
    if len(properties) > MAX_FORM_PROPERTIES or not all(type(field) is dict for field in properties.values()):
        raise UnsupportedInputRequest("its form has too many or invalid properties")
    if not all(_has_visible_values(name, field) for name, field in properties.items()):
        raise UnsupportedInputRequest("a name or choice of its form contains invisible characters or line breaks")

    form_schema = {"type": "object", "properties": properties}
    required = schema.get("required")
    if type(required) is list and all(type(name) is str for name in required):
        form_schema["required"] = required
    if "form" in revision.elicitation:
        try:
            form_schema = revision.requested_schema(form_schema)
        except ValueError:
            raise UnsupportedInputRequest("the client's revision of the protocol cannot show its form") from None
    request_params = {"message": build_message(proxy, message), "requestedSchema": clean_form_schema(form_schema)}
    return InputRequest(ELICITATION, request_params, {"elicitation": {"form": {}}}, _parse_form_response, key)


def _has_visible_values(name: str, field: Wire) -> bool:
    """Return True if a person sees the name and each choice of a field as the server receives it."""
    items = field.get("items")
    schemas = [field, *([items] if type(items) is dict else [])]
    values: list[Any] = [name]
    for schema in schemas:
        values += schema.get("enum") or ()
        for keyword in ("oneOf", "anyOf"):
            values += [choice.get("const") for choice in schema.get(keyword) or ()]
    return all(is_visible(value) for value in values if type(value) is str)


def _build_url_request(params: Wire, revision: Revision, key: str, proxy: str) -> InputRequest:
    message, url, id = params.get("message"), params.get("url"), params.get("elicitationId")
    if type(message) is not str or type(url) is not str or not is_absolute_url(url):
        raise UnsupportedInputRequest("it has no message, or no URL that a browser may open")
    request_params = {"mode": "url", "message": build_message(proxy, message), "url": url}
    if revision.elicitation_id:
        request_params["elicitationId"] = id if type(id) is str else "1"
    return InputRequest(ELICITATION, request_params, {"elicitation": {"url": {}}}, _parse_action, key)


def _build_sampling_request(params: Wire, revision: Revision, key: str) -> InputRequest:
    given, max_tokens = params.get("messages"), params.get("maxTokens")
    if type(given) is not list or not given or type(max_tokens) is not int:
        raise UnsupportedInputRequest("it has no messages, or no maxTokens")
    messages = [_parse_message(item) for item in given]
    check_tool_balance(messages)
    request_params: Wire = {"messages": [shown for one in messages for shown in revision.shape_sampling_message(one)]}
    request_params["maxTokens"] = max_tokens
    request_params |= {name: params[name] for name in _SAMPLING_OPTIONS if params.get(name) is not None}

    needs: Wire = {}
    if params.get("tools"):
        needs["tools"] = {}
        request_params["tools"] = [revision.shape_tool(remove_own_keys(dict(tool))) for tool in params["tools"]]
        if type(params.get("toolChoice")) is dict:
            request_params["toolChoice"] = params["toolChoice"]
    context = params.get("includeContext")
    if context in ("thisServer", "allServers"):
        # The context would be that of another server, and only some clients support it.
        request_params["includeContext"] = "none"
    return InputRequest(SAMPLING, request_params, {"sampling": needs}, _parse_sample, key)


def _parse_message(item: Any) -> Wire:
    if type(item) is not dict or item.get("role") not in ("user", "assistant"):
        raise UnsupportedInputRequest("one of its messages has no role")
    return {
        "role": item["role"],
        "content": [remove_own_keys_of_block(block) for block in blocks_of(item.get("content"))],
    }


def _parse_form_response(raw: Any) -> Wire:
    answer = _parse_action(raw)
    if answer["action"] == "accept":
        content = raw.get("content")
        if content is not None and type(content) is not dict:
            raise InvalidInputResponse("content must be an object")
        answer["content"] = content or {}
    return answer


def _parse_action(raw: Any) -> Wire:
    action = raw.get("action") if type(raw) is dict else None
    if action not in ACTIONS:
        raise InvalidInputResponse("action must be accept, decline or cancel")
    return {"action": action}


def _parse_sample(raw: Any) -> Wire:
    if type(raw) is not dict or raw.get("role") not in ("user", "assistant") or type(raw.get("model")) is not str:
        raise InvalidInputResponse("a sample needs a role, a model and content")
    try:
        blocks = blocks_of(raw.get("content"))
    except ValueError as problem:
        raise InvalidInputResponse(str(problem)) from None
    answer = {"role": raw["role"], "model": raw["model"], "content": blocks[0] if len(blocks) == 1 else blocks}
    return {**answer, "stopReason": raw["stopReason"]} if type(raw.get("stopReason")) is str else answer


def _parse_roots(raw: Any) -> Wire:
    roots = raw.get("roots") if type(raw) is dict else None
    if type(roots) is not list or not all(type(root) is dict and type(root.get("uri")) is str for root in roots):
        raise InvalidInputResponse("roots must be a list of objects with a uri")
    names = ("uri", "name")
    return {"roots": [{name: root[name] for name in names if type(root.get(name)) is str} for root in roots]}
