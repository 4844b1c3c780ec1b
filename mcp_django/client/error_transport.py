"""Errors of ours on their way through the SDK, which gives its callers only what a server answered.

A call that could not be sent, because its credential is missing, gets an answer in the server's place: a number that
nobody can guess, by which its caller finds the error. So the connection stays, and with it the calls of others. A
server that makes up such an answer names no error.
"""

import secrets
from collections import OrderedDict
from typing import Final

from mcp import MCPError

from mcp_django.client.errors import ClientError

CODE: Final = -32099
"""Of the answers in a server's place."""
MOST: Final = 1000
"""Errors that are kept for callers; those who left fetch none."""
_KEPT: "OrderedDict[str, ClientError]" = OrderedDict()


def carry(problem: ClientError) -> str:
    """A name for an error, for `carried`."""
    name = secrets.token_hex(16)
    _KEPT[name] = problem
    while len(_KEPT) > MOST:
        _KEPT.popitem(last=False)
    return name


def carried(error: MCPError) -> ClientError | None:
    """The error that an answer stands for; None for an answer of the server."""
    if error.code != CODE or not isinstance(error.data, dict):
        return None
    return _KEPT.pop(str(error.data.get("carried")), None)
