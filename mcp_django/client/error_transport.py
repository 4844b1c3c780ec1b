"""Transport of local errors through the SDK in JSON-RPC responses.

A call that could not be sent, for example without a credential, is answered with a JSON-RPC error in the server's
place. The error carries an unguessable key, and the caller uses it to retrieve the original exception. The connection
stays open for other calls. A key forged by a server retrieves nothing.
"""

import secrets
from collections import OrderedDict
from typing import Final

from mcp import MCPError

from mcp_django.client.errors import ClientError

CODE: Final = -32099
"""JSON-RPC error code of responses that carry a local error."""
MOST: Final = 1000
"""Maximum number of stored errors; beyond it the oldest are discarded.

Errors of cancelled callers are never retrieved.
"""
_KEPT: "OrderedDict[str, ClientError]" = OrderedDict()


def carry(problem: ClientError) -> str:
    """Store an error and return the key for `take_error`."""
    name = secrets.token_hex(16)
    _KEPT[name] = problem
    while len(_KEPT) > MOST:
        _KEPT.popitem(last=False)
    return name


def carried(error: MCPError) -> ClientError | None:
    """Return the local error carried by a response; None for an error of the server."""
    if error.code != CODE or not isinstance(error.data, dict):
        return None
    return _KEPT.pop(str(error.data.get("carried")), None)
