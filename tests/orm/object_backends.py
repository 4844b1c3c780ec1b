"""Authentication backends with object permissions, as projects write them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from django.apps import apps
from django.contrib.auth.backends import BaseBackend
from django.db.models import Model, Q, QuerySet
from django.test import override_settings

GRANTS: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
"""Constraints by user name and permission; one of them must hold for a row."""


def grant(username: str, permission: str, **constraint: Any) -> None:
    """Grant a permission on the rows with these values."""
    GRANTS.setdefault(username, {}).setdefault(permission, []).append(constraint)


def filter_granted(user: Any, permission: str, rows: "QuerySet[Any, Any]") -> "QuerySet[Any, Any]":
    """The rows on which a user has a permission."""
    constraints = GRANTS.get(user.get_username(), {}).get(permission)
    if not constraints:
        return rows.none()
    return rows.filter(Q(*(Q(**constraint) for constraint in constraints), _connector=Q.OR))


class ConstraintBackend(BaseBackend):
    """Grants a permission without an object to a user who has it on some rows."""

    def has_perm(self, user_obj: Any, perm: str, obj: Model | None = None) -> bool:
        if obj is None:
            return bool(GRANTS.get(user_obj.get_username(), {}).get(perm))
        label, codename = perm.split(".")
        model = apps.get_model(label, codename.partition("_")[2])
        return filter_granted(user_obj, perm, model._base_manager.all()).filter(pk=obj.pk).exists()


class LoginOnly(BaseBackend):
    """Only logs users in."""


MODEL_BACKEND = "django.contrib.auth.backends.ModelBackend"
CONSTRAINTS = f"{__name__}.ConstraintBackend"
FILTER = f"{__name__}.filter_granted"


@contextmanager
def object_permissions(stated: str | None, *backends: str, **options: Any) -> Iterator[None]:
    """Let the project have these backends, and state the meaning of their answers."""
    orm = {} if stated is None else {"OBJECT_PERMISSIONS": stated}
    with override_settings(
        AUTHENTICATION_BACKENDS=list(backends or [CONSTRAINTS]), MCP={"AUTH": "none", "ORM": orm, **options}
    ):
        GRANTS.clear()
        try:
            yield
        finally:
            GRANTS.clear()
