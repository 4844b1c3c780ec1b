"""`ModelToolset`: the declaration of a model's tools, similar to a ModelAdmin."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django.apps import apps
from django.db import models
from django.utils.module_loading import import_string

from mcp_django import conf
from mcp_django.orm.actions import ActionOptions, build_action_tool, collect_actions
from mcp_django.orm.declaration.base import FORM_SUFFIX, TOOL_ACTIONS, BaseModelToolset
from mcp_django.orm.declaration.checks import check_declaration, check_write_options
from mcp_django.orm.declaration.inlines import ModelInline
from mcp_django.orm.resources import Declaration, build_declarations
from mcp_django.orm.tools import build_tool
from mcp_django.schema import ConflictError, DeclarationError, convert_failures
from mcp_django.server.injection.handler import describe_source
from mcp_django.server.primitives.base import Completer, Primitive, Tool
from mcp_django.server.primitives.registry import Registry
from mcp_django.server.primitives.toolset import register
from mcp_django.signals import model_registered


class ModelToolset(BaseModelToolset):
    """Tools for the rows of a model; unlisted fields are never used.

    Only names in `fields` are shown, compared or ordered by.

    Register it for its model, `@register(Airport)`, or on a named server: `@register(Airport, server="internal")`.
    Hooks receive the call's Context. Their defaults follow Django's permissions of the caller.
    """

    def __init__(self) -> None:
        super().__init__()
        self._actions: dict[str, tuple[Callable[..., Any], ActionOptions]] = {}
        self._tools: dict[str, Tool] = {}

    @classmethod
    def for_subject(cls, subject: Any) -> "ModelToolset":
        """Return the instance for a model.

        Raises:
            DeclarationError: `subject` is not the model of the class.
        """
        model = cls.__dict__.get("model", subject)
        if not (isinstance(subject, type) and issubclass(subject, models.Model)) or model is not subject:
            raise DeclarationError(
                f"{describe_source(cls)}: cannot be registered for {subject!r}; register it for its model"
            )
        # Avoid `cls()`: `__init__` needs the model, and one class can be registered for several models.
        instance = cls.__new__(cls)
        instance.model = subject
        instance.__init__()  # type: ignore[misc]
        return instance

    def attach(self, registry: Registry) -> None:
        """Check the declaration and connect it to the toolsets of the same server.

        Raises:
            DeclarationError: the declaration is invalid or conflicts with another toolset.
        """
        others = [toolset for toolset in registry.toolsets if isinstance(toolset, ModelToolset)]
        for other in others:
            if other.model is self.model:
                raise ConflictError(
                    f"{self.model._meta.label} has two toolsets on this server, {other.source} and {self.source}; "
                    "merge them, or register one on another server"
                )
            if other.prefix == self.prefix:
                raise ConflictError(
                    f"the tools of {self.source} and of {other.source} have the same names, {self.prefix}…; "
                    "give one of the two another prefix"
                )

        self.registry = registry
        self.is_generic = conf.orm_style(registry.name) == "generic"
        check_declaration(self)
        check_write_options(self)

        self._neighbours = {self.model: self, **{other.model: other for other in others}}
        self.inline_toolsets = _bind_inlines(self)
        self._actions = collect_actions(self)
        self.action_titles = {name: options.get_title(name) for name, (_, options) in self._actions.items()}
        self.action_permissions = {name for _, options in self._actions.values() for name in options.permissions}
        _check_confirm_option(self)
        if apps.models_ready:
            # A failure of a column refuses the toolset here, before the toolsets of related models depend on it.
            _ = [each.exposure for each in (self, *self.inline_toolsets)]
        _ = self.get_provided_primitives()

    def _connect(self) -> None:
        """Connect to the toolsets of related models, whose exposures may gain relations to this model."""
        model_registered.send(self.model, toolset=self, server=self.registry.name)
        for other in self._neighbours.values():
            if isinstance(other, ModelToolset) and other is not self:
                other._neighbours[self.model] = self
                other._reset_exposure()

    def _reset_exposure(self) -> None:
        """Discard the exposure, and the list entries that were built from it."""
        self._exposure = None
        for tool in self._tools.values():
            self.registry.refresh(tool)

    def get_provided_primitives(self) -> Sequence[Tool]:
        """Return the tools that generic tools call; none if the server lists them itself."""
        if not self.is_generic:
            return ()
        tools: list[Tool] = []
        for name in self.tools:
            with self.registry.collect_errors(self.source, (self.tool_name(name),)):
                tools.append(self.get_tool(name))
        return tools

    def get_declarations(self) -> list[tuple[Callable[[], Primitive | Completer], str]]:
        """Return the declarations of tools, actions, row resources and marked methods."""
        names = () if self.is_generic else self.tool_names
        tools: list[Declaration] = [(partial(self.get_tool, name), f"{self.source}, {name}") for name in names]
        actions: list[Declaration] = [
            (
                partial(self._build, partial(build_action_tool, self, name, options=options), fn),
                f"{self.source}, {name}",
            )
            for name, (fn, options) in self._actions.items()
        ]
        return [*tools, *actions, *build_declarations(self), *super().get_declarations()]

    def get_tool(self, name: str) -> Tool:
        """See BaseModelToolset."""
        if name not in self._tools:
            with convert_failures(self.source):
                tool = self._build(partial(build_tool, self), name)
            assert isinstance(tool, Tool)
            self._tools[name] = tool
        return self._tools[name]


def get_base_toolset() -> type[ModelToolset]:
    """Return the base class of the project's model toolsets, `MCP["ORM"]["TOOLSET"]`.

    Raises:
        DeclarationError: the setting does not name a subclass of ModelToolset.
    """
    path = conf.orm().toolset
    base: Any = ModelToolset if path is None else import_string(path)
    if not (isinstance(base, type) and issubclass(base, ModelToolset)):
        raise DeclarationError(f'MCP["ORM"]["TOOLSET"] names {path!r}, which is not a subclass of ModelToolset')
    return base


def register_model(model: type[models.Model], *, server: str = "default", **options: Any) -> type[ModelToolset]:
    """Register a model with a toolset that has these options, without a class statement.

        for model in apps.get_app_config("shop").get_models():
            register_model(model, fields="__all__", exclude=[])

    The toolset extends `MCP["ORM"]["TOOLSET"]`, so that the hooks of the project decide about all such models.

    Raises:
        DeclarationError: an option is unknown.
    """
    base = get_base_toolset()
    unknown = next((name for name in options if not hasattr(base, name) and name != "model"), None)
    if unknown is not None:
        raise DeclarationError(f"register_model({model._meta.label}): {base.__name__} has no option {unknown!r}")
    name = f"{model.__name__}Toolset"
    toolset_class = type(name, (base,), {"__module__": model.__module__, "__qualname__": name, **options})
    return register(model, server=server)(toolset_class)


def _bind_inlines(toolset: ModelToolset) -> tuple[ModelInline, ...]:
    """Create the inlines of a toolset.

    Raises:
        DeclarationError: an inline is invalid or its name is taken.
    """
    inlines: dict[str, ModelInline] = {}
    for inline_class in toolset.inlines:
        if not (isinstance(inline_class, type) and issubclass(inline_class, ModelInline)):
            raise DeclarationError(
                f"{toolset.source}: inlines lists {inline_class!r}, which is not a ModelInline class"
            )
        inline = inline_class.under(toolset)
        if inline.name in inlines or inline.name == "pk" or toolset.has_field(inline.name):
            raise DeclarationError(
                f"{toolset.source}: the name {inline.name!r} is taken in its rows; give the inline another name"
            )
        inlines[inline.name] = inline
    return tuple(inlines.values())


def _check_confirm_option(toolset: ModelToolset) -> None:
    """Check that `confirm` contains only writing tools and actions of the toolset.

    Raises:
        DeclarationError: a name is unknown.
    """
    for name in toolset.confirm:
        is_form = name.endswith(FORM_SUFFIX)
        is_writing_tool = not is_form and TOOL_ACTIONS.get(name, "view") != "view" and name in toolset.tools
        if name not in toolset.action_titles and not is_writing_tool:
            raise DeclarationError(
                f"{toolset.source}: confirm names {name!r}, which is neither an action nor a writing tool of it"
            )
