"""Options, hooks and exposed fields of a model's rows, shared by toolsets and inlines."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple
from urllib.parse import quote

from django.db import models, router

from mcp_django.orm import admin_log
from mcp_django.orm.codecs import get_codec
from mcp_django.orm.declaration.exposed_fields import Exposure, compile_exposure, find_field
from mcp_django.orm.declaration.names import to_ascii_name
from mcp_django.orm.declaration.writable_form import FormClass, WritableForm, build_form_class, build_writable_form
from mcp_django.orm.row_permissions import (
    ModelPermission,
    RowPermissions,
    can_restrict_rows,
    get_row_permissions,
    get_user_principal,
)
from mcp_django.schema import DeclarationError
from mcp_django.server.context.context import Context
from mcp_django.server.injection.handler import describe_source
from mcp_django.server.primitives.base import Confirmation, Permission, Tool
from mcp_django.server.primitives.decorators import MAX_NAME_CHARACTERS, shorten_name
from mcp_django.server.primitives.registry import Registry
from mcp_django.server.primitives.toolset import Toolset

if TYPE_CHECKING:
    from mcp_django.orm.declaration.inlines import ModelInline

FieldNames = Sequence[str]
GENERIC_PREFIX = "models_"
"""Prefix of the names of generic tools, which serve all models."""
TOOL_ACTIONS = {
    "describe": "view",
    "list": "view",
    "get": "view",
    "count": "view",
    "aggregate": "view",
    "create": "add",
    "update": "change",
    "delete": "delete",
    "history": "view",
    "create_form": "add",
    "update_form": "change",
}
"""Names of the tools that `tools` accepts, each with the action of its Django permission."""
MAX_MODEL_NAME_CHARACTERS = MAX_NAME_CHARACTERS - max(map(len, TOOL_ACTIONS)) - 1
"""Maximum length of the model's name in the names of its tools, which hosts limit."""
MODEL_APPS = {
    "list": "model-table",
    "get": "model-card",
    "create": "model-card",
    "update": "model-card",
    "create_form": "model-form",
    "update_form": "model-form",
    "aggregate": "model-chart",
}
"""Names of the apps that show the results of tools, with `app = True`."""
FORM_SUFFIX = "_form"


class ClassPermission(NamedTuple):
    """Permission and scopes that a toolset class requires of every caller."""

    permission: Permission | None
    scopes: tuple[str, ...]
    key: str


