"""Commands for operators, with clean output, and links of their overview."""

from mcp_django.management.command_options import add_caller_options, get_command_principal
from mcp_django.management.output import CleanCommand
from mcp_django.templatetags.mcp_overview import OverviewLink, add_overview_link

__all__ = [
    "CleanCommand",
    "OverviewLink",
    "add_caller_options",
    "add_overview_link",
    "get_command_principal",
]
