"""Tools and resources of operations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mcp_django.contrib.openapi.document.operations import Operation
from mcp_django.contrib.openapi.document.references import References
from mcp_django.contrib.openapi.document.routes import Route
from mcp_django.contrib.openapi.requests.credentials import Credentials
from mcp_django.contrib.openapi.requests.messages import Outgoing, Reply, Transport
from mcp_django.contrib.openapi.requests.operation_plan import Arguments, Plan
from mcp_django.contrib.openapi.requests.parameters import Pairs
from mcp_django.contrib.openapi.responses import answer_of, contents, result_of
from mcp_django.protocol.errors import ToolError
from mcp_django.protocol.types import ToolAnnotations
from mcp_django.protocol.uri import UriTemplate
from mcp_django.schema import DeclarationError
from mcp_django.server.calls.callables import run
from mcp_django.server.context.context import Context
from mcp_django.server.injection.handler import Handler
from mcp_django.server.primitives.base import Primitive, Resource, ResourceTemplate, Tool
from mcp_django.server.primitives.decorators import NAME, build_tool

DESCRIPTION = 4000
"""Maximum characters of an operation's description."""
Extra = Mapping[str, str] | Callable[[Context], Any] | None
READING, REPLACING = frozenset({"GET"}), frozenset({"PUT", "DELETE"})


@dataclass(frozen=True, slots=True, repr=False)
class Sender:
    """The transport, credentials and headers shared by all operations of a toolset."""

    transport: Transport
    credentials: Credentials
    headers: Extra

    async def ask(self, maker: "Maker", arguments: Any, ctx: Context) -> tuple[Reply, Callable[[str], str]]:
        """Send a request; return the reply and a function that redacts its texts.

        Raises ArgumentError and ToolError.
        """
        request, alternatives = maker.plan.request(arguments), maker.alternatives
        # The last header of a name is sent, so callers cannot override headers of the project.
        headers = [*request.headers, *await self._extra(ctx)]
        request = replace(request, headers=headers, timeout=maker.route.timeout)
        # A view of this project gets the user of the call without them.
        filled = await self.credentials.fill(request, alternatives, ctx, must=self.transport.is_remote)
        return await self._sent(filled.request, ctx), filled.cleaned

    async def _sent(self, request: Outgoing, ctx: Context) -> Reply:
        return await self.transport.send(request, ctx)

    @property
    def own_headers(self) -> set[tuple[str, str]]:
        """Known headers set by the project, as ("header", name)."""
        return {("header", name.lower()) for name in self.headers} if isinstance(self.headers, Mapping) else set()

    async def _extra(self, ctx: Context) -> Pairs:
        given = self.headers
        if callable(given):
            given = await run(given, ctx.server.executor, ctx)
        return [(str(name), str(value)) for name, value in (given or {}).items()]


