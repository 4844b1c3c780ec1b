"""Conversion of requests of a remote server to requests to the client of its call."""

from typing import Any, NamedTuple

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.revisions import REVISIONS, Revision
from mcp_django.protocol.sampling_types import blocks_of, require_balance
from mcp_django.server.client_requests.conversation import InvalidAnswer, Question
from mcp_django.server.client_requests.elicitation import ACTIONS, is_address

Wire = dict[str, Any]

ELICITATION, SAMPLING, ROOTS = "elicitation/create", "sampling/createMessage", "roots/list"
KINDS = {ELICITATION: "elicitation", SAMPLING: "sampling", ROOTS: "roots"}
"""Supported request methods, with the client capability that each requires."""
BYTES = 256 * 1024
"""Maximum bytes of JSON in one request."""
PROPERTIES = 100
"""Maximum properties of one form."""
_SAID = ("systemPrompt", "temperature", "stopSequences", "modelPreferences", "metadata")


class Asked(NamedTuple):
    """Unchanged request of a remote server."""

    method: str
    params: Wire | None


class Unaskable(ValueError):
    """Request that cannot be forwarded.

    The text gives the reason and quotes no content.
    """


def question_of(asked: Asked, revision: str, key: str) -> Question:
    """Return the request in the client's revision. Raises UnsupportedInputRequest."""
    if len(jsonrpc.dumps(asked.params)) > BYTES:
        raise Unaskable("it is too large")
    shape = REVISIONS[revision]
    params = asked.params or {}
    if type(params) is not dict:
        raise Unaskable("its parameters are not an object")

    try:
        if asked.method == ELICITATION:
            return _url(params, shape, key) if params.get("mode") == "url" else _form(params, shape, key)
        if asked.method == SAMPLING:
            return _sampling(params, shape, key)
    except (ValueError, TypeError, KeyError, AttributeError) as problem:
        raise problem if isinstance(problem, Unaskable) else Unaskable("it is malformed") from None

    if asked.method == ROOTS:
        return Question(ROOTS, None, {"roots": {}}, _roots, key)
    raise Unaskable("its method is unknown")


def _form(params: Wire, revision: Revision, key: str) -> Question:
    message, schema = params.get("message"), params.get("requestedSchema")
    properties = schema.get("properties") if type(schema) is dict else None
    if type(message) is not str or type(schema) is not dict or type(properties) is not dict:
        raise Unaskable("its form has no message or no properties")
    if len(properties) > PROPERTIES or not all(type(field) is dict for field in properties.values()):
        raise Unaskable("its form has too many or invalid properties")

    shown = {"type": "object", "properties": properties}
    required = schema.get("required")
    if type(required) is list and all(type(name) is str for name in required):
        shown["required"] = required
    if "form" in revision.elicitation:
        try:
            shown = revision.requested_schema(shown)
        except ValueError:
            raise Unaskable("the client's revision of the protocol cannot show its form") from None
    said = {"message": message, "requestedSchema": shown}
    return Question(ELICITATION, said, {"elicitation": {"form": {}}}, _form_answer, key)


def _url(params: Wire, revision: Revision, key: str) -> Question:
    message, url, id = params.get("message"), params.get("url"), params.get("elicitationId")
    if type(message) is not str or type(url) is not str or not is_address(url):
        raise Unaskable("it has no message, or no URL that a browser may open")
    said = {"mode": "url", "message": message, "url": url}
    if revision.elicitation_id:
        said["elicitationId"] = id if type(id) is str else "1"
    return Question(ELICITATION, said, {"elicitation": {"url": {}}}, _url_answer, key)


def _sampling(params: Wire, revision: Revision, key: str) -> Question:
    given, most = params.get("messages"), params.get("maxTokens")
    if type(given) is not list or not given or type(most) is not int:
        raise Unaskable("it has no messages, or no maxTokens")
    full = [_message(item) for item in given]
    require_balance(full)
    said: Wire = {"messages": [shown for one in full for shown in revision.shape_sampling_message(one)]}
    said["maxTokens"] = most
    said |= {name: params[name] for name in _SAID if params.get(name) is not None}

    needs: Wire = {}
    if params.get("tools"):
        needs["tools"] = {}
        said["tools"] = [revision.shape_tool(dict(tool)) for tool in params["tools"]]
        if type(params.get("toolChoice")) is dict:
            said["toolChoice"] = params["toolChoice"]
    context = params.get("includeContext")
    if context in ("thisServer", "allServers"):
        # The context would be that of another server, and only some clients support it.
        said["includeContext"] = "none"
    return Question(SAMPLING, said, {"sampling": needs}, _sample, key)


def _message(item: Any) -> Wire:
    if type(item) is not dict or item.get("role") not in ("user", "assistant"):
        raise Unaskable("one of its messages has no role")
    return {"role": item["role"], "content": blocks_of(item.get("content"))}


def _form_answer(raw: Any) -> Wire:
    answer = _url_answer(raw)
    if answer["action"] == "accept":
        content = raw.get("content")
        if content is not None and type(content) is not dict:
            raise InvalidAnswer("content must be an object")
        answer["content"] = content or {}
    return answer


def _url_answer(raw: Any) -> Wire:
    action = raw.get("action") if type(raw) is dict else None
    if action not in ACTIONS:
        raise InvalidAnswer("action must be accept, decline or cancel")
    return {"action": action}


def _sample(raw: Any) -> Wire:
    if type(raw) is not dict or raw.get("role") not in ("user", "assistant") or type(raw.get("model")) is not str:
        raise InvalidAnswer("a sample needs a role, a model and content")
    try:
        blocks = blocks_of(raw.get("content"))
    except ValueError as problem:
        raise InvalidAnswer(str(problem)) from None
    answer = {"role": raw["role"], "model": raw["model"], "content": blocks[0] if len(blocks) == 1 else blocks}
    return {**answer, "stopReason": raw["stopReason"]} if type(raw.get("stopReason")) is str else answer


def _roots(raw: Any) -> Wire:
    roots = raw.get("roots") if type(raw) is dict else None
    if type(roots) is not list or not all(type(root) is dict and type(root.get("uri")) is str for root in roots):
        raise InvalidAnswer("roots must be a list of objects with a uri")
    names = ("uri", "name")
    return {"roots": [{name: root[name] for name in names if type(root.get(name)) is str} for root in roots]}
