"""`@action`: methods of a toolset that become tools for its rows.

    @action(permissions=["publish"], confirm=True)
    def publish(self, ctx: Context, queryset: QuerySet[Article], note: str = "") -> str: ...

A parameter `queryset` receives the rows that a client selects by their primary keys, as for an action of the admin. A
parameter `obj` receives a single row. A method with neither is an action of the model. All other parameters are
arguments of the tool.
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MethodType
from typing import Any, Literal, TypeVar, overload

from django.db.models import Model

from mcp_django.orm import admin_log
from mcp_django.orm.declaration.base import BaseModelToolset
from mcp_django.orm.rows.lookup import find_rows, get_label
from mcp_django.orm.rows.schema import pk_schema
from mcp_django.orm.schema import Schema, object_schema
from mcp_django.orm.tools.base import build_model_tool
from mcp_django.orm.writes.base import WriteOperation
from mcp_django.orm.writes.confirmation import format_values
from mcp_django.orm.writes.schema import dry_run_schema, idempotency_schema
from mcp_django.protocol.errors import InvalidParams, ToolError
from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject
from mcp_django.protocol.types import ToolAnnotations
from mcp_django.schema import (
    ANY_VALUE_SCHEMA,
    ArgumentError,
    CompiledOutput,
    CompiledParameters,
    DeclarationError,
    compile_output,
    compile_parameters,
    describe_callable,
    to_json,
)
from mcp_django.server.callables import is_async
from mcp_django.server.context.context import Context
from mcp_django.server.injection.handler import describe_source
from mcp_django.server.injection.parameters import get_injection, is_injected
from mcp_django.server.ports import ContextView, Principal
from mcp_django.server.primitives.base import STRICT, CallCheck, Confirmation, Permission, Tool, combine_permissions
from mcp_django.server.primitives.task_options import TaskOptions, parse_task

F = TypeVar("F", bound=Callable[..., Any])
_OPTIONS_ATTRIBUTE = "__mcp_action__"
_RESERVED_PARAMETERS = ("pk", "pks", "dry_run", "idempotency_key")
_DJANGO_PERMISSIONS = ("view", "add", "change", "delete")
_MAX_QUESTION_ROWS = 20
"""Maximum number of rows that a confirmation names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionOptions:
    """Options of `@action`."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    permissions: Sequence[str] = ("change",)
    confirm: Confirmation = False
    atomic: bool = True
    dry_run: bool = False
    destructive: bool = True
    idempotent: bool = False
    task: bool | Literal["required"] | TaskOptions = False

    def get_title(self, name: str) -> str:
        """Return the title of the action with this name."""
        return self.title or name.replace("_", " ")


@overload
def action(fn: F) -> F: ...
@overload
def action(
    fn: None = None,
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    permissions: Sequence[str] = ("change",),
    confirm: Confirmation = False,
    atomic: bool = True,
    dry_run: bool = False,
    destructive: bool = True,
    idempotent: bool = False,
    task: bool | Literal["required"] | TaskOptions = False,
) -> Callable[[F], F]: ...
def action(fn: Any = None, **options: Any) -> Any:
    """Make a method of a ModelToolset a tool for its rows.

    Each name in `permissions` selects a check, as in ModelAdmin. "change" calls `has_change_permission(ctx, obj)` for
    each row. "publish" calls `has_publish_permission(ctx, obj=None)` of the toolset. A name with a dot is a Django
    permission.

    With `confirm` the client's user must confirm the call first, with "strict" not in an app. The action runs in one
    transaction unless `atomic` is False. With `dry_run` clients can run it in a transaction that is rolled back. Use
    `dry_run` only for actions without effects outside of the database. `destructive` and `idempotent` are hints for
    clients. `task` lets calls become tasks, as for `mcp_django.tool`.
    """

    def mark(fn: F) -> F:
        setattr(fn, _OPTIONS_ATTRIBUTE, ActionOptions(**options))
        return fn

    return mark if fn is None else mark(fn)


def collect_actions(toolset: BaseModelToolset) -> dict[str, tuple[Callable[..., Any], ActionOptions]]:
    """Return the actions of a toolset by name.

    Actions are the marked methods of the class and the functions in its `actions`. Functions receive the toolset as
    their first argument, as functions in the admin receive the ModelAdmin.

    Raises:
        DeclarationError: `actions` lists an object that is not a function.
    """
    actions: dict[str, tuple[Callable[..., Any], ActionOptions]] = {}

    for name in dict.fromkeys(name for cls in reversed(type(toolset).__mro__) for name in vars(cls)):
        options = getattr(inspect.getattr_static(type(toolset), name, None), _OPTIONS_ATTRIBUTE, None)
        if options is not None:
            actions[options.name or name] = (getattr(toolset, name), options)

    for fn in toolset.actions:
        if not inspect.isfunction(fn):
            raise DeclarationError(f"{toolset.source}: actions lists {fn!r}; methods need no entry, only functions do")
        options_of_function: ActionOptions = getattr(fn, _OPTIONS_ATTRIBUTE, ActionOptions())
        actions[options_of_function.name or fn.__name__] = (MethodType(fn, toolset), options_of_function)

    return actions


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CompiledAction:
    """Action of a toolset, compiled from a method and its options."""

    name: str
    title: str
    fn: Callable[..., Any]
    row_parameter: str | None
    """Name of the parameter for the rows: "queryset", "obj" or None."""
    parameters: CompiledParameters
    injected: JSONMapping
    """Parameters that receive the Context or the Principal."""
    output: CompiledOutput | None
    confirm: Confirmation
    hooks: Sequence[Callable[..., bool]]
    """Permission hooks of the toolset, called for each call and each row."""
    permission: Permission | None
    """Django permissions of the tool, which is hidden from callers without them."""
    options: ActionOptions


class ActionCall(WriteOperation):
    """Write operation that calls an action's method."""

    def __init__(self, toolset: BaseModelToolset, ctx: Context, arguments: JSONObject, action: CompiledAction) -> None:
        super().__init__(toolset, ctx, arguments, name=action.name)
        self.atomic = action.options.atomic
        self.confirm = action.confirm
        self._action = action
        method_arguments = {
            name: value for name, value in arguments.items() if name in action.parameters.schema["properties"]
        }
        try:
            self._method_values = action.parameters.convert(method_arguments)
        except ArgumentError as problem:
            raise ToolError(str(problem)) from None
        self._method_arguments = method_arguments

    def build_question(self) -> tuple[str, tuple[str, ...]]:
        """See WriteOperation."""
        rows = self._find_rows(lock=False)
        labels = [get_label(self.toolset, self.ctx, row) for row in rows[:_MAX_QUESTION_ROWS]]
        if len(rows) > _MAX_QUESTION_ROWS:
            labels.append(f"{len(rows) - _MAX_QUESTION_ROWS} more")
        text = f"{self._action.title[:1].upper()}{self._action.title[1:]}"
        row_labels = f": {', '.join(labels)}" if labels else ""
        question = f"{text}{row_labels}?\n{format_values(self._method_arguments)}".rstrip("\n")
        return question, self.get_versions(rows)

    def execute(self) -> JSONObject:
        """See WriteOperation."""
        action, toolset, ctx = self._action, self.toolset, self.ctx
        rows = self._find_rows(lock=self.atomic)
        self.check_agreed_versions(rows)

        values = dict(self._method_values)
        for name, kind in action.injected.items():
            values[name] = ctx.principal if kind is Principal else ctx
        if action.row_parameter == "obj":
            values["obj"] = rows[0]
        elif action.row_parameter == "queryset":
            chosen = toolset.get_queryset(ctx).using(self.using)
            values["queryset"] = chosen.filter(pk__in=[row.pk for row in rows])

        value = action.fn(**values)
        result = to_json(value) if action.output is None else action.output.dump(value)
        if rows and not self.dry_run:
            toolset.log_write(ctx, rows, admin_log.CHANGE, action.title)
        return {"result": result, "rows": len(rows), "dry_run": self.dry_run}

    def _find_rows(self, *, lock: bool) -> list[Model]:
        if self._action.row_parameter is None:
            return []
        has_several_rows = self._action.row_parameter == "queryset"
        pks = self.arguments.content["pks"] if has_several_rows else [self.arguments.pk]
        return find_rows(self.toolset, self.ctx, pks, using=self.using, has_permission=self._has_permission, lock=lock)

    def _has_permission(self, ctx: Context, row: Model) -> bool:
        return all(hook(ctx, row) for hook in self._action.hooks)


