"""Is this message one that its revision defines?

`validate_message` checks against the official JSON Schema, and beyond it: the schemas leave objects open, but a client
is to get the fields of its revision and no others, so fields that the schema does not name are refused too.
"""

from collections.abc import Callable, Iterator
from typing import Any

from tests.official_schema import definitions, validator

STATELESS = "2026-07-28"
RESULTS = {
    "initialize": "InitializeResult",
    "server/discover": "DiscoverResult",
    "ping": "EmptyResult",
    "logging/setLevel": "EmptyResult",
    "resources/subscribe": "EmptyResult",
    "resources/unsubscribe": "EmptyResult",
    "subscriptions/listen": "SubscriptionsListenResult",
    "tools/list": "ListToolsResult",
    "tools/call": "CallToolResult",
    "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult",
    "resources/read": "ReadResourceResult",
    "prompts/list": "ListPromptsResult",
    "prompts/get": "GetPromptResult",
    "completion/complete": "CompleteResult",
    "counters/increase": "Result",
    "tasks/update": "Result",
    "skills/list": "Result",
    "skills/get": "Result",
    "resources/directory/read": "Result",
}
NOTIFICATIONS = {
    "notifications/cancelled": "CancelledNotification",
    "notifications/progress": "ProgressNotification",
    "notifications/message": "LoggingMessageNotification",
    "notifications/tools/list_changed": "ToolListChangedNotification",
    "notifications/prompts/list_changed": "PromptListChangedNotification",
    "notifications/resources/list_changed": "ResourceListChangedNotification",
    "notifications/resources/updated": "ResourceUpdatedNotification",
    "notifications/subscriptions/acknowledged": "SubscriptionsAcknowledgedNotification",
    "notifications/tasks/status": "TaskStatusNotification",
}
CORE_TASK_RESULTS = {
    "tasks/get": "GetTaskResult",
    "tasks/cancel": "CancelTaskResult",
    "tasks/list": "ListTasksResult",
    "tasks/result": "CallToolResult",  # that of the call, instead of the open GetTaskPayloadResult
}
"""Results of core tasks. The tasks extension of the stateless era has a schema of its own."""
REQUESTS = {
    "ping": "PingRequest",
    "elicitation/create": "ElicitRequest",
    "sampling/createMessage": "CreateMessageRequest",
    "roots/list": "ListRootsRequest",
}
ERRORS = {
    -32020: "HeaderMismatchError",
    -32021: "MissingRequiredClientCapabilityError",
    -32022: "UnsupportedProtocolVersionError",
}
STANDARD = {-32700, -32600, -32601, -32602, -32603}
OPEN = {"_meta", "inputSchema", "outputSchema", "capabilities", "structuredContent", "data", "metadata"}
"""Members whose content is not the protocol's to name."""
EXTENSION_MEMBERS = {
    "SubscriptionsAcknowledgedNotification.params.notifications.counterNames",
    "SubscriptionsAcknowledgedNotification.params.notifications.taskIds",
}
"""Members that extensions add."""


def message_check(revision: str, message: Any) -> Callable[[dict[str, Any]], None]:
    """A check of everything that comes back for `message`, a request, a batch, or anything else."""
    sent = message if isinstance(message, list) else [message]
    methods = [(m["id"], m["method"]) for m in sent if isinstance(m, dict) and "id" in m and "method" in m]

    def check(raw: dict[str, Any]) -> None:
        # Ids may be unhashable in tests of garbage, and 1 is not "1": compared one by one, with their types.
        method = next((m for id, m in methods if id == raw.get("id") and type(id) is type(raw.get("id"))), None)
        validate_message(revision, raw, method)

    return check


def validate_message(revision: str, raw: dict[str, Any], request_method: str | None) -> None:
    """Raise unless `raw` is a message that a server of `revision` may send; a response answers `request_method`."""
    assert raw.get("jsonrpc") == "2.0", raw
    if "method" in raw:
        _validate_call(revision, raw)
    elif "error" in raw:
        _validate_error(revision, raw)
    else:
        _validate_result(revision, raw, request_method)


def _validate_call(revision: str, raw: dict[str, Any]) -> None:
    method = raw["method"]
    if "id" in raw:
        assert revision != STATELESS, f"a server sends no requests in the stateless era: {raw}"
        _check(revision, "JSONRPCRequest", raw, closed=False)
        _check(revision, REQUESTS[method], _inside(revision, raw))
    else:
        _check(revision, "JSONRPCNotification", raw, closed=False)
        if method in NOTIFICATIONS:
            _check(revision, NOTIFICATIONS[method], _inside(revision, raw))


def _inside(revision: str, raw: dict[str, Any]) -> dict[str, Any]:
    """The older schemas define requests and notifications without their envelope."""
    if _has(revision, "JSONRPCErrorResponse"):
        return raw
    return {name: value for name, value in raw.items() if name not in ("jsonrpc", "id")}