@dataclass(frozen=True, slots=True, eq=False)
class Maker:
    """Builds the primitives of one operation."""

    operation: Operation
    route: Route
    plan: Plan
    alternatives: Sequence[Sequence[str]]
    sender: Sender
    references: References
    source: str

    def tool(self, name: str, prefix: str) -> Tool:
        """Create the tool. Raises DeclarationError."""
        if not NAME.fullmatch(f"{prefix}{name}"):
            raise DeclarationError(
                f"{self.source}: the name {prefix + name!r} must have 1 to 64 letters, digits, or one of _ - ."
            )

        schema, checker = self.plan.schema(self.references, self.source)
        answer = answer_of(self.operation, self.references, self.source)

        async def call(context: Context, arguments: dict[str, Any]) -> Any:
            reply, cleaned = await self.sender.ask(self, arguments, context)
            try:
                return result_of(reply, answer)
            except ToolError as problem:
                raise ToolError(cleaned(str(problem)), meta=problem.meta) from None

        tool = build_tool(
            _nothing,
            name,
            description=self.description,
            annotations=self.annotations,
            **self._common(),
        )
        tool.title = self.route.title or self.operation.summary[:200] or None
        tool.parameters, tool.output = Arguments(schema, checker), answer
        tool.handler = Handler(call, {"context": Context}, atomic=self._atomic)
        tool.source = self.source
        return tool

    def resource(self, name: str, scheme: str) -> Primitive:
        """Create the resource, or a template for variables. Raises DeclarationError."""
        self._require_reading()
        template, variables = self._template(scheme)
        plan = self.plan
        required = [argument for argument, one in plan.parameters.items() if one.is_required]

        async def read(context: Context, arguments: dict[str, Any]) -> Any:
            missing = [name for name in required if name not in arguments]
            if missing:
                raise ToolError(f"The URI needs {', '.join(missing)}")
            reply, cleaned = await self.sender.ask(self, arguments, context)
            try:
                return contents(reply)
            except ToolError as problem:
                raise ToolError(cleaned(str(problem))) from None

        common: dict[str, Any] = {
            **self._common(),
            "name": name,
            "title": self.route.title or self.operation.summary[:200] or None,
            "description": self.description,
            "source": self.source,
        }
        common.pop("timeout", None)
        handler = Handler(read, {"context": Context}, atomic=self._atomic)
        if template.is_static:

            async def read_it(context: Context) -> Any:
                return await read(context, {})

            handler = Handler(read_it, {"context": Context}, atomic=self._atomic)
            made: Primitive = Resource(**common, uri=template.text, handler=handler)
        else:
            made = ResourceTemplate(
                **common, template=template, convert=lambda found: _read(found, variables, plan), handler=handler
            )
        made.timeout = self.route.timeout
        return made

    @property
    def description(self) -> str:
        """Description of the route, or else summary and description of the document."""
        if self.route.description:
            return self.route.description
        summary, said = self.operation.summary, self.operation.description
        text = said if said.startswith(summary) else f"{summary}\n\n{said}" if said else summary
        text = text.strip() or str(self.operation)
        if self.operation.is_deprecated:
            text = f"Deprecated. {text}"
        return text if len(text) <= DESCRIPTION else f"{text[: DESCRIPTION - 1]}…"

    @property
    def annotations(self) -> ToolAnnotations:
        """Annotations of the route, or else of the HTTP method (RFC 9110, section 9.2)."""
        said = ToolAnnotations.of(self.route.annotations)
        if said is not None:
            return said
        method, remote = self.operation.method, self.sender.transport.is_remote
        if method in READING:
            return ToolAnnotations(read_only=True, open_world=remote)
        return ToolAnnotations(
            read_only=False,
            destructive=method != "POST",
            idempotent=method in REPLACING,
            open_world=remote,
        )

    @property
    def _atomic(self) -> Any:
        """Databases in a transaction: none, because remote calls may be slow.

        Views of this project manage their own transactions.
        """
        return ()

    def _common(self) -> dict[str, Any]:
        given: dict[str, Any] = {"tags": self.operation.tags, "scopes": tuple(self.route.scopes)}
        if self.route.permission is not None:
            given["permission"] = self.route.permission
        if self.route.timeout is not None:
            given["timeout"] = self.route.timeout
        return given

    def _require_reading(self) -> None:
        if self.operation.method != "GET" or self.plan.body is not None:
            raise DeclarationError(f"{self.source}: only a GET without a body can be a resource")
        for argument, one in self.plan.parameters.items():
            if one.is_required and one.place in ("header", "cookie"):
                raise DeclarationError(
                    f"{self.source}: needs {argument!r} in the {one.place}, which a URI cannot provide"
                )

    def _template(self, scheme: str) -> tuple[UriTemplate, dict[str, str]]:
        """Build the URI template, and the argument of each of its variables."""
        variables = {_variable(argument): argument for argument in self.plan.parameters}
        wanted = {
            one.name: _variable(argument) for argument, one in self.plan.parameters.items() if one.place == "path"
        }
        path = self.operation.path
        for name, variable in wanted.items():
            path = path.replace(f"{{{name}}}", f"{{{variable}}}")

        asked = [_variable(name) for name, one in self.plan.parameters.items() if one.place == "query"]
        text = self.route.uri or f"{scheme}:/{path}" + (f"{{?{','.join(asked)}}}" if asked else "")
        try:
            template = UriTemplate(text)
        except ValueError as problem:
            raise DeclarationError(f"{self.source}: {problem}; give its Route a uri") from None

        unknown = [name for name in template.variables if name not in variables]
        missing = [name for name in wanted.values() if name not in template.variables]
        if unknown or missing or not text.partition(":")[1]:
            told = f"has no {unknown[0]}" if unknown else f"needs {missing[0]}" if missing else "has no scheme"
            raise DeclarationError(f"{self.source}: the URI {text!r} does not fit; the operation {told}")

        return template, variables


def _read(found: Mapping[str, Any], variables: Mapping[str, str], plan: Plan) -> dict[str, Any]:
    """Convert the variables of a URI to arguments: texts, or lists if declared."""
    arguments: dict[str, Any] = {}
    for variable, value in found.items():
        argument = variables[variable]
        schema = plan.parameters[argument].schema
        is_list = isinstance(schema, Mapping) and schema.get("type") == "array" and isinstance(value, str)
        arguments[argument] = value.split(",") if is_list else value
    return {"arguments": arguments}


def _variable(argument: str) -> str:
    plain = "".join(char if char.isascii() and (char.isalnum() or char == "_") else "_" for char in argument)
    return plain if plain[:1].isalpha() or plain[:1] == "_" else f"_{plain}"


def _nothing() -> None:
    """Stand in for the handler while `build_tool` checks the options."""
