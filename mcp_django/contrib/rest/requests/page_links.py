"""Links to other pages of a list, as arguments of the tool.

A model cannot open a URL of the API. So a link from a page to another page of the same view becomes the arguments of
the call that returns that page.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

from django.http import HttpRequest
from rest_framework.pagination import CursorPagination, LimitOffsetPagination, PageNumberPagination

from mcp_django.contrib.http_tools.parameters import OperationParameter
from mcp_django.contrib.http_tools.tools import DESCRIPTIVE_KEYWORDS, Schema
from mcp_django.extensions.schemas import JSONMapping, JSONObject, any_of_types, list_types, strip_null

ArrangeArguments = Callable[[JSONMapping], JSONObject]
_LINK_TYPES = ({"string"}, {"string", "null"})
_LINK = re.compile(r"https?://|[^ ]*\?")
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_DESCRIPTIONS = {
    "next": "Arguments of this tool for the next page; null on the last page",
    "previous": "Arguments of this tool for the previous page; null on the first page",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLinks:
    """Conversion of the links in the pages of one view."""

    parameters: Mapping[str, OperationParameter]
    """Parameters of the paginator that are arguments of the tool."""
    first_page: Mapping[str, int] = field(default_factory=dict)
    """Values of the parameters that links to the first page omit."""
    unchanged: frozenset[tuple[str, ...]] = frozenset()
    """Members of a page whose declared type is not a link."""

    def convert(self, page: object, request: HttpRequest, arguments: JSONMapping, arrange: ArrangeArguments) -> object:
        """Return the page with arguments in place of links.

        `arguments` are those of the operation in the call whose `request` returned the page. `arrange` converts them
        to arguments of the tool. Rows, and links to other places, stay unchanged.
        """

        def convert_link(link: str) -> object:
            link_arguments = self._read_link(link, request.build_absolute_uri(), arguments)
            return link if link_arguments is None else arrange(link_arguments)

        return self._convert_members(page, (), convert_link) if isinstance(page, dict) else page

    def _convert_members(
        self, members: JSONObject, path: tuple[str, ...], convert_link: Callable[[str], object]
    ) -> JSONObject:
        converted = dict(members)
        for name, value in members.items():
            member_path = (*path, name)
            if isinstance(value, dict):
                converted[name] = self._convert_members(value, member_path, convert_link)
            elif isinstance(value, str) and _LINK.match(value) and member_path not in self.unchanged:
                converted[name] = convert_link(value)
        return converted

    def _read_link(self, link: str, request_url: str, arguments: JSONMapping) -> JSONObject | None:
        """Return the arguments of the call for a link; None for a link to another place."""
        changed = _find_changed_values(link, request_url)
        if not changed or not changed.keys() <= self.parameters.keys():
            return None

        found = {name: value for name, value in arguments.items() if value is not None}
        for name, texts in changed.items():
            if texts:
                found[name] = _read_values(self.parameters[name], texts)
            elif name in self.first_page:
                found[name] = self.first_page[name]
            else:
                found.pop(name, None)
        return found


def build_page_links(
    view: object, query: Mapping[str, OperationParameter], schema: Schema | None
) -> tuple[PageLinks | None, Schema | None]:
    """Return the conversion for a view, and the output schema with arguments in place of links.

    `query` has the query parameters of the tool. The conversion is None for a view without a paginator.
    """
    paginator = getattr(view, "paginator", None)
    if paginator is None:
        return None, schema
    described = [entry["name"] for entry in paginator.get_schema_operation_parameters(view)]
    parameters = {name: query[name] for name in described if name in query}
    first_page = {
        name: value
        for attribute, value in (("page_query_param", 1), ("offset_query_param", 0))
        if isinstance(name := getattr(paginator, attribute, None), str)
    }
    unchanged: set[tuple[str, ...]] = set()
    if schema is not None:
        schema = _convert_schema(schema, (), unchanged, is_certain=_is_certain(paginator, parameters))
    return PageLinks(parameters=parameters, first_page=first_page, unchanged=frozenset(unchanged)), schema


def _convert_schema(
    schema: Schema, path: tuple[str, ...], unchanged: set[tuple[str, ...]], *, is_certain: bool
) -> Schema:
    """Convert the links in the schema of a page; add the other members to `unchanged`."""
    given = schema.get("properties")
    if not isinstance(given, dict):
        return schema
    properties: JSONObject = {}
    for name, inner in given.items():
        member_path = (*path, name)
        properties[name] = inner
        if isinstance(inner, dict) and "properties" in inner:
            properties[name] = _convert_schema(inner, member_path, unchanged, is_certain=is_certain)
        elif _is_link_schema(inner):
            properties[name] = _build_link_schema(name, inner, is_certain=is_certain and not path)
        else:
            unchanged.add(member_path)
    return {**schema, "properties": properties}


def _is_link_schema(schema: object) -> bool:
    if not isinstance(schema, dict):
        return False
    value_schema = strip_null(schema)
    return value_schema.get("format") == "uri" and set(list_types(value_schema)) in _LINK_TYPES


def _build_link_schema(name: str, schema: Schema, *, is_certain: bool) -> Schema:
    """Return the schema of a converted link. A link to another place stays a string."""
    described = {key: value for key, value in schema.items() if key in DESCRIPTIVE_KEYWORDS}
    if name in _DESCRIPTIONS:
        described["description"] = _DESCRIPTIONS[name]
    types = ("object",) if is_certain and name in _DESCRIPTIONS else ("object", "string")
    return {**any_of_types(*types, "null"), **described}


def _is_certain(paginator: object, parameters: Mapping[str, OperationParameter]) -> bool:
    """Return True if each link of the paginator can be converted.

    Its links are those of DRF, and the tool has its parameters.
    """
    get_next_link = getattr(type(paginator), "get_next_link", None)
    if not str(getattr(get_next_link, "__module__", "")).startswith("rest_framework."):
        return False
    names: Sequence[Any] = ()
    if isinstance(paginator, PageNumberPagination):
        names = (paginator.page_query_param,)
    elif isinstance(paginator, LimitOffsetPagination):
        names = (paginator.limit_query_param, paginator.offset_query_param)
    elif isinstance(paginator, CursorPagination):
        names = (paginator.cursor_query_param,)
    return bool(names) and all(name in parameters for name in names)


def _find_changed_values(link: str, request_url: str) -> dict[str, list[str]]:
    """Return the query parameters in which a link differs from the request.

    A parameter that the link omits has an empty list. A link to another place has no differences.
    """
    current = urlsplit(request_url)
    try:
        target = urlsplit(urljoin(request_url, link))
    except ValueError:
        return {}
    if target[:3] != current[:3]:
        return {}
    before, after = (parse_qs(url.query, keep_blank_values=True) for url in (current, target))
    return {name: after.get(name, []) for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def _read_values(parameter: OperationParameter, texts: list[str]) -> object:
    """Return an argument for the texts of a query parameter."""
    if len(texts) > 1:
        return texts
    schema = parameter.schema if isinstance(parameter.schema, dict) else {}
    is_integer = schema.get("type") == "integer" and _INTEGER.fullmatch(texts[0])
    return int(texts[0]) if is_integer else texts[0]
