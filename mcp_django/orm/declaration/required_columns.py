"""Columns that each new row requires and that neither clients, the model nor the database fill.

The database refuses such a row, because the column is NULL. An empty text is a value for it, so texts are not reported.
"""

from django.db import models

from mcp_django.orm.codecs.codec import ModelField
from mcp_django.orm.declaration.writable_form import WritableDeclaration

_HOOKS = ("save_model", "get_form_class")
"""Hooks of a project that may set any column."""


def find_unfilled_columns(toolset: WritableDeclaration) -> list[str]:
    """Return the names of required columns that no new row of a toolset would have a value for.

    The project's own form and hooks may set any column, so a toolset that has one is not examined.
    """
    if toolset.form is not None or any(_is_of_project(type(toolset), hook) for hook in _HOOKS):
        return []
    filled = {*toolset.declared_writable_form.fields, *toolset.server_fields}
    return [
        field.name for field in toolset.model._meta.concrete_fields if field.name not in filled and _is_empty(field)
    ]


def _is_empty(field: ModelField) -> bool:
    """Return True if a new row has no value for the column unless its caller gives one."""
    is_filled = field.null or field.has_default() or field.has_db_default() or isinstance(field, models.GeneratedField)
    if is_filled or field.auto_created or not field.editable or isinstance(field, models.AutoField):
        return False
    # A field class may make a value itself, such as a slug.
    return field.get_default() is None and not _is_of_project(type(field), "pre_save", "django.")


def _is_of_project(cls: type[object], name: str, package: str = "mcp_django.") -> bool:
    """Return True if a class has a method that is not of the package that defines its base class."""
    owner = next(base for base in cls.__mro__ if name in vars(base))
    return not owner.__module__.startswith(package)
