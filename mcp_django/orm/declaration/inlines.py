"""`ModelInline`: child rows that are read and written with their parent row."""

from typing import Any, ClassVar

from django.db import models

from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.declaration.checks import check_declaration
from mcp_django.orm.declaration.exposed_fields import Exposure, compile_exposure, get_tree_columns
from mcp_django.orm.declaration.writable_form import FormClass
from mcp_django.orm.row_permissions import Rows
from mcp_django.schema import DeclarationError
from mcp_django.server.context.context import Context
from mcp_django.server.injection.handler import describe_source


class ModelInline(BaseModelToolset):
    """Rows of `model` below each row of a toolset's model, like an InlineModelAdmin.

        class RunwayInline(ModelInline):
            model = Runway
            fields = ["surface", "length"]

    An inline has no tools of its own. Its options for fields, permissions, rows and forms work as in a ModelToolset.
    Options that it leaves out default to those of the model's toolset on the same server, then to Django's permissions.
    """

    fk_name: ClassVar[str | None] = None
    """The foreign key to the parent; required if the model has several."""
    name: str = ""
    """The key of its rows in the parent row; by default the relation's name."""
    max_num: ClassVar[int] = 100
    """Maximum number of rows that are shown and that may exist."""
    can_delete: ClassVar[bool] = True
    tools = ()

    parent: BaseModelToolset
    foreign_key: "models.ForeignKey[Any, Any]"

    def find_toolset(self, model: Any) -> BaseModelToolset | None:
        """Return the toolset of a model on the same server, or None."""
        return self.parent.find_toolset(model)

    @classmethod
    def under(cls, parent: BaseModelToolset) -> "ModelInline":
        """Create the inline of a parent toolset.

        Raises:
            DeclarationError: the declaration or its foreign key is invalid.
        """
        inline = cls()
        inline.parent, inline.registry = parent, parent.registry
        inline.foreign_key = _find_foreign_key(cls, parent.model)
        accessor = inline.foreign_key.remote_field.get_accessor_name()
        inline.name = cls.name or accessor or f"{inline.model._meta.model_name}_set"

        check_declaration(inline)
        if get_tree_columns(inline.model) and {"create", "update"} & {*parent.tools}:
            raise DeclarationError(
                f"{inline.source}: {inline.model._meta.label} is a tree of treebeard, whose rows an inline cannot "
                "place; write them by a toolset of their own"
            )
        if inline.inlines or inline.actions:
            raise DeclarationError(f"{inline.source}: an inline has neither inlines nor actions")
        return inline

    @property
    def exposure(self) -> Exposure:
        """Return the exposed fields; see ModelToolset.

        They are compiled again when the parent's are.
        """
        parent_exposure = self.parent.exposure
        exposure: Exposure | None = parent_exposure.cache.get(self)
        if exposure is None:
            exposure = parent_exposure.cache[self] = compile_exposure(self)
        return exposure

    def get_queryset(self, ctx: Context) -> Rows:
        """Return the rows that the caller may see.

        If the model has a toolset on this server, only rows of that toolset are included.
        """
        rows, model_toolset = super().get_queryset(ctx), self.find_toolset(self.model)
        if model_toolset is None or not model_toolset.is_scoped:
            return rows
        return rows.filter(pk__in=model_toolset.get_queryset(ctx).using(rows.db).order_by().values("pk"))

    def can_use(self, ctx: Context) -> bool:
        """Return True if the caller may view or add rows. For other callers the inline is unknown."""
        return self.can_view(ctx) or (self.has_class_permission(ctx) and self.has_add_permission(ctx))

    @property
    def restricts_rows(self) -> bool:
        """See ModelToolset."""
        return self.row_permissions.restricts_rows or type(self).get_queryset is not ModelInline.get_queryset

    @property
    def replaces_view_permission(self) -> bool:
        """See ModelToolset."""
        model_toolset = self.find_toolset(self.model)
        return super().replaces_view_permission or (
            model_toolset is not None and model_toolset.replaces_view_permission
        )

    def _has_model_permission(self, ctx: Context, action: str, *obj: Any) -> bool:
        model_toolset = self.find_toolset(self.model)
        if model_toolset is None:
            return super()._has_model_permission(ctx, action, *obj)
        has_permission = getattr(model_toolset, f"has_{action}_permission")
        return model_toolset.has_class_permission(ctx) and bool(has_permission(ctx, *obj))

    def can_keep_row(self, ctx: Context, obj: Any, *, is_new: bool) -> bool:
        """See ModelToolset."""
        model_toolset, action = self.find_toolset(self.model), "add" if is_new else "change"
        if model_toolset is None or self.is_overridden(f"has_{action}_permission"):
            return super().can_keep_row(ctx, obj, is_new=is_new)
        return model_toolset.can_keep_row(ctx, obj, is_new=is_new)

    def get_form_class(self, ctx: Context) -> FormClass:
        """Return the form that validates the rows.

        Its foreign key to the parent is filled by the server, not by the client.
        """
        return self.default_form

    @property
    def server_fields(self) -> tuple[str, ...]:
        """See ModelToolset."""
        return (self.foreign_key.name,)

    def get_rows_below(self, parent: Any, using: str) -> Rows:
        """Return all rows below a parent row or primary key, regardless of visibility."""
        return self.model._base_manager.using(using).filter(**{self.foreign_key.name: parent})


def _find_foreign_key(inline: type[ModelInline], parent: type[models.Model]) -> Any:
    where, model = describe_source(inline), inline.model
    parents = {parent._meta.concrete_model, *parent._meta.all_parents}
    foreign_keys = [
        field
        for field in model._meta.get_fields()
        if isinstance(field, models.ForeignKey)
        and field.related_model._meta.concrete_model in parents
        and inline.fk_name in (None, field.name)
    ]

    if not foreign_keys:
        expected = "foreign key" if inline.fk_name is None else f"foreign key {inline.fk_name!r}"
        raise DeclarationError(f"{where}: {model._meta.label} has no {expected} to {parent._meta.label}")
    if len(foreign_keys) > 1:
        names = ", ".join(field.name for field in foreign_keys)
        raise DeclarationError(
            f"{where}: {model._meta.label} has several foreign keys to {parent._meta.label}; "
            f"set fk_name to one of {names}"
        )
    return foreign_keys[0]
