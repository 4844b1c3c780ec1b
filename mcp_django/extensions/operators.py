"""Pages and commands for operators: admins, actions on rows, clean output."""

from mcp_django.admin.base import BaseAdmin, RowAction, RowActionAdmin, ServerFilter
from mcp_django.admin.preview import MAX_SHOWN_CHARS, Preview, PreviewBlock
from mcp_django.admin.stored import StoredAdmin, StoredForm
from mcp_django.admin.stored_prompt import PartInline
from mcp_django.logs.records import RateLimitedLogger
from mcp_django.management.command_options import add_caller_options, get_command_principal
from mcp_django.management.output import CleanCommand
from mcp_django.templatetags.mcp_overview import OverviewLink, add_overview_link

__all__ = [
    "MAX_SHOWN_CHARS",
    "BaseAdmin",
    "CleanCommand",
    "OverviewLink",
    "PartInline",
    "Preview",
    "PreviewBlock",
    "RateLimitedLogger",
    "RowAction",
    "RowActionAdmin",
    "ServerFilter",
    "StoredAdmin",
    "StoredForm",
    "add_caller_options",
    "add_overview_link",
    "get_command_principal",
]
