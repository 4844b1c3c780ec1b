"""Operation plan: the arguments of an operation, and the request built from them.

Arguments of the operation have the names of the parameters. If several places use the same name, the first of path,
query, header, cookie and body keeps it. The other arguments get their place as a prefix: `query_id`, `body_id`. The
members of an object body with known members become arguments. Any other body is one argument, `body`. A tool shows
them in the layout of `http_tools.argument_layout`.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp_django.contrib.http_tools.argument_layout import (
    ArgumentLayout,
    ArgumentValueError,
    OperationParameters,
    build_argument_layout,
)
from mcp_django.contrib.http_tools.parameters import OperationParameter, Pairs, to_text
from mcp_django.contrib.http_tools.tools import Schema
from mcp_django.contrib.openapi.document.operations import OpenAPIOperation, collect_parameters
from mcp_django.contrib.openapi.document.references import References
from mcp_django.contrib.openapi.document.schemas import (
    MAX_DESCRIPTION_CHARACTERS,
    OpenAPISchemas,
    build_checked_schema,
)
from mcp_django.contrib.openapi.requests.messages import OperationRequest
from mcp_django.contrib.openapi.requests.parameters import PathTemplate, read_parameter
from mcp_django.contrib.openapi.requests.request_body import RequestBody, read_body
from mcp_django.extensions.internal_requests import RequestContent
from mcp_django.extensions.schemas import check_schema

PLACES = ("path", "query", "header", "cookie")
BODY_ARGUMENT = "body"


@dataclass(frozen=True, slots=True, eq=False)
class OperationPlan:
    """Maps the arguments of one operation to a request."""

    operation: OpenAPIOperation
    template: PathTemplate
    parameters: Mapping[str, OperationParameter]
    """Parameters by argument name."""
    body: RequestBody | None = None
    body_arguments: Mapping[str, str] | None = None
    """Body members by argument name; None if the body is one argument."""
    body_argument: str = ""
    """Name of the argument with the whole body."""

    def build_request(self, arguments: Mapping[str, Any]) -> OperationRequest:
        """Build the request. Raises ArgumentError for values that cannot be encoded."""
        path: dict[str, str] = {}
        path_arguments: dict[str, str] = {}
        query: Pairs = []
        headers: Pairs = []
        cookies: Pairs = []
        for argument, parameter in self.parameters.items():
            if argument not in arguments:
                continue
            value = arguments[argument]
            if value is None and parameter.place != "path":
                continue  # Null cannot be encoded, so it is omitted.
            with _rename_errors({parameter.name: argument}):
                match parameter.place:
                    case "path":
                        path[parameter.name] = parameter.encode_segment(value)
                        path_arguments[parameter.name] = to_text(value)
                    case "query":
                        query += parameter.encode_pairs(value)
                    case "header":
                        headers.append((parameter.name, parameter.encode_header(value)))
                    case _:
                        cookies += parameter.encode_pairs(value)

        return OperationRequest(
            method=self.operation.method,
            path=self.template.fill(path),
            query=query,
            headers=headers,
            cookies=cookies,
            body=self._build_body(arguments),
            path_arguments=path_arguments,
        )

    def _build_body(self, arguments: Mapping[str, Any]) -> RequestContent:
        body = self.body
        if body is None:
            return RequestContent()
        if self.body_arguments is None:
            if self.body_argument not in arguments:
                return RequestContent()
            with _rename_errors({BODY_ARGUMENT: self.body_argument}):
                return body.encode(arguments[self.body_argument])
        body_values = {member: arguments[name] for name, member in self.body_arguments.items() if name in arguments}
        if not body_values and not body.is_required:
            return RequestContent()
        with _rename_errors({member: name for name, member in self.body_arguments.items()}):
            return body.encode(body_values)

    def build_parameters(self, references: References, label: str) -> OperationParameters:
        """Build the arguments of a tool, with their schema. Raises DeclarationError."""
        layout = self._build_layout()
        found = build_checked_schema(
            references,
            label,
            lambda schemas: layout.arrange_schema(self._build_full_schema(schemas)),
            is_input=True,
            shorten=layout.shorten_schema,
        )
        if found is None:
            schema = layout.arrange_schema(self._build_minimal_schema())
            found = layout.shorten_schema(schema), check_schema(schema, label)
        schema, checker = found
        return OperationParameters(schema, layout, checker)

    def _build_layout(self) -> ArgumentLayout:
        filters = [name for name, one in self.parameters.items() if one.place == "query" and not one.is_required]
        return build_argument_layout(self._list_arguments(), filters)

    def _list_arguments(self) -> list[str]:
        whole_body = [self.body_argument] if self.body_argument else []
        return [*self.parameters, *(self.body_arguments or ()), *whole_body]

    def _build_full_schema(self, schemas: OpenAPISchemas) -> Schema:
        properties: dict[str, Schema] = {}
        required: list[str] = []
        for argument, parameter in self.parameters.items():
            properties[argument] = _add_description(schemas.translate(parameter.schema), parameter)
            if parameter.is_required:
                required.append(argument)

        body = self.body
        if body is not None and self.body_arguments is not None:
            for argument, member in self.body_arguments.items():
                properties[argument] = body.build_member_schema(member, schemas)
                if body.is_required and member in body.required:
                    required.append(argument)
        elif body is not None:
            properties[self.body_argument] = body.build_schema(schemas)
            if body.is_required:
                required.append(self.body_argument)
        return _build_object_schema(properties, required)

    def _build_minimal_schema(self) -> Schema:
        return _build_object_schema(
            {name: {} for name in self._list_arguments()}, [n for n, p in self.parameters.items() if p.is_required]
        )


def build_plan(
    operation: OpenAPIOperation,
    references: References,
    label: str,
    *,
    credential_parameters: Iterable[tuple[str, str]] = (),
    other_paths: Sequence[str] = (),
) -> OperationPlan:
    """Build the plan of an operation.

    `credential_parameters` are the parameters with credentials, which are not arguments. `other_paths` are the paths of
    other operations with the same method.

    Raises DeclarationError.
    """
    hidden = frozenset(credential_parameters)
    entries = collect_parameters(operation, references, label)
    declared = [read_parameter(entry, label) for entry in entries]
    usable = [
        parameter
        for parameter in declared
        if parameter is not None and (parameter.place, parameter.name.lower()) not in hidden
    ]
    template = PathTemplate(operation.path, other_paths)
    for name in template.names:
        if not any(parameter.place == "path" and parameter.name == name for parameter in usable):
            usable.append(
                OperationParameter(name, "path", {"type": "string"}, is_required=True, style="simple", explode=False)
            )

    usable = [parameter for parameter in usable if parameter.place != "path" or parameter.name in template.names]
    parameters: dict[str, OperationParameter] = {}
    for place in PLACES:
        for parameter in usable:
            if parameter.place == place:
                parameters[_pick_argument_name(parameter.name, place, parameters)] = parameter

    body = read_body(operation.definition.get("requestBody"), references, label)
    if body is None:
        return OperationPlan(operation, template, parameters)
    if body.members is None:
        return OperationPlan(
            operation, template, parameters, body, None, _pick_argument_name(BODY_ARGUMENT, "request", parameters)
        )

    schemas = OpenAPISchemas(references, is_input=True, label=label)
    members: dict[str, str] = {}
    for member, schema in body.members.items():
        if schemas.is_included(schema):
            members[_pick_argument_name(member, BODY_ARGUMENT, {**parameters, **members})] = member

    return OperationPlan(operation, template, parameters, body, members)


@contextlib.contextmanager
def _rename_errors(arguments: Mapping[str, str]) -> Iterator[None]:
    """Raise errors of parameters or members again with the names of their arguments."""
    try:
        yield
    except ArgumentValueError as error:
        raise ArgumentValueError(arguments.get(error.argument, error.argument), error.problem, error.path) from None


def _pick_argument_name(name: str, place: str, taken: Mapping[str, Any]) -> str:
    if name not in taken:
        return name
    found, number = f"{place}_{name}", 2
    while found in taken:
        found, number = f"{place}_{name}_{number}", number + 1
    return found


def _build_object_schema(properties: Schema, required: list[str]) -> Schema:
    made: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**made, "required": required} if required else made


def _add_description(schema: Schema, parameter: OperationParameter) -> Schema:
    if parameter.description and "description" not in schema:
        schema = {**schema, "description": parameter.description[:MAX_DESCRIPTION_CHARACTERS]}
    if parameter.examples and "examples" not in schema:
        schema = {**schema, "examples": list(parameter.examples)}
    return {**schema, "deprecated": True} if parameter.is_deprecated else schema
