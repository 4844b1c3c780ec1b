"""Handlers of extensions, and the decorators that declare them: methods, notifications, subscriptions."""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar, Unpack

from mcp_django.protocol.headers import NAMED_PARAMS
from mcp_django.protocol.jsonrpc import JSONObject
from mcp_django.protocol.revisions import REVISIONS, Era, Revision
from mcp_django.schema import ArgumentError, DeclarationError, SchemaChecker, compile_output, compile_parameters
from mcp_django.server.calls.call import Call
from mcp_django.server.composition.extension import Extension
from mcp_django.server.context.context import Context
from mcp_django.server.injection.handler import Handler, describe_source
from mcp_django.server.injection.parameters import is_injected
from mcp_django.server.primitives.base import Primitive, ToolOutput
from mcp_django.server.primitives.decorators import PrimitiveOptions, build_common_options, parse_atomic
from mcp_django.server.primitives.results import ExtensionResult

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
_DECLARATIONS_ATTRIBUTE = "__mcp_extension_declarations__"
_PARAMETERS_ATTRIBUTE = "__mcp_extension_parameters__"
_BODY_ATTRIBUTE = "__mcp_extension_body__"
_NOTIFICATION_PREFIX = "notifications/"
_METHOD = re.compile(r"[A-Za-z][A-Za-z0-9_.\-]*(?:/[A-Za-z0-9_.\-]+)+")
_FIELD = re.compile(r"[A-Za-z][A-Za-z0-9_]*")


def get_call(ctx: Context) -> Call:
    """Return the call that a handler of an extension answers, from its context."""
    return ctx.call


class MethodParameters:
    """Parameters of a method or notification: members of `params`, in the notation of the wire.

    A parameter `entry_id` takes the member `entryId`.
    """

    def __init__(self, fn: Callable[..., object]) -> None:
        self._compiled = compile_parameters(fn, is_injected=is_injected)
        schema = self._compiled.schema
        self.names = {_to_camel_case(name): name for name in schema.get("properties", {})}
        """Members to parameters."""
        self.injected = self._compiled.injected
        self._checker = SchemaChecker(
            {
                **schema,
                "properties": {wire: schema["properties"][name] for wire, name in self.names.items()},
                "required": [_to_camel_case(name) for name in schema.get("required", ())],
            }
        )

    def convert(self, params: JSONObject) -> dict[str, Any]:
        """Check the known members and convert them to keyword arguments. Raises ArgumentError."""
        known = {wire: params[wire] for wire in self.names if wire in params}
        if not self._checker.is_valid(known):
            raise ArgumentError(self._checker.describe_problems(known, "parameter"))
        return self._compiled.convert({self.names[wire]: value for wire, value in known.items()})


def _to_camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


@dataclass(kw_only=True, eq=False)
class ExtensionHandler(Primitive):
    """Handler of an extension. It is not listed; its permission and hooks are those of any primitive."""

    extension: Extension

    def _wire(self) -> JSONObject:
        return self._common()

    def to_list_entry(self, revision: Revision) -> JSONObject:
        return self.wire


@dataclass(kw_only=True, eq=False)
class ExtensionMethod(ExtensionHandler):
    """A request that clients may send."""

    kind: ClassVar[str] = "method"

    parameters: MethodParameters
    output: ToolOutput | None
    """Result; None if the function returns the body itself."""
    name_param: str | None = None
    """Member of `params` that the `Mcp-Name` header mirrors, if the client sends the header."""
    requires_declaration: bool = True
    """True if only clients that declare the extension may send it."""
    eras: frozenset[Era] = frozenset(Era)
    """Eras in which the method exists."""

    def supports_revision(self, revision: Revision) -> bool:
        """Return True if the method exists in `revision`."""
        return revision.era in self.eras and self.extension.supports_revision(revision)


@dataclass(kw_only=True, eq=False)
class ExtensionNotification(ExtensionHandler):
    """A notification that clients may send."""

    kind: ClassVar[str] = "notification"

    parameters: MethodParameters


@dataclass(kw_only=True, eq=False)
class ExtensionSubscription(ExtensionHandler):
    """A member of the filter of `subscriptions/listen`: keys whose changes the client follows."""

    kind: ClassVar[str] = "subscription"

    notification: str
    """Method of the notification of a change."""


class _Declaration(NamedTuple):
    """A marked function of an extension class."""

    kind: type[ExtensionHandler]
    name: str
    options: PrimitiveOptions
    members: JSONObject


def method(
    name: str,
    *,
    name_param: str | None = None,
    requires_declaration: bool = True,
    eras: Collection[Era] = tuple(Era),
    **options: Unpack[PrimitiveOptions],
) -> Callable[[F], F]:
    """Mark a function of an extension as the handler of a request.

    `name` is the method on the wire, such as "audit/list". The parameters of the function are the members of `params`,
    checked and converted by their annotations. The parameter `entry_id` takes the member `entryId`; unknown members are
    ignored. The function returns the result's body, a
    JSON object, or an `ExtensionResult`. `permission`, `scopes` and the other options work as for tools. A client
    without permission receives "method not found".

    `name_param` is the member of `params` that clients mirror into the `Mcp-Name` header. With
    `requires_declaration=False`, clients that do not declare the extension may send the method, too. `eras` limits the
    method to one era.
    """
    members = {
        "name_param": name_param,
        "requires_declaration": requires_declaration,
        "eras": frozenset(eras),
    }
    return _mark(_Declaration(ExtensionMethod, name, options, members))


