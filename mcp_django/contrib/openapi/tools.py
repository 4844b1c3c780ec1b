"""Tools and resources of operations."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from mcp_django.contrib.http_tools.argument_layout import OperationParameters
from mcp_django.contrib.http_tools.parameters import Pairs
from mcp_django.contrib.http_tools.replies import OperationReply
from mcp_django.contrib.http_tools.tools import Schema, build_method_annotations, build_operation_tool
from mcp_django.contrib.openapi.document.operations import OpenAPIOperation
from mcp_django.contrib.openapi.document.references import References
from mcp_django.contrib.openapi.document.routes import Route
from mcp_django.contrib.openapi.requests.credentials import OperationCredentials, list_credential_parameters
from mcp_django.contrib.openapi.requests.messages import OperationTransport
from mcp_django.contrib.openapi.requests.operation_plan import OperationPlan, build_plan
from mcp_django.contrib.openapi.responses import (
    OpenAPIToolOutput,
    build_output,
    build_resource_contents,
    build_tool_result,
)
from mcp_django.extensions.calls import Context, truncate
from mcp_django.extensions.errors import DeclarationError, ToolError
from mcp_django.extensions.primitives import (
    NAME_PATTERN,
    Handler,
    Primitive,
    Resource,
    ResourceTemplate,
    Tool,
    UriTemplate,
    run_callable,
)
from mcp_django.extensions.schemas import HeaderParam
from mcp_django.types import ToolAnnotations

MAX_DESCRIPTION_CHARACTERS = 4000
"""Maximum characters of an operation's description."""
ExtraHeaders = Mapping[str, str] | Callable[[Context], Any] | None
NO_TRANSACTION: tuple[str, ...] = ()
"""Databases in a transaction: none, because remote calls may be slow.

Views of this project manage their own transactions.
"""


@dataclass(frozen=True, slots=True, repr=False)
class OperationSender:
    """The transport, credentials and headers shared by all operations of a toolset."""

    transport: OperationTransport
    credentials: OperationCredentials
    headers: ExtraHeaders

    async def send(
        self, builder: "OperationBuilder", arguments: Any, ctx: Context, convert: Callable[[OperationReply], Any]
    ) -> Any:
        """Send a request and convert the reply; texts of errors are redacted.

        Raises ArgumentError and ToolError.
        """
        request, alternatives = builder.plan.build_request(arguments), builder.alternatives
        # The last header of a name is sent, so callers cannot override headers of the project.
        headers = [*request.headers, *await self._get_extra_headers(ctx)]
        request = replace(request, headers=headers, timeout=builder.route.timeout)
        # A view of this project gets the user of the call without them.
        authenticated = await self.credentials.add_credentials(
            request, alternatives, ctx, is_required=self.transport.is_remote
        )
        reply = await self.transport.send(authenticated.request, ctx)
        try:
            return convert(reply)
        except ToolError as problem:
            raise ToolError(authenticated.redact(str(problem)), meta=problem.meta) from None

    @property
    def project_headers(self) -> set[tuple[str, str]]:
        """Known headers set by the project, as ("header", name)."""
        return {("header", name.lower()) for name in self.headers} if isinstance(self.headers, Mapping) else set()

    async def _get_extra_headers(self, ctx: Context) -> Pairs:
        headers = self.headers
        if callable(headers):
            headers = await run_callable(headers, ctx.server.ports.executor, ctx)
        return [(str(name), str(value)) for name, value in (headers or {}).items()]


