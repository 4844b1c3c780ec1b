"""Models as tools: a ModelToolset says which fields of a model are shown, and to whom; everything else is closed.

@register(Airport)
class Airports(ModelToolset):
    fields = ["code", "name", "country"]
    list_filter = ["country"]
"""

from .actions import action
from .inlines import ModelInline
from .toolset import ModelToolset

__all__ = ["ModelInline", "ModelToolset", "action"]