def _validate_error(revision: str, raw: dict[str, Any]) -> None:
    code = raw["error"].get("code")
    envelope = "JSONRPCErrorResponse" if _has(revision, "JSONRPCErrorResponse") else "JSONRPCError"
    # The older schemas require an id; without a readable one the transport allows an error that has none.
    _check(revision, envelope, raw if "id" in raw or envelope == "JSONRPCErrorResponse" else {**raw, "id": 0})
    assert "id" not in raw or raw["id"] is not None, raw
    reserved = -32768 <= code <= -32000
    if revision == STATELESS:
        assert not reserved or code in STANDARD | ERRORS.keys(), f"{code} is not an error of {revision}"
        if code in ERRORS:
            _check(revision, ERRORS[code], raw)
    else:
        known = STANDARD | {-32002} | ({-32042} if _has(revision, "URLElicitationRequiredError") else set())
        assert not reserved or code in known, f"{code} is not an error of {revision}"


def _validate_result(revision: str, raw: dict[str, Any], method: str | None) -> None:
    envelope = "JSONRPCResultResponse" if _has(revision, "JSONRPCResultResponse") else "JSONRPCResponse"
    _check(revision, envelope, raw, closed=False)
    assert set(raw) == {"jsonrpc", "id", "result"}, raw
    assert method is not None, f"a result without a request: {raw}"
    result = raw["result"]
    definition = _result_definition(revision, method, result)
    if revision == STATELESS:
        assert result["resultType"] in ("complete", "input_required", "task"), result
        assert method == "tools/call" or result["resultType"] != "task", f"{method} may not create a task: {result}"
        if result["resultType"] == "input_required":
            assert method in ("tools/call", "prompts/get", "resources/read"), f"{method} may not ask: {result}"
            definition = "InputRequiredResult"
    elif definition == "EmptyResult":
        assert result == {}, f"the result of {method} must be empty: {result}"
    _check(revision, definition, result, closed=definition != "Result")


def _result_definition(revision: str, method: str, result: dict[str, Any]) -> str:
    """The schema of a result."""
    if method in CORE_TASK_RESULTS:
        return "Result" if revision == STATELESS else CORE_TASK_RESULTS[method]
    if method == "tools/call" and result.get("resultType") == "task":
        return "Result"
    if method == "tools/call" and "task" in result:
        return "CreateTaskResult"
    return RESULTS[method]


def _has(revision: str, definition: str) -> bool:
    return definition in definitions(revision)


def _check(revision: str, definition: str, value: Any, *, closed: bool = True) -> None:
    validator(revision, definition).validate(value)
    if closed:
        extra = list(_unknown(revision, {"$ref": f"#/$defs/{definition}"}, value, definition))
        assert not extra, f"{revision} does not define {', '.join(extra)}: {value}"


def _unknown(revision: str, schema: dict[str, Any], value: Any, path: str) -> Iterator[str]:
    """The members of a valid `value` that `schema` does not name."""
    while "$ref" in schema:
        schema = definitions(revision)[schema["$ref"].rpartition("/")[2]]
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _unknown(revision, schema.get("items", {}), item, f"{path}[{index}]")
        return
    if not isinstance(value, dict):
        return
    branches = schema.get("anyOf") or schema.get("oneOf")
    if branches:
        yield from min(
            (list(_unknown(revision, branch, value, path)) for branch in _fitting(revision, branches, value)), key=len
        )
        return
    properties = _properties(revision, schema)
    if not properties:
        return
    for name, inner in value.items():
        if name in properties:
            if name not in OPEN:
                yield from _unknown(revision, properties[name], inner, f"{path}.{name}")
        elif schema.get("additionalProperties"):
            yield from _unknown(revision, schema["additionalProperties"], inner, f"{path}.{name}")
        elif f"{path}.{name}" not in EXTENSION_MEMBERS:
            yield f"{path}.{name}"


def _properties(revision: str, schema: dict[str, Any]) -> dict[str, Any]:
    found = dict(schema.get("properties", {}))
    for part in schema.get("allOf", ()):
        while "$ref" in part:
            part = definitions(revision)[part["$ref"].rpartition("/")[2]]
        found |= _properties(revision, part)
    return found


def _fitting(revision: str, branches: list[dict[str, Any]], value: dict[str, Any]) -> list[dict[str, Any]]:
    """The branches whose constants and required members `value` has."""
    found = []
    for branch in branches:
        while "$ref" in branch:
            branch = definitions(revision)[branch["$ref"].rpartition("/")[2]]
        if "anyOf" in branch or "oneOf" in branch:
            found += _fitting(revision, branch.get("anyOf") or branch["oneOf"], value)
            continue
        constants = {n: s["const"] for n, s in branch.get("properties", {}).items() if "const" in s}
        if all(value.get(n, c) == c for n, c in constants.items()) and set(branch.get("required", ())) <= set(value):
            found.append(branch)
    assert found, f"no branch fits {value}"
    return found
