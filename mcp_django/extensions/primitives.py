"""Primitives as extensions and providers build, find and run them."""

from mcp_django.protocol.uri import UriTemplate
from mcp_django.providers.media_types import build_contents
from mcp_django.schema import compile_prompt_parameters, convert_failures, describe_callable
from mcp_django.server.callables import is_async, run_callable
from mcp_django.server.composition.mounting import get_client_name
from mcp_django.server.composition.provider import Provider, find_provided_tool, get_providers
from mcp_django.server.execution.invoke import delegate_to_tool
from mcp_django.server.execution.permissions import check_permission
from mcp_django.server.injection.handler import AtomicDatabases, Handler, describe_source
from mcp_django.server.injection.parameters import is_injected
from mcp_django.server.methods.resources import find_resource, read_contents
from mcp_django.server.primitives.base import (
    CallCheck,
    Completer,
    Completion,
    Permission,
    Primitive,
    Prompt,
    Rate,
    Resource,
    ResourceTemplate,
    Tool,
    ToolOutput,
    ToolParameters,
    combine_permissions,
)
from mcp_django.server.primitives.decorators import (
    NAME_PATTERN,
    PrimitiveOptions,
    ToolOptions,
    build_tool,
    check_option_names,
    parse_timeout,
    register_resource,
)
from mcp_django.server.primitives.registry import CombinedRegistry, Registry, get_registry
from mcp_django.server.primitives.results import RelayedResult, ResourceResult, ToolResult, build_tool_error
from mcp_django.server.primitives.task_options import TaskOptions
from mcp_django.server.primitives.toolset import Toolset
from mcp_django.server.primitives.ui_options import (
    UIOptions,
    check_app_name,
    convert_app_uris,
    list_app_uris,
    remove_app_uris,
)

__all__ = [
    "NAME_PATTERN",
    "AtomicDatabases",
    "CallCheck",
    "CombinedRegistry",
    "Completer",
    "Completion",
    "Handler",
    "Permission",
    "Primitive",
    "PrimitiveOptions",
    "Prompt",
    "Provider",
    "Rate",
    "Registry",
    "RelayedResult",
    "Resource",
    "ResourceResult",
    "ResourceTemplate",
    "TaskOptions",
    "Tool",
    "ToolOptions",
    "ToolOutput",
    "ToolParameters",
    "ToolResult",
    "Toolset",
    "UIOptions",
    "UriTemplate",
    "build_contents",
    "build_tool",
    "build_tool_error",
    "check_app_name",
    "check_option_names",
    "check_permission",
    "combine_permissions",
    "compile_prompt_parameters",
    "convert_app_uris",
    "convert_failures",
    "delegate_to_tool",
    "describe_callable",
    "describe_source",
    "find_provided_tool",
    "find_resource",
    "get_client_name",
    "get_providers",
    "get_registry",
    "is_async",
    "is_injected",
    "list_app_uris",
    "parse_timeout",
    "read_contents",
    "register_resource",
    "remove_app_uris",
    "run_callable",
]
