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

LOCAL_ERROR_CODE: Final = -32099
"""JSON-RPC error code of responses that carry a local error."""
MAX_STORED_ERRORS: Final = 1000
"""Maximum number of stored errors; beyond it the oldest are discarded.

Errors of cancelled callers are never retrieved.
"""
_ERRORS: "OrderedDict[str, ClientError]" = OrderedDict()


def store_error(error: ClientError) -> str:
    """Store an error and return the key for `take_error`."""
    key = secrets.token_hex(16)
    _ERRORS[key] = error
    while len(_ERRORS) > MAX_STORED_ERRORS:
        _ERRORS.popitem(last=False)
    return key


def take_error(error: MCPError) -> ClientError | None:
    """Return the local error carried by a response; None for an error of the server."""
    if error.code != LOCAL_ERROR_CODE or not isinstance(error.data, dict):
        return None
    return _ERRORS.pop(str(error.data.get("carried")), None)
