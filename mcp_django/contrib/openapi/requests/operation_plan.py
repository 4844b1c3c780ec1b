"""Operation plan: the arguments of an operation, and the request built from them.

Arguments have the names of the parameters. If several places use the same name, the first of path, query, header,
cookie and body keeps it. The other arguments get their place as a prefix: `query_id`, `body_id`. The members of
an object body with known members become arguments. Any other body is one argument, `body`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mcp_django.contrib.openapi.document.operations import Operation, parameter_entries
from mcp_django.contrib.openapi.document.references import References
from mcp_django.contrib.openapi.document.schemas import DESCRIPTION, Schema, Schemas, tellings
from mcp_django.contrib.openapi.requests.messages import Outgoing
from mcp_django.contrib.openapi.requests.parameters import Pairs, Parameter, PathTemplate, parameter_of, plain_text
from mcp_django.contrib.openapi.requests.request_body import Body, body_of
from mcp_django.protocol.headers import HeaderParam
from mcp_django.schema import ArgumentError, DeclarationError
from mcp_django.schema.custom_schema import check_schema
from mcp_django.schema.validation.validation import Checker

PLACES = ("path", "query", "header", "cookie")
BODY = "body"


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Maps the arguments of one operation to a request."""

    operation: Operation
    template: PathTemplate
    parameters: Mapping[str, Parameter]
    """Parameters by argument name."""
    body: Body | None = None
    members: Mapping[str, str] | None = None
    """Body members by argument name; None if the body is one argument."""
    whole: str = ""
    """Name of the argument with the whole body."""

    def request(self, arguments: Mapping[str, Any]) -> Outgoing:
        """Build the request. Raises ArgumentError for values that cannot be encoded."""
        path: dict[str, str] = {}
        plain: dict[str, str] = {}
        query: Pairs = []
        headers: Pairs = []
        cookies: Pairs = []
        for argument, parameter in self.parameters.items():
            if argument not in arguments:
                continue
            value = arguments[argument]
            if value is None and parameter.place != "path":
                continue  # Null cannot be encoded, so it is omitted.
            match parameter.place:
                case "path":
                    path[parameter.name] = parameter.segment(value)
                    plain[parameter.name] = plain_text(value)
                case "query":
                    query += parameter.pairs(value)
                case "header":
                    headers.append((parameter.name, parameter.line(value)))
                case _:
                    cookies += parameter.pairs(value)

        return Outgoing(
            method=self.operation.method,
            path=self.template.filled(path),
            query=query,
            headers=headers,
            cookies=cookies,
            body=self._content(arguments),
            arguments=plain,
        )

    def _content(self, arguments: Mapping[str, Any]) -> Any:
        body = self.body
        if body is None:
            return Outgoing("", "").body
        if self.members is None:
            return body.written(arguments[self.whole]) if self.whole in arguments else Outgoing("", "").body
        given = {member: arguments[name] for name, member in self.members.items() if name in arguments}
        if not given and not body.is_required:
            return Outgoing("", "").body
        return body.written(given)

    def schema(self, references: References, where: str) -> tuple[Schema, Checker]:
        """Build the JSON Schema of the arguments. Raises DeclarationError."""
        for made in tellings(lambda levels: self._schema(Schemas(references, given=True, levels=levels, where=where))):
            try:
                return made, check_schema(made, where)
            except DeclarationError:
                continue  # Too complex: try fewer levels.
        made = self._bare()
        return made, check_schema(made, where)

    def _schema(self, schemas: Schemas) -> Schema:
        properties: dict[str, Schema] = {}
        required: list[str] = []
        for argument, parameter in self.parameters.items():
            properties[argument] = _described(schemas.of(parameter.schema), parameter)
            if parameter.is_required:
                required.append(argument)

        body = self.body
        if body is not None and self.members is not None:
            for argument, member in self.members.items():
                properties[argument] = body.member(member, schemas)
                if body.is_required and member in body.required:
                    required.append(argument)
        elif body is not None:
            properties[self.whole] = body.whole(schemas)
            if body.is_required:
                required.append(self.whole)

        made = _object(properties, required)
        definitions = schemas.definitions()
        return {**made, "$defs": definitions} if definitions else made

    def _bare(self) -> Schema:
        names = [*self.parameters, *(self.members or ()), *([self.whole] if self.whole else [])]
        return _object({name: {} for name in names}, [n for n, p in self.parameters.items() if p.is_required])


class Arguments:
    """The parameters of a tool (`server.primitives.ToolParameters`)."""

    header_params: tuple[HeaderParam, ...] = ()

    def __init__(self, schema: Schema, checker: Checker) -> None:
        self.schema, self._checker = schema, checker

    def check(self, arguments: dict[str, Any]) -> None:
        """Raise ArgumentError for arguments that the schema rejects."""
        if not self._checker.is_valid(arguments):
            raise ArgumentError(self._checker.problems(arguments))

    def convert(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Wrap the arguments into one argument of the handler."""
        return {"arguments": arguments}


def plan_of(
    operation: Operation,
    references: References,
    where: str,
    *,
    without: Iterable[tuple[str, str]] = (),
    others: Sequence[str] = (),
) -> Plan:
    """Build the plan of an operation.

    `credential_parameters` are the parameters with credentials, which are not arguments. `other_paths` are the paths of
    other operations with the same method.

    Raises DeclarationError.
    """
    hidden = frozenset(without)
    entries = parameter_entries(operation, references, where)
    made = [parameter_of(entry, where) for entry in entries]
    known = [one for one in made if one is not None and (one.place, one.name.lower()) not in hidden]
    template = PathTemplate(operation.path, others)
    for name in template.names:
        if not any(one.place == "path" and one.name == name for one in known):
            known.append(Parameter(name, "path", {"type": "string"}, is_required=True, style="simple", explode=False))

    known = [one for one in known if one.place != "path" or one.name in template.names]
    parameters: dict[str, Parameter] = {}
    for place in PLACES:
        for one in known:
            if one.place == place:
                parameters[_free(one.name, place, parameters)] = one

    body = body_of(operation.entry.get("requestBody"), references, where)
    if body is None:
        return Plan(operation, template, parameters)
    if body.members is None:
        return Plan(operation, template, parameters, body, None, _free(BODY, "request", parameters))

    schemas = Schemas(references, given=True, where=where)
    members: dict[str, str] = {}
    for member, schema in body.members.items():
        if schemas.is_shown(schema):
            members[_free(member, BODY, {**parameters, **members})] = member

    return Plan(operation, template, parameters, body, members)


def _free(name: str, place: str, taken: Mapping[str, Any]) -> str:
    if name not in taken:
        return name
    found, number = f"{place}_{name}", 2
    while found in taken:
        found, number = f"{place}_{name}_{number}", number + 1
    return found


def _object(properties: Schema, required: list[str]) -> Schema:
    made: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**made, "required": required} if required else made


def _described(schema: Schema, parameter: Parameter) -> Schema:
    if parameter.description and "description" not in schema:
        schema = {**schema, "description": parameter.description[:DESCRIPTION]}
    if parameter.examples and "examples" not in schema:
        schema = {**schema, "examples": list(parameter.examples)}
    return {**schema, "deprecated": True} if parameter.is_deprecated else schema