class DeferredParameters:
    """Arguments of a tool that are built at their first use (`server.primitives.ToolParameters`)."""

    header_params: tuple[HeaderParam, ...] = ()

    def __init__(self, builder: "OperationBuilder") -> None:
        self._builder = builder

    @property
    def schema(self) -> Schema:
        """Return the JSON Schema that clients see."""
        return self._builder.parameters.schema

    def check(self, arguments: dict[str, Any]) -> None:
        """Check arguments against the schema. Raises ArgumentError."""
        self._builder.parameters.check(arguments)

    def convert(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of the operation as one argument."""
        return self._builder.parameters.convert(arguments)


@dataclass(eq=False)
class OperationBuilder:
    """Builds the primitives of one operation."""

    operation: OpenAPIOperation
    route: Route
    sender: OperationSender
    references: References
    source: str
    other_paths: Sequence[str]
    """Paths of other operations with the same method."""

    @cached_property
    def alternatives(self) -> list[list[str]]:
        """Alternative groups of security schemes; empty if no credentials are needed."""
        return [list(entry) for entry in self.operation.security if isinstance(entry, Mapping)]

    @cached_property
    def plan(self) -> OperationPlan:
        """Plan of the requests. Raises DeclarationError."""
        hidden = list_credential_parameters(self.alternatives, self.sender.credentials.schemes)
        return build_plan(
            self.operation,
            self.references,
            self.source,
            credential_parameters=hidden | self.sender.project_headers,
            other_paths=self.other_paths,
        )

    @cached_property
    def parameters(self) -> OperationParameters:
        """Arguments of the tool. Raises DeclarationError."""
        return self.plan.build_parameters(self.references, self.source)

    @cached_property
    def output(self) -> OpenAPIToolOutput | None:
        """Output of the tool; None if nothing can be checked."""
        return build_output(self.operation, self.references, self.source)

    def create_tool(self, name: str, prefix: str, *, is_deferred: bool = False) -> Tool:
        """Create the tool.

        If `is_deferred`, its arguments are built at their first use, and it has no output schema.

        Raises DeclarationError.
        """
        if not NAME_PATTERN.fullmatch(f"{prefix}{name}"):
            raise DeclarationError(
                f"{self.source}: the name {prefix + name!r} must have 1 to 64 letters, digits, or one of _ - ."
            )

        async def call(context: Context, arguments: dict[str, Any]) -> Any:
            with self.parameters.layout.translate_errors():
                return await self.sender.send(self, arguments, context, partial(build_tool_result, output=self.output))

        tool = build_operation_tool(
            call,
            name,
            source=self.source,
            parameters=DeferredParameters(self) if is_deferred else self.parameters,
            output=None if is_deferred else self.output,
            atomic=NO_TRANSACTION,
            description=self.description,
            annotations=self.annotations,
            **self._build_common(),
        )
        tool.title = self.title
        return tool

    def create_resource(self, name: str, scheme: str) -> Primitive:
        """Create the resource, or a template for variables. Raises DeclarationError."""
        self._check_readable()
        template, variables = self._build_template(scheme)
        plan = self.plan
        required = [argument for argument, one in plan.parameters.items() if one.is_required]

        async def read(context: Context, arguments: dict[str, Any]) -> Any:
            missing = [name for name in required if name not in arguments]
            if missing:
                raise ToolError(f"The URI needs {', '.join(missing)}")
            return await self.sender.send(self, arguments, context, build_resource_contents)

        common: dict[str, Any] = {
            **self._build_common(),
            "name": name,
            "title": self.title,
            "description": self.description,
            "source": self.source,
        }
        common.pop("timeout", None)
        handler = Handler(read, {"context": Context}, atomic=NO_TRANSACTION)
        if template.is_static:

            async def read_it(context: Context) -> Any:
                return await read(context, {})

            handler = Handler(read_it, {"context": Context}, atomic=NO_TRANSACTION)
            primitive: Primitive = Resource(**common, uri=template.text, handler=handler)
        else:
            primitive = ResourceTemplate(
                **common,
                template=template,
                convert=lambda found: _parse_variables(found, variables, plan),
                handler=handler,
            )
        primitive.timeout = self.route.timeout
        return primitive

    @property
    def title(self) -> str | None:
        """Title of the route, or else the summary of the document."""
        return self.route.title or self.operation.summary[:200] or None

    @property
    def description(self) -> str:
        """Description of the route, or else summary and description of the document."""
        if self.route.description:
            return self.route.description
        summary, details = self.operation.summary, self.operation.description
        text = details if details.startswith(summary) else f"{summary}\n\n{details}"
        text = text.strip() or str(self.operation)
        if self.operation.is_deprecated:
            text = f"Deprecated. {text}"
        return truncate(text, MAX_DESCRIPTION_CHARACTERS)

    @property
    def annotations(self) -> ToolAnnotations:
        """Annotations of the route, or else of the HTTP method (RFC 9110, section 9.2)."""
        route_annotations = ToolAnnotations.of(self.route.annotations)
        if route_annotations is not None:
            return route_annotations
        method = self.operation.method
        return build_method_annotations(method, creates=method == "POST", open_world=self.sender.transport.is_remote)

    def _build_common(self) -> dict[str, Any]:
        options: dict[str, Any] = {"tags": self.operation.tags, "scopes": tuple(self.route.scopes)}
        if self.route.permission is not None:
            options["permission"] = self.route.permission
        if self.route.timeout is not None:
            options["timeout"] = self.route.timeout
        return options

    def _check_readable(self) -> None:
        if self.operation.method != "GET" or self.plan.body is not None:
            raise DeclarationError(f"{self.source}: only a GET without a body can be a resource")
        for argument, one in self.plan.parameters.items():
            if one.is_required and one.place in ("header", "cookie"):
                raise DeclarationError(
                    f"{self.source}: needs {argument!r} in the {one.place}, which a URI cannot provide"
                )

    def _build_template(self, scheme: str) -> tuple[UriTemplate, dict[str, str]]:
        """Build the URI template, and the argument of each of its variables."""
        variables = {_to_variable_name(argument): argument for argument in self.plan.parameters}
        path_variables = {
            one.name: _to_variable_name(argument)
            for argument, one in self.plan.parameters.items()
            if one.place == "path"
        }
        text = self.route.uri or self._build_default_uri(scheme, path_variables)
        try:
            template = UriTemplate(text)
        except ValueError as problem:
            raise DeclarationError(f"{self.source}: {problem}; give its Route a uri") from None
        if misfit := _find_misfit(template, variables, path_variables.values()):
            raise DeclarationError(f"{self.source}: the URI {text!r} does not fit; the operation {misfit}")
        return template, variables

    def _build_default_uri(self, scheme: str, path_variables: Mapping[str, str]) -> str:
        """Build the text of the URI template from the path; `path_variables` are the variables by parameter."""
        path = self.operation.path
        for name, variable in path_variables.items():
            path = path.replace(f"{{{name}}}", f"{{{variable}}}")
        query_variables = [
            _to_variable_name(name) for name, one in self.plan.parameters.items() if one.place == "query"
        ]
        return f"{scheme}:/{path}" + (f"{{?{','.join(query_variables)}}}" if query_variables else "")


def _find_misfit(template: UriTemplate, known: Collection[str], required: Iterable[str]) -> str | None:
    """Return the reason why a template does not fit an operation with these variables; None if it fits."""
    unknown = [name for name in template.variables if name not in known]
    if unknown:
        return f"has no {unknown[0]}"
    missing = [name for name in required if name not in template.variables]
    if missing:
        return f"needs {missing[0]}"
    return None if ":" in template.text else "has no scheme"


def _parse_variables(values: Mapping[str, Any], variables: Mapping[str, str], plan: OperationPlan) -> dict[str, Any]:
    """Convert the variables of a URI to arguments: texts, or lists if declared."""
    arguments: dict[str, Any] = {}
    for variable, value in values.items():
        argument = variables[variable]
        schema = plan.parameters[argument].schema
        is_list = isinstance(schema, Mapping) and schema.get("type") == "array" and isinstance(value, str)
        arguments[argument] = value.split(",") if is_list else value
    return {"arguments": arguments}


def _to_variable_name(argument: str) -> str:
    plain = "".join(char if char.isascii() and (char.isalnum() or char == "_") else "_" for char in argument)
    return plain if plain[:1].isalpha() or plain[:1] == "_" else f"_{plain}"
