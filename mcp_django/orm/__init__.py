"""Models as tools: a ModelToolset says which fields of a model are shown, and to whom; everything else is closed.

@register(Airport)
class Airports(ModelToolset):
    fields = ["code", "name", "country"]
    list_filter = ["country"]
"""

from mcp_django.orm.actions import action
from mcp_django.orm.inlines import ModelInline
from mcp_django.orm.toolset import ModelToolset

__all__ = ["ModelInline", "ModelToolset", "action"]
