"""Calls as extensions handle them: exchange, strategy, record and messages."""

from mcp_django.logs.records import RateLimitedLogger
from mcp_django.protocol import jsonrpc
from mcp_django.protocol.display_text import truncate
from mcp_django.protocol.log_text import get_logger
from mcp_django.protocol.meta import PROGRESS_TOKEN
from mcp_django.protocol.revisions import REVISIONS, Era, Revision
from mcp_django.server.calls.call import Call, Connection, EraStrategy
from mcp_django.server.calls.log_sanitizer import sanitize_label, sanitize_uri
from mcp_django.server.calls.message_queue import MessageSink, Outbox
from mcp_django.server.calls.outcome import REMOTE_PREFIX, CallRecord
from mcp_django.server.calls.session import ServerSession
from mcp_django.server.context.context import Context
from mcp_django.server.context.notifications import LOG_MESSAGE_METHOD
from mcp_django.server.execution.lists import RESOURCES, SHARED_OWNER
from mcp_django.server.execution.result_size import get_max_bytes, shorten_message
from mcp_django.server.pipeline import Pipeline
from mcp_django.server.ports import Principal
from mcp_django.server.server import Server
from mcp_django.transports.inprocess.client import InProcessClient
from mcp_django.transports.inprocess.exchange import run_request
from mcp_django.transports.inprocess.profile import InProcessProfile

__all__ = [
    "LOG_MESSAGE_METHOD",
    "PROGRESS_TOKEN",
    "REMOTE_PREFIX",
    "RESOURCES",
    "REVISIONS",
    "SHARED_OWNER",
    "Call",
    "CallRecord",
    "Connection",
    "Context",
    "Era",
    "EraStrategy",
    "InProcessClient",
    "InProcessProfile",
    "MessageSink",
    "Outbox",
    "Pipeline",
    "Principal",
    "RateLimitedLogger",
    "Revision",
    "Server",
    "ServerSession",
    "get_logger",
    "get_max_bytes",
    "jsonrpc",
    "run_request",
    "sanitize_label",
    "sanitize_uri",
    "shorten_message",
    "truncate",
]
