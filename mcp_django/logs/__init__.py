"""Classes for `LOGGING` that connect a project's log records with calls.

`CallFilter` adds the attributes of the current call; `ClientHandler` forwards records to the call's client.
"""

from mcp_django.logs.client_handler import ClientHandler
from mcp_django.logs.records import ABSENT, FIELDS, CallFilter
from mcp_django.logs.redaction import REDACTED, redacted

__all__ = ["ABSENT", "FIELDS", "REDACTED", "CallFilter", "ClientHandler", "redacted"]