class BaseModelToolset(Toolset):
    """Base class of ModelToolset and ModelInline: the declaration of a model's rows."""

    model: type[models.Model]
    """The model, set by `@register(Model)` or by the class."""
    fields: ClassVar[FieldNames | Literal["__all__"]] = ()
    """Fields of a row.

    Names are fields and relations of the model, paths such as "country__name", methods and properties of the toolset or
    the model. "__all__" selects every column and requires `exclude`.
    """
    exclude: ClassVar[FieldNames | None] = None
    """Columns that "__all__" leaves out."""
    readonly_fields: ClassVar[FieldNames] = ()
    """Fields that are shown but never written."""
    sensitive_fields: ClassVar[FieldNames] = ()
    """Fields with secret-looking names that you confirm may be shown.

    They are never used to filter, order, search or aggregate.
    """
    search_fields: ClassVar[FieldNames] = ()
    """Fields that `search` compares, as in ModelAdmin.

    Examples: "name", "^code" (prefix), "=code" (equality), "country__name".
    """
    list_filter: ClassVar[FieldNames | Literal["__all__"]] = ()
    """Fields that filter rows; "__all__" for every shown field.

    The primary key is always included.
    """
    ordering: ClassVar[FieldNames] = ()
    """Default order of lists; if empty, the model's order, limited to shown fields."""
    list_select_related: ClassVar[bool | FieldNames] = False
    """Relations that computed fields use, as in ModelAdmin.

    They are read in the same statement.
    """
    label_field: ClassVar[str | None] = None
    """Text column that labels a row in references to it.

    The column must be shown. By default it is the first text column in `search_fields` or `fields`.
    """
    page_size: ClassVar[int] = 20
    """Default number of rows of a list."""
    max_limit: ClassVar[int] = 100
    """Maximum number of rows per call."""
    query_timeout: ClassVar[float | None] = 10.0
    """Time limit in seconds of each statement of a reading tool, on PostgreSQL.

    None leaves only the time limit of the call.
    """
    tools: ClassVar[FieldNames] = ("describe", "list", "get", "count")
    """Names of the tools to serve."""
    app: ClassVar[bool] = False
    """True to show rows in apps: a table, a card, a form and a chart (MCP Apps).

    With the tool `create` there is `create_form`, and with `update` there is `update_form`. Requires `describe`.
    """
    actions: ClassVar[Sequence[Callable[..., Any]]] = ()
    """Functions that are actions, in addition to methods marked with `@action`.

    They receive the toolset first.
    """
    inlines: ClassVar[Sequence[Any]] = ()
    """ModelInline classes: child rows that are read and written with their parent."""
    form: ClassVar["FormClass | None"] = None
    """ModelForm that validates writes.

    By default it is generated from the editable fields in `fields`.
    """
    confirm: ClassVar[FieldNames | Mapping[str, Confirmation]] = ()
    """Tools and actions that require confirmation, such as ["delete"].

    The client requests it from its user. {"delete": "strict"} excludes confirmation in an app, which a model could
    imitate.
    """
    confirm_fallback: ClassVar[Literal["refuse", "proceed"]] = "refuse"
    """Behavior for clients that cannot ask their user.

    "refuse" rejects the write, "proceed" executes it without confirmation.
    """
    version_field: ClassVar[str | None] = None
    """Column that identifies the version of a row and changes with each save.

    By default all shown columns together identify the version.
    """
    using: ClassVar[str | None] = None
    """Alias of the database to read from; None to use the routers."""
    queryset: ClassVar[Any] = None
    """Base queryset or manager of all reads. By default the model's default manager."""

    resources: ClassVar[bool] = True
    """True if rows are also resources.

    `shop.order://7` reads a row like `get`, `shop.order://{?customer,search,cursor}` reads a page like `list`.
    """
    publish_changes: ClassVar[bool] = True
    """True if subscribed clients are notified when a row is saved or deleted.

    Each transaction with such changes appends to the event log once.
    """

    registry: Registry

    def __init__(self) -> None:
        if not isinstance(getattr(self, "model", None), type) or not issubclass(self.model, models.Model):
            raise DeclarationError(f"{self.source}: no model; write @register(Model), or model = Model")

        options = self.model._meta
        model_name = shorten_name(to_ascii_name(str(options.model_name)), MAX_MODEL_NAME_CHARACTERS)
        self.prefix = f"{(type(self).prefix or model_name).rstrip('_')}_"
        self.inline_toolsets: tuple[ModelInline, ...] = ()
        """Bound instances of `inlines`."""
        self.action_titles: dict[str, str] = {}
        """Titles of its actions, by name."""
        self.action_permissions: set[str] = set()
        """Names in the `permissions` of its actions; `has_<name>_permission` decides each."""
        self._class_permission = ClassPermission(self._get_permission(), tuple(self.scopes), self.prefix)
        self._exposure: Exposure | None = None
        self._neighbours: dict[type[models.Model], BaseModelToolset] = {}
        self.is_generic = False
        """True if its tools are parts of the generic tools that serve all models of its server."""
        names = to_ascii_name(options.app_label), to_ascii_name(str(options.model_name))
        self.uri_scheme = ".".join(names).replace("_", "-")
        """Scheme of the URIs of its rows; RFC 3986 allows ASCII letters, digits, "-", "." and "+" in a scheme."""

    @cached_property
    def row_permissions(self) -> RowPermissions:
        """Meaning of a Django permission for its rows.

        Read on first use, when all apps are loaded.
        """
        return get_row_permissions()

    @cached_property
    def is_scoped(self) -> bool:
        """True if some rows of the model may be hidden from some callers."""
        return (
            self.row_permissions.restricts_rows
            or self.is_overridden("get_queryset")
            or self.queryset is not None
            or can_restrict_rows(type(self.model._default_manager))
        )

    @property
    def source(self) -> str:
        """Return the place of the declaration, for messages."""
        return describe_source(type(self))

    def get_tool(self, name: str) -> Tool:
        """Return a tool by name, with the options of the class.

        Raises:
            DeclarationError: the tool cannot be built.
        """
        raise DeclarationError(f"{self.source}: there is no tool {name!r}")

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Return the names of all tools: those in `tools`, and the forms of its app."""
        forms = [f"{name}{FORM_SUFFIX}" for name in self.tools if f"{name}{FORM_SUFFIX}" in TOOL_ACTIONS]
        return tuple(dict.fromkeys([*self.tools, *(forms if self.app else ())]))

    def tool_name(self, verb: str) -> str:
        """Return the full name of a tool, as clients call it."""
        return f"{GENERIC_PREFIX if self.is_generic else self.prefix}{verb}"

    # Access

    def has_class_permission(self, ctx: Context) -> bool:
        """Return True if the caller has the `permission` and `scopes` of the class.

        Its tools check this themselves. Use this method where rows are reached through paths, references and inlines.
        """
        authorizer = ctx.server.ports.authorizer
        return not authorizer.is_restricted(self._class_permission) or authorizer.is_allowed(
            ctx.principal, self._class_permission
        )

    def can_view(self, ctx: Context, obj: Any = None) -> bool:
        """Return True if rows, or this row, may be shown to the caller in related rows."""
        return self.has_class_permission(ctx) and bool(self.has_view_permission(ctx, obj))

    # Exposed fields

    @property
    def exposure(self) -> Exposure:
        """Return the exposed fields, compiled on first use after the last registration."""
        if self._exposure is None:
            self._exposure = compile_exposure(self)
        return self._exposure

    def field_names(self) -> tuple[str, ...]:
        """Return the names in `fields`, with "__all__" expanded."""
        if self.fields != "__all__":
            return tuple(dict.fromkeys(self.fields))
        excluded = set(self.exclude or ())
        return tuple(field.name for field in self.model._meta.concrete_fields if field.name not in excluded)

    def has_field(self, name: str) -> bool:
        """Return True if rows of the model show this field."""
        return name in self.field_names()

    def find_toolset(self, model: Any) -> "BaseModelToolset | None":
        """Return the toolset of a model on the same server, or None."""
        return self._neighbours.get(model)

    def find_own_method(self, name: str) -> Callable[..., Any] | None:
        """Return a method that a subclass adds to ModelToolset, or None."""
        method = None if hasattr(BaseModelToolset, name) else getattr(self, name, None)
        # Skip classes: `self.model` is a class, and "model" is a common column name.
        return method if callable(method) and not isinstance(method, type) else None

    @property
    def label_path(self) -> str | None:
        """Return the name of the column that labels a row, or None."""
        if self.label_field is not None:
            return self.label_field
        search_names = [name.lstrip("^=") for name in self.search_fields]
        for name in (*(name for name in search_names if self.has_field(name)), *self.field_names()):
            if (
                name not in self.sensitive_fields
                and self.find_own_method(name) is None
                and _is_text_column(self.model, name)
            ):
                return name
        return None

    @property
    def has_row_uris(self) -> bool:
        """Return True if rows can be read by their URI."""
        return self.resources and "get" in self.tools

    def build_row_uri(self, pk: Any) -> str:
        """Return the URI of a row."""
        return f"{self.uri_scheme}://{pk if type(pk) is int else quote(str(pk), safe='')}"

    @property
    def description(self) -> str:
        """Return the docstring of the toolset or of the model, for `describe`."""
        return next((text for cls in (type(self), self.model) if (text := _get_docstring(cls))), "")

    def permission_name(self, action: str) -> str:
        """Return Django's permission for view, add, change or delete on the model."""
        return f"{self.model._meta.app_label}.{action}_{self.model._meta.model_name}"

    def get_tool_permission(self, action: str) -> Permission:
        """Return the permission of a tool that shows or writes rows: the caller has it for at least one row."""
        name = self.permission_name(action)
        if not self.row_permissions.restricts_rows:
            return name
        return ModelPermission(self.row_permissions, name, self.model)

    # Hooks for projects

    def get_queryset(self, ctx: Context) -> "models.QuerySet[Any, Any]":
        """Return the rows that the caller may see.

        All tools restrict their rows to this queryset, including counts, references and labels. The default contains
        the rows on which the caller has the view permission, see `OBJECT_PERMISSIONS`.
        """
        rows = self.queryset if self.queryset is not None else self.model._default_manager
        queryset: models.QuerySet[Any, Any] = rows.all()
        queryset = queryset if self.using is None else queryset.using(self.using)
        is_replaced = self.replaces_view_permission and not self.row_permissions.is_stated
        if is_replaced or not self.row_permissions.restricts_rows:
            return queryset
        return self.row_permissions.filter_rows(
            get_user_principal(ctx),
            self.permission_name("view"),
            queryset,
            lambda row: self.has_view_permission(ctx, row),
        )

    def has_view_permission(self, ctx: Context, obj: Any = None) -> bool:
        """Return True if the caller may see rows, or this row.

        An override replaces the check of Django's permission.
        """
        return self._has_model_permission(ctx, "view", obj)

    def has_add_permission(self, ctx: Context) -> bool:
        """Return True if the caller may add rows."""
        return self._has_model_permission(ctx, "add")

    def has_change_permission(self, ctx: Context, obj: Any = None) -> bool:
        """Return True if the caller may change rows, or this row."""
        return self._has_model_permission(ctx, "change", obj)

    def has_delete_permission(self, ctx: Context, obj: Any = None) -> bool:
        """Return True if the caller may delete rows, or this row."""
        return self._has_model_permission(ctx, "delete", obj)

    def _has_model_permission(self, ctx: Context, action: str, *obj: Any) -> bool:
        return self.row_permissions.has_perm(get_user_principal(ctx), self.permission_name(action), self.model, *obj)

    def can_keep_row(self, ctx: Context, obj: Any, *, is_new: bool) -> bool:
        """Return True if the caller may have saved this row, with the values that it has now.

        A hook of the project has decided before the write. Object permissions depend on the row's values.
        """
        action = "add" if is_new else "change"
        if not self.row_permissions.restricts_rows or self.is_overridden(f"has_{action}_permission"):
            return True
        if not is_new:
            return self.has_change_permission(ctx, obj)
        return self.row_permissions.has_add_perm(get_user_principal(ctx), self.permission_name(action), obj)

    def get_ordering(self, ctx: Context) -> FieldNames:
        """Return the default order of lists."""
        return self.ordering

    def get_search_results(
        self, ctx: Context, queryset: "models.QuerySet[Any, Any]", search_term: str
    ) -> "models.QuerySet[Any, Any] | None":
        """Return the matching rows of `queryset`, or None to search `search_fields`."""
        return None

    def get_form_class(self, ctx: Context) -> FormClass:
        """Return the form that validates the caller's writes.

        A form with fewer fields reduces the writable fields. The tools' schemas always show the fields of `form`.
        """
        return self.default_form

    def save_model(self, ctx: Context, obj: Any, form: Any, change: bool) -> None:
        """Save a validated row inside the transaction; `change` is False for a new row."""
        options: dict[str, Any] = self._build_write_options(ctx, obj)
        if not change and obj.pk is not None and _accepts_keyword(obj.save, "force_insert"):
            # Django would first try an UPDATE, which could overwrite a row that was never checked.
            options["force_insert"] = True
        obj.save(**options)

    def delete_model(self, ctx: Context, obj: Any) -> None:
        """Delete a row inside the transaction."""
        obj.delete(**self._build_write_options(ctx, obj))

    def _build_write_options(self, ctx: Context, obj: Any) -> dict[str, str]:
        """Return the keywords that a model's `save` and `delete` need to use the right database.

        They are called without keywords where possible, as the admin calls them: a model may define `delete(self)`.
        """
        using = self.db_for_write(ctx)
        return {} if router.db_for_write(type(obj), instance=obj) == using else {"using": using}

    def db_for_write(self, ctx: Context) -> str:
        """Return the alias of the database to write to; by default that of the routers."""
        return router.db_for_write(self.model)

    def log_write(self, ctx: Context, rows: Sequence[models.Model], flag: int, message: Any) -> None:
        """Record a write in the admin's log.

        Requires that the admin is installed and that the caller is a user. `flag` and `message` are those of LogEntry.
        """
        admin_log.write_entries(ctx, rows, flag, message)

    # Writable fields

    @property
    def default_form(self) -> FormClass:
        """Return the form class built from `form` and `fields`."""
        return self.declared_writable_form.form

    @property
    def declared_writable_form(self) -> WritableForm:
        """Return the writable form of the declaration."""
        cache = self.exposure.cache
        if "fillable" not in cache:
            cache["fillable"] = build_writable_form(self, build_form_class(self, self.server_fields))
        writable_form: WritableForm = cache["fillable"]
        return writable_form

    def get_writable_form(self, ctx: Context) -> WritableForm:
        """Return the writable form of this call."""
        form, declared = self.get_form_class(ctx), self.declared_writable_form
        return declared if form is declared.form else build_writable_form(self, form)

    @property
    def server_fields(self) -> tuple[str, ...]:
        """Return the names of form fields that the server fills."""
        return ()

    @property
    def restricts_rows(self) -> bool:
        """Return True if the project restricts the rows that a caller may see."""
        return self.row_permissions.restricts_rows or self.is_overridden("get_queryset")

    @property
    def replaces_view_permission(self) -> bool:
        """Return True if a hook of the project replaces Django's view permission."""
        return self.is_overridden("has_view_permission")

    @property
    def decides_by_row(self) -> bool:
        """Return True if the view permission of a row may differ from that of the model."""
        return self.row_permissions.restricts_rows or self.replaces_view_permission

    def get_confirmation(self, name: str) -> Confirmation:
        """Return the confirmation that a tool or an action requires."""
        return self.confirm.get(name, False) if isinstance(self.confirm, Mapping) else name in self.confirm

    def is_overridden(self, hook: str) -> bool:
        """Return True if a subclass overrides this hook."""
        return getattr(type(self), hook) is not getattr(BaseModelToolset, hook)


def _get_docstring(cls: type[Any]) -> str:
    """Return the class's own docstring.

    Django generates a docstring for models without one, "Model(fields…)". It is ignored.
    """
    text = cls.__dict__.get("__doc__") or ""
    return "" if text.startswith(f"{cls.__name__}(") else inspect.cleandoc(text)


def _accepts_keyword(function: Callable[..., Any], name: str) -> bool:
    parameters = inspect.signature(function).parameters
    return name in parameters or any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())


def _is_text_column(model: type[models.Model], name: str) -> bool:
    field = find_field(model, name)
    if field is None or field.is_relation:
        return False
    codec = get_codec(field)
    return codec.kind == "text" and codec.encode is None and not field.choices
