"""What of a call may stand in a log or a trace: bounded, printable, on one line, and no secret.

Names, ids and URIs are the client's words. Arguments and results are never used; of a URI its query, its fragment and
whoever logs in with it are left out.
"""

import hashlib
from typing import Any

from mcp_django.protocol.headers import NAMED
from mcp_django.server.calls.call import Call

LENGTH = 128
"""Characters of a text of the client's."""
_ELLIPSIS = "…"


def label(text: str) -> str:
    """A text of somebody else's: at most LENGTH characters and a mark of what is missing, what does not print as a
    backslash escape.
    """
    if len(text) > LENGTH:
        text = text[:LENGTH] + _ELLIPSIS
    if text.isprintable() and "\\" not in text:
        return text
    return "".join(c if c.isprintable() and c != "\\" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def target_of(call: Call) -> str | None:
    """What a call is about: the name of a tool or prompt, or a resource's URI; for a completion, what it completes."""
    params = call.params
    about: Any = params.get("ref") if call.method == "completion/complete" else params
    if type(about) is not dict:
        return None
    if NAMED.get(call.method) != "uri":
        name = about.get("name")
        if type(name) is str:
            return label(name)
        if about is params:
            return None
    uri = about.get("uri")
    return uri_label(uri) if type(uri) is str else None


def uri_label(uri: str) -> str:
    """A URI without user information, query and fragment, which is where secrets are."""
    bare, query, _ = uri.replace("#", "?", 1).partition("?")
    # By hand, because a parser of URLs refuses, or changes, some of those that a client may send.
    scheme, slashes, rest = bare.partition("//")
    authority, slash, path = rest.partition("/")
    bare = f"{scheme}{slashes}{authority.rpartition('@')[2]}{slash}{path}"
    return label(f"{bare}?{_ELLIPSIS}" if query else bare)


def principal_of(call: Call) -> str:
    """Who asks: the principal's key, which sessions in the admin show too. It names the user, never the credential."""
    return label(call.principal.key)


def session_of(call: Call) -> str | None:
    """The first 8 digits of the SHA-256 of the session's key, which is how its row's `key_hash` begins; None without a
    session.
    """
    session = call.session or call.connection.opened
    return None if session is None else hashlib.sha256(session.key.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def call_id_of(call: Call) -> str | None:
    """The request's id as text; None for a notification."""
    id = call.id
    return None if id is None else label(str(id))


def trace_id_of(call: Call) -> str | None:
    """The trace that the call belongs to: that of its own span, or else the client's."""
    if call.fate.trace_id is not None:
        return call.fate.trace_id
    trace = call.trace
    return None if trace is None else trace.trace_id


def fields_of(call: Call) -> dict[str, str]:
    """The six labels that every log record of a call may have, those it has none for left out."""
    found = {
        "mcp_server": call.server.alias,
        "mcp_method": label(call.method),
        "mcp_name": target_of(call),
        "mcp_principal": principal_of(call),
        "mcp_call_id": call_id_of(call),
        "mcp_trace_id": trace_id_of(call),
    }
    return {name: text for name, text in found.items() if text is not None}
