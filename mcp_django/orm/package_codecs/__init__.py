"""Codecs of the field classes of packages, by the dotted paths of these classes.

The packages need not be installed: a codec imports its package when a column of such a class is exposed.
"""

from mcp_django.orm.package_codecs import (
    geometry,
    label_trees,
    money,
    networks,
    postgres,
    streamfield,
    tags,
    text_lists,
    vectors,
)

__all__ = ["geometry", "label_trees", "money", "networks", "postgres", "streamfield", "tags", "text_lists", "vectors"]
