"""Admin pages of extensions: actions on rows, filters, stored rows, previews.

It imports the admin of Django, so only `admin` modules import it: a project may do without the admin.
"""

from mcp_django.admin.base import BaseAdmin, RowAction, RowActionAdmin, ServerFilter
from mcp_django.admin.preview import MAX_SHOWN_CHARS, Preview, PreviewBlock
from mcp_django.admin.stored import StoredAdmin, StoredForm
from mcp_django.admin.stored_prompt import PartInline

__all__ = [
    "MAX_SHOWN_CHARS",
    "BaseAdmin",
    "PartInline",
    "Preview",
    "PreviewBlock",
    "RowAction",
    "RowActionAdmin",
    "ServerFilter",
    "StoredAdmin",
    "StoredForm",
]
