"""Logging filter that adds the attributes of the current call."""

import logging

from mcp_django.server.calls.call import current_call
from mcp_django.server.calls.log_sanitizer import get_log_fields

FIELDS = ("mcp_server", "mcp_method", "mcp_name", "mcp_principal", "mcp_call_id", "mcp_trace_id")
ABSENT = "-"


class CallFilter(logging.Filter):
    """Filter that sets the attributes FIELDS of each record from the current call.

    The value is "-" without a call. All records pass. Add it to a handler: a logger's filters apply to records of that
    very logger only.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        call = current_call()
        fields = {} if call is None else get_log_fields(call)
        for name in FIELDS:
            if not hasattr(record, name):
                setattr(record, name, fields.get(name, ABSENT))
        return True
