"""Errors of the protocol and of tools, which extensions raise and translate."""

from mcp_django.protocol.errors import (
    InternalError,
    InvalidParams,
    InvalidRequest,
    MCPError,
    MethodNotFound,
    MissingClientCapability,
    ParseError,
    ResourceNotFound,
    ToolError,
    URLElicitationRequired,
)
from mcp_django.runtime.database_failures import find_database_failure
from mcp_django.schema import ArgumentError, ConflictError, DeclarationError, OutputError
from mcp_django.server.methods.tools import UnknownTool
from mcp_django.server.ports import Overloaded

__all__ = [
    "ArgumentError",
    "ConflictError",
    "DeclarationError",
    "InternalError",
    "InvalidParams",
    "InvalidRequest",
    "MCPError",
    "MethodNotFound",
    "MissingClientCapability",
    "OutputError",
    "Overloaded",
    "ParseError",
    "ResourceNotFound",
    "ToolError",
    "URLElicitationRequired",
    "UnknownTool",
    "find_database_failure",
]
