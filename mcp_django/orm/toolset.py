"""`ModelToolset`: what clients may see and do of one model, declared as one declares a ModelAdmin."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple
from urllib.parse import quote

from django.db import models, router

from mcp_django import conf
from mcp_django.orm.actions import ActionOptions, actions_of, build_action
from mcp_django.orm.checks import check_declaration, names_of
from mcp_django.orm.fields.codecs import codec_of
from mcp_django.orm.fields.exposed_fields import Exposure, expose, field_of
from mcp_django.orm.queries.visibility import may_leave_out
from mcp_django.orm.resources import Declaration, resources_of
from mcp_django.orm.tools import VERBS
from mcp_django.orm.writes import admin_log
from mcp_django.orm.writes.checks import check_confirm, check_writing, inlines_of
from mcp_django.orm.writes.forms.compiled import Fillable, FormClass, fillable_of, form_class_of
from mcp_django.schema import DeclarationError
from mcp_django.server.context.context import Context
from mcp_django.server.injection.handler import source_of
from mcp_django.server.primitives.base import Completer, Permission, Primitive, Tool
from mcp_django.server.primitives.registry import Registry
from mcp_django.server.primitives.toolset import Toolset
from mcp_django.signals import model_registered

if TYPE_CHECKING:
    from mcp_django.orm.inlines import ModelInline

Names = Sequence[str]
GENERIC_PREFIX = "models_"
"""What the names of tools begin with that serve all models."""


class Gate(NamedTuple):
    """What a class asks of everybody."""

    permission: Permission | None
    scopes: tuple[str, ...]
    key: str


class ModelToolset(Toolset):
    """A model's rows as tools. Nothing is shown, compared or ordered by that `fields` does not name.

    Register it for its model, `@register(Airport)`, or for a server too: `@register(Airport, server="internal")`.
    Hooks are given the call's Context; their defaults follow Django's permissions of the caller.
    """

    model: type[models.Model]
    """Set by `@register(Model)`, or by the class."""
    fields: ClassVar[Names | Literal["__all__"]] = ()
    """What rows show: fields and relations of the model, paths such as "country__name", methods and properties of the
    toolset or the model. "__all__" means every column, and takes an `exclude`."""
    exclude: ClassVar[Names | None] = None
    """What "__all__" leaves out."""
    readonly_fields: ClassVar[Names] = ()
    """Shown and never written."""
    sensitive_fields: ClassVar[Names] = ()
    """The second yes for what looks like a secret. Shown, and never filtered, ordered, searched or summed by."""
    search_fields: ClassVar[Names] = ()
    """What `search` looks at, as in ModelAdmin: "name", "^code" (begins with), "=code" (is), "country__name"."""
    list_filter: ClassVar[Names | Literal["__all__"]] = ()
    """What rows may be filtered by, besides the primary key; "__all__" for everything shown."""
    ordering: ClassVar[Names] = ()
    """The order of lists that ask for none; by default the model's, as far as it is shown."""
    list_select_related: ClassVar[bool | Names] = False
    """Relations that computed fields use, read in the same statement, as in ModelAdmin."""
    label_field: ClassVar[str | None] = None
    """The text that names a row where others point at it: a text column that is shown. By default the first that
    `search_fields` or `fields` names."""
    page_size: ClassVar[int] = 20
    """Rows of a list that asks for no number."""
    max_limit: ClassVar[int] = 100
    """Rows that one call may ask for."""
    query_timeout: ClassVar[float | None] = 10.0
    """Seconds that one statement of a reading verb may take on PostgreSQL. None: as long as the call may."""
    tools: ClassVar[Names] = ("describe", "list", "get", "count")
    """The verbs served."""
    actions: ClassVar[Sequence[Callable[..., Any]]] = ()
    """Functions that are actions besides the methods marked with `@action`; they are given the toolset first."""
    inlines: ClassVar[Sequence[Any]] = ()
    """ModelInline classes: rows shown by `get`, and written, with the row that they belong to."""
    form: ClassVar["FormClass | None"] = None
    """The ModelForm that validates what is written; by default one of what `fields` shows and lets be edited."""
    confirm: ClassVar[Names] = ()
    """Verbs and actions about which the person in front of the client is asked first, such as ["delete"]."""
    confirm_fallback: ClassVar[Literal["refuse", "proceed"]] = "refuse"
    """What happens where the client cannot ask anybody: nothing, or the write without a question."""
    version_field: ClassVar[str | None] = None
    """The column that tells versions of a row apart, which changes with each save. By default all that is shown."""
    using: ClassVar[str | None] = None
    """The database to read from, by alias; None to ask the routers."""
    queryset: ClassVar[Any] = None
    """Where reading begins: a queryset or a manager. By default the model's default manager."""

    resources: ClassVar[bool] = True
    """Are rows resources too: `shop.order://7` as `get` gives it, `shop.order://{?customer,search,cursor}` as `list`
    does?"""
    publish_changes: ClassVar[bool] = True
    """Are clients that subscribed to a row told when it is saved or deleted? Each transaction that does costs an append
    to the event log."""

    registry: Registry

    def __init__(self) -> None:
        if not isinstance(getattr(self, "model", None), type) or not issubclass(self.model, models.Model):
            raise DeclarationError(f"{self.source}: say for which model it is: @register(Model), or model = Model")
        self.prefix = f"{(type(self).prefix or str(self.model._meta.model_name)).rstrip('_')}_"
        self.inline_toolsets: tuple[ModelInline, ...] = ()
        """The `inlines`, ready for use."""
        self.action_tools: dict[str, tuple[Callable[..., Any], ActionOptions]] = {}
        """The actions by name."""
        self._gate = Gate(self._permission(), tuple(self.scopes), self.prefix)
        self._exposure: Exposure | None = None
        self._neighbours: dict[type[models.Model], ModelToolset] = {}
        self._verbs: dict[str, Tool] = {}
        self.is_generic = conf.orm_style() == "generic"
        """Are its verbs parts of tools that serve all models?"""
        self.uri_scheme = f"{self.model._meta.app_label}.{self.model._meta.model_name}".replace("_", "-")
        """The scheme of the URIs of its rows; RFC 3986 allows no underscore in one."""
        self.is_scoped = _is_scoped(self)
        """May there be rows of the model that some callers are not given?"""

    @classmethod
    def bound_to(cls, subject: Any) -> "ModelToolset":
        """The instance for a model. Raises DeclarationError."""
        given = cls.__dict__.get("model", subject)
        if not (isinstance(subject, type) and issubclass(subject, models.Model)) or given is not subject:
            raise DeclarationError(f"{source_of(cls)}: register it for its model, not for {subject!r}")
        # A class of the toolset's own, so that one may be registered for several models.
        instance = cls.__new__(cls)
        instance.model = subject
        instance.__init__()  # type: ignore[misc]
        return instance

    @property
    def source(self) -> str:
        """Where it was declared, for messages about it."""
        return source_of(type(self))

    def attach(self, registry: Registry) -> None:
        """Check the declaration as far as it stands alone. Raises DeclarationError."""
        others = [toolset for toolset in registry.toolsets if isinstance(toolset, ModelToolset)]
        for other in others:
            if other.model is self.model:
                raise DeclarationError(
                    f"{self.model._meta.label} has two toolsets on this server, {other.source} and {self.source}; "
                    "merge them, or register one on another server"
                )
            if other.prefix == self.prefix:
                raise DeclarationError(
                    f"the tools of {self.source} and of {other.source} have the same names, {self.prefix}…; "
                    "give one of the two another prefix"
                )
        self.registry = registry
        check_declaration(self)
        check_writing(self)
        self._neighbours = {self.model: self, **{other.model: other for other in others}}
        self.inline_toolsets = inlines_of(self)
        self.action_tools = actions_of(self)
        check_confirm(self)
        for other in others:
            # What was compiled without this one may see more now.
            other._neighbours[self.model] = self
            other._exposure = None
        if self.is_generic:
            for name in self.tools:
                self.verb(name)
        model_registered.send(self.model, toolset=self, server=registry.name)

    def declarations(self) -> list[tuple[Callable[[], Primitive | Completer], str]]:
        """The verbs, the actions, the rows, and what marked methods declare."""
        names = () if self.is_generic else dict.fromkeys(self.tools)
        verbs: list[Declaration] = [(partial(self.verb, name), f"{self.source}, {name}") for name in names]
        actions: list[Declaration] = [
            (self._action(name, *action), f"{self.source}, {name}") for name, action in self.action_tools.items()
        ]
        return [*verbs, *actions, *resources_of(self), *super().declarations()]

    def verb(self, name: str) -> Tool:
        """The tool of a verb, with what the class says. Raises DeclarationError."""
        if name not in self._verbs:
            tool = self._build(lambda _: VERBS[name](self), None)
            assert isinstance(tool, Tool)
            self._verbs[name] = tool
        return self._verbs[name]

    def tool_name(self, verb: str) -> str:
        """What clients call a verb by."""
        return f"{GENERIC_PREFIX if self.is_generic else self.prefix}{verb}"

    def _action(self, name: str, fn: Callable[..., Any], options: ActionOptions) -> Callable[[], Primitive | Completer]:
        return lambda: self._build(lambda _: build_action(self, name, fn, options), None)

    # Who may look at all

    def admits(self, ctx: Context) -> bool:
        """Does the caller have what the class asks for, `permission` and `scopes`? Its tools ask by themselves;
        this is for where rows are reached from elsewhere: by paths, references and inlines.
        """
        authorizer = ctx.server.authorizer
        return not authorizer.guards(self._gate) or authorizer.allows(ctx.principal, self._gate)

    def lets_view(self, ctx: Context, obj: Any = None) -> bool:
        """May rows, or this one, be shown to the caller where they are reached from elsewhere?"""
        return self.admits(ctx) and bool(self.has_view_permission(ctx, obj))

    # What is exposed

    @property
    def exposure(self) -> Exposure:
        """What it exposes, compiled at the first use after the last registration."""
        if self._exposure is None:
            self._exposure = expose(self)
        return self._exposure

    def field_names(self) -> tuple[str, ...]:
        """What `fields` comes to."""
        return names_of(self)

    def shows(self, name: str) -> bool:
        """Is this a field that rows of the model show?"""
        return name in self.field_names()

    def beside(self, model: Any) -> "ModelToolset | None":
        """The toolset of another model on the same server."""
        return self._neighbours.get(model)

    def own_method(self, name: str) -> Callable[..., Any] | None:
        """A method that the project's class adds to ModelToolset."""
        method = None if hasattr(ModelToolset, name) else getattr(self, name, None)
        # A class is none: the toolset's own `model` is one, and columns of many models are called so.
        return method if callable(method) and not isinstance(method, type) else None

    @property
    def label_path(self) -> str | None:
        """The column that names a row; None when no text column is shown."""
        if self.label_field is not None:
            return self.label_field
        named = [name.lstrip("^=") for name in self.search_fields]
        for name in (*(name for name in named if self.shows(name)), *self.field_names()):
            if name not in self.sensitive_fields and self.own_method(name) is None and _is_text(self.model, name):
                return name
        return None

    @property
    def serves_rows(self) -> bool:
        """Can a row be read by its URI?"""
        return self.resources and "get" in self.tools

    def uri(self, pk: Any) -> str:
        """The URI of a row."""
        return f"{self.uri_scheme}://{pk if type(pk) is int else quote(str(pk), safe='')}"

    @property
    def description(self) -> str:
        """What `describe` says of the model: the docstring of the toolset, or of the model."""
        return next((text for cls in (type(self), self.model) if (text := _docstring(cls))), "")

    def permission_name(self, action: str) -> str:
        """Django's permission for an action on the model: view, add, change or delete."""
        return f"{self.model._meta.app_label}.{action}_{self.model._meta.model_name}"

    # What projects override

    def get_queryset(self, ctx: Context) -> "models.QuerySet[Any, Any]":
        """The rows that the caller may see. All that any verb finds, counts, follows or names is among them."""
        rows = self.queryset if self.queryset is not None else self.model._default_manager
        found: models.QuerySet[Any, Any] = rows.all()
        return found if self.using is None else found.using(self.using)

    def has_view_permission(self, ctx: Context, obj: Any = None) -> bool:
        """May the caller see rows, or this one? Once overridden, Django's permission is not asked any more."""
        return _has_perm(ctx, self.permission_name("view"))

    def has_add_permission(self, ctx: Context) -> bool:
        """May the caller add rows?"""
        return _has_perm(ctx, self.permission_name("add"))

    def has_change_permission(self, ctx: Context, obj: Any = None) -> bool:
        """May the caller change rows, or this one?"""
        return _has_perm(ctx, self.permission_name("change"))

    def has_delete_permission(self, ctx: Context, obj: Any = None) -> bool:
        """May the caller delete rows, or this one?"""
        return _has_perm(ctx, self.permission_name("delete"))

    def get_ordering(self, ctx: Context) -> Names:
        """The order of lists that ask for none."""
        return self.ordering

    def get_search_results(
        self, ctx: Context, queryset: "models.QuerySet[Any, Any]", search_term: str
    ) -> "models.QuerySet[Any, Any] | None":
        """The rows of `queryset` that a search finds; None for the search over `search_fields`."""
        return None

    def get_form_class(self, ctx: Context) -> "FormClass":
        """The form that validates what the caller writes. One that has fewer fields narrows what may be written; the
        tools' schemas show what `form` has.
        """
        return self.default_form

    def save_model(self, ctx: Context, obj: Any, form: Any, change: bool) -> None:
        """Save a row that its form has validated, inside the transaction. `change` is False for a new one."""
        # With a primary key Django would try an UPDATE first, and take the place of a row that no check has seen.
        obj.save(using=self.db_for_write(ctx), force_insert=not change and obj.pk is not None)

    def delete_model(self, ctx: Context, obj: Any) -> None:
        """Delete a row, inside the transaction."""
        obj.delete(using=self.db_for_write(ctx))

    def db_for_write(self, ctx: Context) -> str:
        """The alias of the database that rows are written to; by default what the routers say."""
        return router.db_for_write(self.model)

    def log_write(self, ctx: Context, rows: Sequence[models.Model], flag: int, message: Any) -> None:
        """Note a write in the admin's log, where the admin is installed and the caller is a user. `flag` and `message`
        are those of LogEntry.
        """
        admin_log.write(ctx, rows, flag, message)

    # What of it clients may write

    @property
    def default_form(self) -> "FormClass":
        """The form of `form` and `fields`."""
        return self.declared_fillable.form

    @property
    def declared_fillable(self) -> "Fillable":
        """What clients may give to it."""
        plans = self.exposure.plans
        if "fillable" not in plans:
            plans["fillable"] = fillable_of(self, form_class_of(self, self.fixed_fields))
        found: Fillable = plans["fillable"]
        return found

    def fillable(self, ctx: Context) -> "Fillable":
        """What the caller may give to the form of this call."""
        form, known = self.get_form_class(ctx), self.declared_fillable
        return known if form is known.form else fillable_of(self, form)

    @property
    def fixed_fields(self) -> tuple[str, ...]:
        """Fields of the form that are the server's to fill."""
        return ()

    @property
    def chooses_rows(self) -> bool:
        """Does the project say here which rows a caller is given?"""
        return self.overrides("get_queryset")

    def overrides(self, hook: str) -> bool:
        """Does the project's class define this hook itself?"""
        return getattr(type(self), hook) is not getattr(ModelToolset, hook)


def _has_perm(ctx: Context, permission: str) -> bool:
    principal: Any = ctx.principal
    return bool(principal.has_perm(permission))


def _docstring(cls: type[Any]) -> str:
    """The class's own docstring; Django writes one of its own, "Model(fields…)", for models without."""
    text = cls.__dict__.get("__doc__") or ""
    return "" if text.startswith(f"{cls.__name__}(") else inspect.cleandoc(text)


def _is_scoped(toolset: ModelToolset) -> bool:
    manager = type(toolset.model._default_manager)
    return toolset.overrides("get_queryset") or toolset.queryset is not None or may_leave_out(manager)


def _is_text(model: type[models.Model], name: str) -> bool:
    found = field_of(model, name)
    if found is None or found.is_relation:
        return False
    codec = codec_of(found)
    return codec.kind == "text" and codec.orderable and not found.choices


Toolsets = Mapping[type[models.Model], ModelToolset]
