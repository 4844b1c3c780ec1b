"""Tools of forms: `@form_tool(CartForm)`.

The form validates the arguments, and its errors return to its fields.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, Unpack, cast

from django.forms import BaseForm

from mcp_django.contrib.apps.form_fields import build_field_schema
from mcp_django.exceptions import build_invalid_error
from mcp_django.extensions.calls import Context, Server
from mcp_django.extensions.errors import ArgumentError, DeclarationError
from mcp_django.extensions.primitives import Tool, ToolOptions, build_tool, describe_source, get_registry, is_async
from mcp_django.extensions.schemas import HeaderParam
from mcp_django.forms.questions import DjangoFormQuestion
from mcp_django.schema.validation.messages import describe_unknown

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class FormParameters:
    """Arguments of a tool that a form validates (`server.primitives.ToolParameters`).

    Only unknown names are refused before: other errors belong to fields.
    """

    schema: dict[str, Any]
    header_params: tuple[HeaderParam, ...] = ()

    def check(self, arguments: dict[str, Any]) -> None:
        """Raise ArgumentError for names that are no fields."""
        for name in arguments:
            if name not in self.schema["properties"]:
                raise ArgumentError(describe_unknown(name, self.schema["properties"], "argument"))

    def convert(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments."""
        return dict(arguments)


def form_tool(
    form: type[BaseForm], *, name: str | None = None, server: str | Server = "default", **options: Unpack[ToolOptions]
) -> Callable[[F], F]:
    """Register a function of a valid form as a tool: `@form_tool(CartForm)`.

    The visible fields of the form are the arguments. The function takes the valid form, and optionally the Context. If
    the form is invalid, the function does not run. The result is then an error with one line for each field, and with
    the messages by field, which `app_form` shows. `options` are those of `tool`.
    """
    registry = server.registry if isinstance(server, Server) else get_registry(server)

    def decorate(fn: F) -> F:
        source = describe_source(fn)
        registry.add(lambda: _build_form_tool(form, fn, name, options), source, name or fn.__name__)
        return fn

    return decorate


def build_form_schema(form: type[BaseForm]) -> dict[str, Any]:
    """Return the schema of the arguments of a form.

    Raises DeclarationError for a field that a tool cannot take.
    """
    unbound = form()
    shown = [bound for bound in unbound if not bound.field.disabled and not bound.is_hidden]
    required = [bound.name for bound in shown if bound.field.required]
    schema = {"type": "object", "properties": {bound.name: build_field_schema(bound) for bound in shown}}
    return {**schema, "required": required} if required else schema


def _build_form_tool(form: type[BaseForm], fn: Callable[..., Any], name: str | None, options: ToolOptions) -> Tool:
    takes_context = _takes_context(fn)

    def bind(arguments: dict[str, Any]) -> tuple[Any, ...]:
        bound = DjangoFormQuestion(form).bind(arguments)
        if bound.errors:
            raise build_invalid_error({field: [str(text) for text in texts] for field, texts in bound.errors.items()})
        return (bound,)

    def run(ctx: Context, **arguments: Any) -> Any:
        return fn(*bind(arguments), *((ctx,) if takes_context else ()))

    async def run_async(ctx: Context, **arguments: Any) -> Any:
        bound = await ctx.server.ports.executor.run(bind, arguments)
        return await fn(*bound, *((ctx,) if takes_context else ()))

    schema = build_form_schema(form)
    function: Any = run_async if is_async(fn) else run
    for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(function, attribute, getattr(fn, attribute))
    given = cast(ToolOptions, {**options, "input_schema": schema})
    return replace(build_tool(function, name, **given), parameters=FormParameters(schema))


def _takes_context(fn: Callable[..., Any]) -> bool:
    parameters = list(inspect.signature(fn).parameters)
    if not 1 <= len(parameters) <= 2:
        raise DeclarationError(f"{describe_source(fn)}: a form tool takes the form, and optionally the Context")
    return len(parameters) == 2
