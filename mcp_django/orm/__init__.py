"""Models as tools: a `ModelToolset` declares the exposed fields of a model.

Undeclared fields, rows and tools stay closed to clients.

    @register(Airport)
    class Airports(ModelToolset):
        fields = ["code", "name", "country"]
        list_filter = ["country"]
"""

import mcp_django.orm.package_codecs  # noqa: F401  # registers its codecs
from mcp_django.orm.actions import action
from mcp_django.orm.codecs import Codec, get_codec, register_codec
from mcp_django.orm.declaration.inlines import ModelInline
from mcp_django.orm.toolset import ModelToolset, register_model
from mcp_django.orm.tree_toolset import TreeToolset

__all__ = [
    "Codec",
    "ModelInline",
    "ModelToolset",
    "TreeToolset",
    "action",
    "get_codec",
    "register_codec",
    "register_model",
]
