"""Codecs of the field classes of other packages, by the dotted paths of these classes.

The packages need not be installed. A module imports its package when a column of one of these classes is exposed.
"""

from mcp_django.orm.package_codecs import money, postgres, tags, text_lists

__all__ = ["money", "postgres", "tags", "text_lists"]
