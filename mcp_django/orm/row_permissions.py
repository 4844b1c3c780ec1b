"""Row permissions: the rows of a model on which a caller has a Django permission.

Django's own backend decides about models: its yes is about every row. Backends with object permissions decide about
single rows, and their answer without an object may mean "some rows" (NetBox) or be no (django-guardian). Therefore the
project states the meaning in `MCP["ORM"]["OBJECT_PERMISSIONS"]`. Without that statement no rows are served.

Superusers have every permission without a question to a backend, and so does the local principal.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Protocol, cast

from django.contrib.auth import get_backends
from django.contrib.auth.models import PermissionsMixin
from django.db.models import Model, QuerySet
from django.db.models.manager import BaseManager
from django.utils.module_loading import import_string

from mcp_django import conf
from mcp_django.protocol.errors import ToolError
from mcp_django.server.context.context import Context

Rows = QuerySet[Any, Any]


class UserPrincipal(Protocol):
    """Principal that may belong to a Django user."""

    @property
    def is_local(self) -> bool:
        """True for the local principal, which has all rights."""

    def has_perm(self, permission: str, obj: Any = None) -> bool:
        """Return True if the caller has the permission, for a row if one is given."""

    def get_current_user(self) -> Any:
        """Return the Django user of the principal, or None without one."""

    def check_cached(self, name: str, check: Callable[[], bool]) -> bool:
        """Return the cached result of a check of this caller, or call it."""


def get_user_principal(ctx: Context) -> UserPrincipal:
    """Return the caller; every principal of a Django server is one of this kind."""
    return cast("UserPrincipal", ctx.principal)


RowFilter = Callable[[Any, str, Rows], Rows]
"""Function of user, permission and queryset that returns the permitted rows."""
MAX_CHECKED_ROWS = 1000
"""Maximum number of rows of a model that are checked one by one for a call."""
_PERMISSION_METHODS = (
    "has_perm",
    "get_all_permissions",
    "get_user_permissions",
    "get_group_permissions",
    "_get_permissions",
    "_get_user_permissions",
    "_get_group_permissions",
)
_MODEL_BACKEND_MODULES = ("django.contrib.auth.backends", "django_auth_ldap.backend")
"""Modules whose backends decide about models only: their yes is about every row.

