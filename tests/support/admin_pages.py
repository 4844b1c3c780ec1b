"""All pages of the admin of some apps, read from its URLs: a page that is added is found without a change here."""

from collections.abc import Collection, Iterator
from typing import Any

from django.contrib import admin
from django.db.models import Model
from django.urls import URLPattern, reverse


def iter_admin_paths(app_labels: Collection[str], max_rows: int | None = None) -> Iterator[str]:
    """Yield the paths of the index and of all pages of the models of the apps.

    A page of one row is there for each row, or for the first `max_rows`. Pages with more parts in their path are left
    out.
    """
    for label in app_labels:
        yield reverse("admin:app_list", args=[label])
    for model, model_admin in admin.site._registry.items():
        if model._meta.app_label in app_labels:
            for pattern in model_admin.get_urls():
                yield from _iter_paths(pattern, model, max_rows)


def _iter_paths(pattern: Any, model: type[Model], max_rows: int | None) -> Iterator[str]:
    if not isinstance(pattern, URLPattern) or pattern.name is None:
        return
    names = list(pattern.pattern.converters)
    if not names:
        yield reverse(f"admin:{pattern.name}")
    elif len(names) == 1:
        for row in model._default_manager.order_by("pk")[:max_rows]:
            yield reverse(f"admin:{pattern.name}", args=[row.pk])
