"""Users of a project whose rows are governed by Django's own permissions, as in its admin."""

from collections.abc import Sequence
from typing import Any

from django.contrib.auth.models import Permission
from django.contrib.contenttypes.models import ContentType
from django.db import models


def add_readers(user_model: Any, kinds: Sequence[type[models.Model]]) -> dict[str, Any]:
    """Add a superuser, a user who may see every other model and change every fourth, and a user without permissions."""
    root = user_model.objects.create_superuser("root", "root@example.com", "root")
    reader = user_model.objects.create_user("reader", "reader@example.com", "reader")
    stranger = user_model.objects.create_user("stranger", "stranger@example.com", "stranger")
    for number, kind in enumerate(kinds):
        actions = ["view", *(["change", "delete"] if number % 4 == 0 else [])] if number % 2 == 0 else []
        names = [f"{action}_{kind._meta.model_name}" for action in actions]
        content_type = ContentType.objects.get_for_model(kind, for_concrete_model=False)
        reader.user_permissions.add(*Permission.objects.filter(content_type=content_type, codename__in=names))
    return {
        name: user_model.objects.get(pk=user.pk)
        for name, user in [("root", root), ("reader", reader), ("stranger", stranger)]
    }


def can_view(user: Any, kind: type[models.Model]) -> bool:
    """Return True if the admin would show the model to the user."""
    return bool(user.has_perm(f"{kind._meta.app_label}.view_{kind._meta.model_name}"))


def get_visible_rows(user: Any, kind: type[models.Model]) -> "models.QuerySet[Any]":
    """Return the rows that the admin would show to the user."""
    rows: models.QuerySet[Any] = kind._default_manager.all()
    return rows if can_view(user, kind) else rows.none()