LDAPBackend of django-auth-ldap reads the permissions of groups, and passes the object on without using it.
"""


class RowPermissions(ABC):
    """Meaning of a Django permission for the rows of a model."""

    restricts_rows: ClassVar[bool] = True
    """True if a caller with the permission may lack it for some rows."""
    is_stated: ClassVar[bool] = True
    """False if the project has not stated the meaning of its backends."""

    @abstractmethod
    def has_perm(self, principal: UserPrincipal, permission: str, model: type[Model], obj: Model | None = None) -> bool:
        """Return True if the caller has the permission for at least one row, or for this one."""

    @abstractmethod
    def filter_rows(
        self, principal: UserPrincipal, permission: str, rows: Rows, has_view_permission: Callable[[Model], bool]
    ) -> Rows:
        """Return those of `rows` on which the caller has the permission.

        `has_view_permission` is the hook of the toolset. A project may have replaced it.
        """

    def has_add_perm(self, principal: UserPrincipal, permission: str, obj: Model) -> bool:
        """Return True if the caller may have added this row, which is saved already.

        A yes of a backend that decides about models is enough: a new row has no permissions of its own.
        """
        return (
            is_unrestricted(principal)
            or _ask_model_backends(principal, permission)
            or self._has_row(principal, permission, type(obj), obj)
        )

    def _has_row(self, principal: UserPrincipal, permission: str, model: type[Model], obj: Model) -> bool:
        return bool(principal.has_perm(permission, obj))


class AllRows(RowPermissions):
    """Every row, for a caller with the permission on the model."""

    restricts_rows = False

    def has_perm(self, principal: UserPrincipal, permission: str, model: type[Model], obj: Model | None = None) -> bool:
        """See RowPermissions."""
        return bool(principal.has_perm(permission))

    def filter_rows(
        self, principal: UserPrincipal, permission: str, rows: Rows, has_view_permission: Callable[[Model], bool]
    ) -> Rows:
        """See RowPermissions."""
        return rows


class UnstatedRows(RowPermissions):
    """Absence of rows, for a project that has not stated the meaning of a yes."""

    is_stated = False

    def has_perm(self, principal: UserPrincipal, permission: str, model: type[Model], obj: Model | None = None) -> bool:
        """See RowPermissions."""
        return is_unrestricted(principal)

    def filter_rows(
        self, principal: UserPrincipal, permission: str, rows: Rows, has_view_permission: Callable[[Model], bool]
    ) -> Rows:
        """See RowPermissions."""
        return rows if is_unrestricted(principal) else rows.none()

    def has_add_perm(self, principal: UserPrincipal, permission: str, obj: Model) -> bool:
        """See RowPermissions."""
        return is_unrestricted(principal)


class CheckedRows(RowPermissions):
    """Rows for which `has_perm` returns True, checked one by one."""

    def has_perm(self, principal: UserPrincipal, permission: str, model: type[Model], obj: Model | None = None) -> bool:
        """See RowPermissions."""
        if obj is None or is_unrestricted(principal):
            return bool(principal.has_perm(permission))
        return self._has_row(principal, permission, model, obj)

    def filter_rows(
        self, principal: UserPrincipal, permission: str, rows: Rows, has_view_permission: Callable[[Model], bool]
    ) -> Rows:
        """See RowPermissions.

        Raises:
            ToolError: there are more than MAX_CHECKED_ROWS rows.
        """
        return rows if is_unrestricted(principal) else filter_one_by_one(rows, has_view_permission)


class FilteredRows(RowPermissions):
    """Rows that a function of the project selects in SQL.

    A single row must be among them, and `has_perm` must return True for it.
    """

    def __init__(self, path: str) -> None:
        self._path = path

    def has_perm(self, principal: UserPrincipal, permission: str, model: type[Model], obj: Model | None = None) -> bool:
        """See RowPermissions."""
        if is_unrestricted(principal):
            return bool(principal.has_perm(permission))
        if obj is not None:
            return self._has_row(principal, permission, model, obj)
        if principal.has_perm(permission):
            return True
        is_about_rows = permission != _get_add_permission(model)
        return is_about_rows and principal.check_cached(
            f"{permission} on rows", lambda: self._select_rows(principal, permission, model).exists()
        )

    def filter_rows(
        self, principal: UserPrincipal, permission: str, rows: Rows, has_view_permission: Callable[[Model], bool]
    ) -> Rows:
        """See RowPermissions."""
        if is_unrestricted(principal):
            return rows
        # A subquery: joins and DISTINCT of the function would change counts and groups.
        selected = self._select_rows(principal, permission, rows.model, using=rows.db)
        return rows.filter(pk__in=selected.order_by().values("pk"))

    def _has_row(self, principal: UserPrincipal, permission: str, model: type[Model], obj: Model) -> bool:
        if not principal.has_perm(permission, obj):
            return False
        selected = self._select_rows(principal, permission, model, using=obj._state.db)
        return bool(selected.filter(pk=obj.pk).exists())

    def _select_rows(
        self, principal: UserPrincipal, permission: str, model: type[Model], using: str | None = None
    ) -> Rows:
        """Return the rows of the project's function.

        Raises:
            TypeError: the function returned a value of another type.
        """
        rows: Rows = model._default_manager.using(using)
        user = principal.get_current_user()
        if user is None or not user.is_active:
            return rows.none()
        function: RowFilter = import_string(self._path)
        selected: Any = function(user, permission, rows)
        if not isinstance(selected, QuerySet) or selected.model._meta.concrete_model is not model._meta.concrete_model:
            raise TypeError(f"{self._path} must return a queryset of {model._meta.label}, not {selected!r:.100}")
        return selected


class ModelPermission:
    """Permission of a tool, decided like the permission of its rows."""

    def __init__(self, row_permissions: RowPermissions, name: str, model: type[Model]) -> None:
        self.__name__ = name
        self._row_permissions = row_permissions
        self._model = model

    def __call__(self, principal: UserPrincipal) -> bool:
        return self._row_permissions.has_perm(principal, self.__name__, self._model)


@conf.cached
def get_row_permissions() -> RowPermissions:
    """Return the meaning of permissions that the project states, or that follows from its backends."""
    match conf.orm().object_permissions:
        case None:
            return UnstatedRows() if any(iter_object_backends()) else AllRows()
        case "all":
            return AllRows()
        case "some":
            return CheckedRows()
        case path:
            return FilteredRows(path)


def filter_one_by_one(rows: Rows, is_permitted: Callable[[Model], bool]) -> Rows:
    """Return those of `rows` that a function permits, which is called for each.

    Raises:
        ToolError: there are more than MAX_CHECKED_ROWS rows.
    """
    candidates = list(rows.order_by()[: MAX_CHECKED_ROWS + 1])
    if len(candidates) > MAX_CHECKED_ROWS:
        raise ToolError(
            f"There are more than {MAX_CHECKED_ROWS} {rows.model._meta.verbose_name_plural}, too many to check the "
            "permission for each; this server needs a filter for them (OBJECT_PERMISSIONS)"
        )
    return rows.filter(pk__in=[row.pk for row in candidates if is_permitted(row)])


def iter_object_backends() -> Iterator[type[Any]]:
    """Yield the authentication backends that may decide about single objects.

    These are the backends with permission methods of their own. Backends that only log users in inherit them from
    Django, or have none.
    """
    for backend in get_backends():
        if not _is_model_backend(backend):
            yield type(backend)


def _is_model_backend(backend: Any) -> bool:
    """Return True if all permission methods of a backend are those of Django, or missing."""
    for name in _PERMISSION_METHODS:
        owner = next((cls for cls in type(backend).__mro__ if name in vars(cls)), None)
        if owner is not None and owner.__module__ not in _MODEL_BACKEND_MODULES:
            return False
    return True


def can_restrict_rows(manager: Any) -> bool:
    """Return True if managers of a class may hide some rows of a model.

    This includes managers whose querysets filter in their constructor.
    """
    kind = getattr(manager, "_queryset_class", QuerySet)
    return (
        manager.get_queryset is not BaseManager.get_queryset
        or manager.all is not BaseManager.all
        or kind.__init__ is not QuerySet.__init__
    )


def is_unrestricted(principal: UserPrincipal) -> bool:
    """Return True for a caller who has every permission without a question to a backend."""
    if principal.is_local:
        return True
    user = principal.get_current_user()
    return (
        user is not None
        and user.is_active
        and getattr(user, "is_superuser", False) is True
        and getattr(user.__class__, "has_perm", None) is PermissionsMixin.has_perm
    )


def _ask_model_backends(principal: UserPrincipal, permission: str) -> bool:
    """Return True if a backend that decides about models grants the permission, and no backend forbids it."""
    user = principal.get_current_user()
    return (
        user is not None
        and bool(principal.has_perm(permission))
        and any(
            backend.has_perm(user, permission)
            for backend in get_backends()
            if _is_model_backend(backend) and hasattr(backend, "has_perm")
        )
    )


def _get_add_permission(model: type[Model]) -> str:
    return f"{model._meta.app_label}.add_{model._meta.model_name}"
