"""The reference of the permissions of the admin, from the models that it lists."""

from collections.abc import Iterator
from typing import Any, Final

from django.apps import apps
from django.contrib import admin

from scripts.reference.sources import MARK, escape_cell, write_docstring

PATH: Final = "permissions.md"
INTRODUCTION: Final = f"""\
# Permissions of the admin

{MARK}

Give staff the permissions of the pages that they need. A permission is named `APP.ACTION_MODEL`, for example
`mcp_django.view_session`. The permissions of your tools are those of your own models
([permissions](../protect/permissions.md)).

| Page | App and model | Actions | Content |
|---|---|---|---|
"""


def list_models() -> Iterator[type[Any]]:
    """Yield the models of the package with a page in the admin."""
    for model in apps.get_models():
        if model.__module__.startswith("mcp_django.") and admin.site.is_registered(model):
            yield model


def render_permissions() -> str:
    """Return the page."""
    rows = []
    for model in list_models():
        meta = model._meta
        actions = ", ".join(f"`{action}`" for action in meta.default_permissions)
        cells = (
            str(meta.verbose_name_plural).capitalize(),
            f"`{meta.app_label}`, `{meta.model_name}`",
            actions,
            write_docstring(model.__doc__).split("\n")[0],
        )
        rows.append("| " + " | ".join(map(escape_cell, cells)) + " |")
    return INTRODUCTION + "\n".join(rows) + "\n"
