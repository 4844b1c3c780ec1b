"""Toolsets for all models of a project, as a loop in its `mcp_tools.py` would register them."""

from collections.abc import Iterable
from typing import Any

from django.db import models

from mcp_django import ModelToolset, register
from mcp_django.orm import TreeToolset
from mcp_django.orm.declaration.exposed_fields import get_tree_columns
from mcp_django.schema import DeclarationError

SECRET_WORDS = (
    "password",
    "secret",
    "token",
    "key",
    "salt",
    "hash",
    "digest",
    "signature",
    "2fa",
    "pepper",
    "plaintext",
)


def register_models(kinds: Iterable[type[models.Model]], base: type[ModelToolset] = ModelToolset) -> dict[str, str]:
    """Register a toolset for each model; return the errors of the models that are refused, by label."""
    errors: dict[str, str] = {}
    for kind in kinds:
        try:
            register(kind)(build_toolset(kind, base))
        except DeclarationError as error:
            errors[kind._meta.label] = str(error)
    return errors


def build_toolset(kind: type[models.Model], base: type[ModelToolset] = ModelToolset) -> type[ModelToolset]:
    """Return a toolset of all columns without secrets, which can filter by each of them and write."""
    meta = kind._meta
    names = [
        field.name
        for field in [*meta.concrete_fields, *meta.many_to_many]
        if not any(word in field.name for word in SECRET_WORDS)
    ]
    if get_tree_columns(kind):
        base = type("Tree", (TreeToolset, base) if base is not ModelToolset else (TreeToolset,), {})
    attributes: dict[str, Any] = {
        "prefix": f"{meta.app_label}_{meta.model_name}",
        "fields": names,
        "list_filter": "__all__",
        "tools": ["describe", "list", "get", "count", "aggregate", "create", "update", "delete"],
    }
    return type(f"{kind.__name__}Tools", (base,), attributes)