def build_action_tool(toolset: BaseModelToolset, name: str, fn: Callable[..., Any], options: ActionOptions) -> Tool:
    """Build the tool of an action.

    Raises:
        DeclarationError: the method or its options are invalid.
    """
    compiled = _compile_action(toolset, name, fn, options)
    summary = describe_callable(fn).summary or f"{name} of {toolset.model._meta.verbose_name_plural}"

    def run(toolset: BaseModelToolset, ctx: Context, arguments: JSONObject) -> Any:
        if not all(hook(ctx) for hook in compiled.hooks):
            raise InvalidParams(f"Unknown tool: {toolset.prefix}{name}")
        return ActionCall(toolset, ctx, arguments, compiled).run()

    tool = build_model_tool(
        toolset,
        name,
        run,
        description=options.description or summary,
        arguments=lambda toolset: _build_arguments_schema(toolset, compiled),
        result=lambda toolset: _build_result_schema(compiled),
        annotations=ToolAnnotations(
            read_only=False,
            destructive=options.destructive,
            idempotent=options.idempotent,
            open_world=not options.atomic,
        ),
        atomic=(),
    )

    tool.title, tool.permission, tool.source = options.title, compiled.permission, describe_source(fn)
    tool.confirm = compiled.confirm
    tool.single_use_state = bool(compiled.confirm)
    tool.task = parse_task(fn, options.task)
    tool.call_checks = tuple(
        CallCheck(getattr(hook, "__name__", repr(hook)), hook, hides=True) for hook in compiled.hooks
    )
    return tool


