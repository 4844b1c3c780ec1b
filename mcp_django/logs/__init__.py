"""For `LOGGING`: what a project's log records have to do with calls.

`CallFilter` says which call a record belongs to, `ClientHandler` forwards records to the client of their call.
"""

from mcp_django.logs.call_filter import ABSENT, FIELDS, CallFilter
from mcp_django.logs.client_handler import ClientHandler
from mcp_django.logs.redaction import REDACTED, redacted

__all__ = ["ABSENT", "FIELDS", "REDACTED", "CallFilter", "ClientHandler", "redacted"]
