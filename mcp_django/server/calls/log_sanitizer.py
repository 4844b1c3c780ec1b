"""Labels of calls for logs and traces: bounded, printable, without secrets.

Names, ids and URIs are untrusted text of the client. Arguments and results are never used. URIs lose their user
information, query and fragment.
"""

import hashlib

from mcp_django.protocol.display_text import escape_invisible
from mcp_django.protocol.headers import NAMED_PARAMS
from mcp_django.server.calls.call import Call

MAX_LABEL_CHARACTERS = 128
"""Maximum characters of a text of the client."""
_ELLIPSIS = "…"


def sanitize_label(text: str) -> str:
    """Return an untrusted text in printable form for a log line, at most `MAX_LABEL_CHARACTERS` long.

    Truncated text ends with an ellipsis. Invisible characters become backslash escapes.
    """
    if len(text) > MAX_LABEL_CHARACTERS:
        text = text[:MAX_LABEL_CHARACTERS] + _ELLIPSIS
    return escape_invisible(text, also="\\")


def get_target_label(call: Call) -> str | None:
    """Return the target of a call: the name of a tool or prompt, or a resource URI.

    The target of a completion is the prompt or resource template to complete.
    """
    params = call.params
    subject: object = params.get("ref") if call.method == "completion/complete" else params
    if type(subject) is not dict:
        return None
    if NAMED_PARAMS.get(call.method) != "uri":
        name = subject.get("name")
        if type(name) is str:
            return sanitize_label(name)
        if subject is params:
            return None
    uri = subject.get("uri")
    return sanitize_uri(uri) if type(uri) is str else None


def sanitize_uri(uri: str) -> str:
    """Return a URI for a log line, without the parts that can hold secrets.

    These are the user information, the query and the fragment.
    """
    bare, query, _ = uri.replace("#", "?", 1).partition("?")
    # Split by hand: URL parsers reject or change some of the URIs that a client may send.
    scheme, slashes, rest = bare.partition("//")
    authority, slash, path = rest.partition("/")
    bare = f"{scheme}{slashes}{authority.rpartition('@')[2]}{slash}{path}"
    return sanitize_label(f"{bare}?{_ELLIPSIS}" if query else bare)


def get_principal_label(call: Call) -> str:
    """Return the principal's key, as sessions in the admin show it.

    It identifies the user and never contains the credential.
    """
    return sanitize_label(call.principal.key)


def get_session_label(call: Call) -> str | None:
    """Return the first 8 digits of the session key's SHA-256; None without session.

    The `key_hash` column of the session's row starts with these digits.
    """
    session = call.session or call.connection.opened_session
    return None if session is None else hashlib.sha256(session.key.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def get_call_id_label(call: Call) -> str | None:
    """Return the request id as text; None for a notification."""
    id = call.id
    return None if id is None else sanitize_label(str(id))


def get_trace_id(call: Call) -> str | None:
    """Return the id of the call's trace: of its own span, else of the client."""
    if call.record.trace_id is not None:
        return call.record.trace_id
    trace = call.trace
    return None if trace is None else trace.trace_id


def get_log_fields(call: Call) -> dict[str, str]:
    """Return the six labels for log records of a call, without the missing ones."""
    labels = {
        "mcp_server": call.server.alias,
        "mcp_method": sanitize_label(call.method),
        "mcp_name": get_target_label(call),
        "mcp_principal": get_principal_label(call),
        "mcp_call_id": get_call_id_label(call),
        "mcp_trace_id": get_trace_id(call),
    }
    return {name: text for name, text in labels.items() if text is not None}