def _compile_action(
    toolset: BaseModelToolset, name: str, fn: Callable[..., Any], options: ActionOptions
) -> CompiledAction:
    where = describe_source(fn)
    if is_async(fn):
        raise DeclarationError(
            f"{where}: an action must be a plain function (def), because transactions do not support async"
        )

    if options.dry_run and not options.atomic:
        raise DeclarationError(f"{where}: dry_run requires a transaction; remove atomic=False")

    names = list(inspect.signature(fn).parameters)
    row_parameters = [taken for taken in ("queryset", "obj") if taken in names]
    if len(row_parameters) > 1:
        raise DeclarationError(f"{where}: an action takes queryset or obj, not both")

    parameters = compile_parameters(fn, is_injected=is_injected, skip=row_parameters)
    injected = {parameter: get_injection(annotation) for parameter, annotation in parameters.injected.items()}
    for parameter, kind in injected.items():
        if kind not in (ContextView, Principal):
            raise DeclarationError(f"{where}: an action can only receive Context and Principal; remove {parameter!r}")
    for reserved in _RESERVED_PARAMETERS:
        if reserved in parameters.schema["properties"]:
            raise DeclarationError(f"{where}: the parameter {reserved!r} is reserved for the tool; choose another name")

    hooks, permission = _resolve_permissions(toolset, options, where)
    named = toolset.get_confirmation(name)
    if options.confirm == STRICT and toolset.confirm_fallback == "proceed":
        raise DeclarationError(f"{where}: confirm='strict' contradicts confirm_fallback='proceed' of the toolset")
    return CompiledAction(
        name=name,
        title=options.get_title(name),
        fn=fn,
        row_parameter=row_parameters[0] if row_parameters else None,
        parameters=parameters,
        injected=injected,
        output=compile_output(fn, is_content=lambda annotation: False),
        confirm=STRICT if STRICT in (options.confirm, named) else bool(options.confirm or named),
        hooks=hooks,
        permission=permission,
        options=options,
    )


def _resolve_permissions(
    toolset: BaseModelToolset, options: ActionOptions, where: str
) -> tuple[tuple[Callable[..., bool], ...], Permission | None]:
    """Return the hooks for each call, and the Django permissions of the tool.

    Callers without these Django permissions do not see the tool.
    """
    hooks: list[Callable[..., bool]] = []
    required: Permission | None = None
    for permission in options.permissions:
        if "." in permission:
            required = combine_permissions(required, permission)
            continue
        hook = getattr(toolset, f"has_{permission}_permission", None)
        if hook is None:
            raise DeclarationError(
                f"{where}: permissions names {permission!r}, and the toolset has no "
                f"has_{permission}_permission(ctx, obj)"
            )
        hooks.append(hook)
        if permission in _DJANGO_PERMISSIONS and not toolset.is_overridden(f"has_{permission}_permission"):
            required = combine_permissions(required, toolset.get_tool_permission(permission))

    return tuple(hooks), required


def _build_arguments_schema(toolset: BaseModelToolset, compiled: CompiledAction) -> Schema:
    properties: Schema = {}
    if compiled.row_parameter == "obj":
        properties["pk"] = pk_schema(toolset)
    elif compiled.row_parameter == "queryset":
        text = f"The primary keys of the {toolset.model._meta.verbose_name_plural}"
        array_limits = {"minItems": 1, "maxItems": toolset.max_limit, "uniqueItems": True}
        properties["pks"] = {"type": "array", "items": pk_schema(toolset), **array_limits, "description": text}

    required = tuple(properties)
    method_schema = compiled.parameters.schema
    properties |= method_schema["properties"]
    if compiled.options.dry_run:
        properties |= dry_run_schema(toolset)
    properties |= idempotency_schema(toolset)
    return object_schema(properties, (*required, *method_schema.get("required", ())), method_schema.get("$defs"))


def _build_result_schema(compiled: CompiledAction) -> Schema:
    output = compiled.output
    result: Schema = ANY_VALUE_SCHEMA
    definitions: Schema = {}
    if output is not None:
        definitions = output.schema.get("$defs", {})
        root = {key: value for key, value in output.schema.items() if key != "$defs"}
        result = (root["properties"]["result"] if output.is_wrapped else root) or ANY_VALUE_SCHEMA
    properties = {"result": result, "rows": {"type": "integer"}, "dry_run": {"type": "boolean"}}
    return object_schema(properties, ("result", "rows", "dry_run"), definitions)
