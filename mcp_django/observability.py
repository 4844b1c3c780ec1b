"""The running call, its outcome and its trace, for middleware, logs and metrics."""

from mcp_django.protocol.trace_context import TraceContext
from mcp_django.server.calls.call import Call, current_call
from mcp_django.server.ports import Outcome

__all__ = ["Call", "Outcome", "TraceContext", "current_call"]