def notification(name: str, **options: Unpack[PrimitiveOptions]) -> Callable[[F], F]:
    """Mark a function of an extension as the handler of a notification from clients.

    `name` begins with "notifications/". Notifications of the stateless era declare no capabilities, so they are not
    bound to the declaration. Invalid ones, and those without permission, are ignored.
    """
    return _mark(_Declaration(ExtensionNotification, name, options, {}))


def subscription(field: str, *, notification: str, **options: Unpack[PrimitiveOptions]) -> Callable[[F], F]:
    """Mark a function of an extension as the reader of a filter member of `subscriptions/listen`.

    `field` is the member, an array of strings, such as "auditIds". The function takes one of these keys and returns the
    params of `notification`, or None if the caller may not follow the key. It runs before the subscription is
    acknowledged, and before each notification. `mcp_django.extensions.notify_extension_key` reports a change.
    """
    return _mark(_Declaration(ExtensionSubscription, field, options, {"notification": notification}))


def _mark(declaration: _Declaration) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        vars(function)[_DECLARATIONS_ATTRIBUTE] = (
            *getattr(function, _DECLARATIONS_ATTRIBUTE, ()),
            declaration,
        )
        return function

    return decorate


def build_handlers(extension: Extension) -> Iterator[ExtensionHandler]:
    """Yield the handlers that the class of an extension declares. Raises DeclarationError."""
    for attribute in dict.fromkeys(name for cls in reversed(type(extension).__mro__) for name in vars(cls)):
        marked = getattr(type(extension), attribute, None)
        for declaration in getattr(marked, _DECLARATIONS_ATTRIBUTE, ()):
            yield _build(extension, getattr(extension, attribute), declaration)


def _build(extension: Extension, fn: Callable[..., object], declaration: _Declaration) -> ExtensionHandler:
    source, kind, name = describe_source(fn), declaration.kind, declaration.name
    _check_name(kind, name, source)
    parameters = _compile_once(fn, _PARAMETERS_ATTRIBUTE, MethodParameters)
    members = dict(declaration.members)

    if kind is ExtensionSubscription:
        if list(parameters.names) != ["key"]:
            raise DeclarationError(f"{source}: the reader of a subscription takes one parameter, `key: str`")
    else:
        members["parameters"] = parameters
    if kind is ExtensionMethod:
        members["output"] = _compile_once(fn, _BODY_ATTRIBUTE, _compile_body)
        if members["name_param"] is not None and members["name_param"] not in parameters.names:
            raise DeclarationError(f"{source}: name_param={members['name_param']!r} is not a parameter")

    return kind(
        **build_common_options(fn, declaration.options, PrimitiveOptions),
        **members,
        name=name,
        extension=extension,
        handler=Handler(fn, parameters.injected, atomic=parse_atomic(fn, declaration.options.get("atomic"))),
        source=source,
    )


def _compile_once(fn: Callable[..., object], attribute: str, compile_function: Callable[[Callable[..., Any]], T]) -> T:
    """Return the result of `compile_function` for a marked function, cached in its attribute.

    All servers with the extension share it: to compile the annotations takes most of the time that a server needs to
    start.
    """
    kept = vars(getattr(fn, "__func__", fn))
    if attribute not in kept:
        kept[attribute] = compile_function(fn)
    compiled: T = kept[attribute]
    return compiled


def _check_name(kind: type[ExtensionHandler], name: str, source: str) -> None:
    """Check the name of a handler. Raises DeclarationError."""
    if kind is ExtensionSubscription:
        if not _FIELD.fullmatch(name):
            raise DeclarationError(f"{source}: {name!r} is not a name of a filter member, such as 'auditIds'")
        return
    if not _METHOD.fullmatch(name) or name.startswith(_NOTIFICATION_PREFIX) is not (kind is ExtensionNotification):
        example = "notifications/audit/seen" if kind is ExtensionNotification else "audit/list"
        raise DeclarationError(f"{source}: {name!r} is not a name of a {kind.kind}, such as {example!r}")
    if name in NAMED_PARAMS or any(name in each.methods | each.notifications for each in REVISIONS.values()):
        raise DeclarationError(f"{source}: the protocol itself defines {name!r}")


def _compile_body(fn: Callable[..., object]) -> ToolOutput | None:
    """Compile the return annotation of a method. Raises DeclarationError."""
    output = compile_output(fn, is_content=lambda annotation: annotation is ExtensionResult)
    if output is not None and output.is_wrapped:
        source = describe_source(fn)
        raise DeclarationError(f"{source}: the result of a method is a JSON object; return a dict or a dataclass")
    return output
