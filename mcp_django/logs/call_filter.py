"""Which call a log record belongs to."""

import logging

from mcp_django.server.calls.current import current_call
from mcp_django.server.calls.log_sanitizer import fields_of

FIELDS = ("mcp_server", "mcp_method", "mcp_name", "mcp_principal", "mcp_call_id", "mcp_trace_id")
ABSENT = "-"


class CallFilter(logging.Filter):
    """Gives every record the attributes FIELDS, of the call during which it was made; "-" where there is none.

    It lets everything pass. Put it on a handler: a logger's filters see only what is logged on that very logger.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        call = current_call()
        found = {} if call is None else fields_of(call)
        for name in FIELDS:
            if not hasattr(record, name):
                setattr(record, name, found.get(name, ABSENT))
        return True
