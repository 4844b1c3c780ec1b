"""Rules of hosts for the names, schemas and texts of listed tools.

The protocol allows more than hosts and the APIs behind them accept. Each rule has the host and the source of the fact.
Hosts change, so rules are hints for the author: system checks and `mcp_inspect` report them, and no tool is left out
because of them.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from mcp_django.schema.validation.complexity import iter_subschemas

ListEntry = Mapping[str, Any]
"""An entry of `tools/list`."""

MAX_DESCRIPTION_CHARACTERS = 1024
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ARGUMENT_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_ALTERNATIVES = ("anyOf", "oneOf", "allOf")
_WITHOUT_RULE = frozenset(
    {"title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly", "$comment"}
) | {"$schema", "$id", "$anchor", "$defs", "definitions"}
_LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems")


class HostReaction(StrEnum):
    """Reaction of a host to a violation of its rule."""

    REFUSES = "refuses"
    """The host refuses the tool, its results, or all requests with it."""
    LIMITS = "limits"
    """The host drops the keyword or cuts the text, or only some of its models refuse the tool."""


@dataclass(frozen=True, slots=True)
class HostRule:
    """A rule of a host."""

    name: str
    """Identifier, such as "tool-name"."""
    hosts: str
    source: str
    """Page or report with the fact."""
    reaction: HostReaction
    text: str
    """The violation in words, to follow the place."""
    remedy: str
    find_violations: Callable[[ListEntry], Iterable[str]]
    """Function that returns the places of violations in an entry, such as "the argument 'größe'"."""


@dataclass(frozen=True, slots=True)
class HostFinding:
    """A place in a list entry that violates a rule of a host."""

    tool: str
    place: str
    rule: HostRule

    def __str__(self) -> str:
        subject = f"the tool {self.tool!r}" if not self.place else f"the tool {self.tool!r}: {self.place}"
        return f"{subject} {self.rule.text}"


def find_host_findings(entries: Iterable[ListEntry]) -> Iterator[HostFinding]:
    """Yield the violations of all rules in entries of `tools/list`."""
    for entry in entries:
        for rule in HOST_RULES:
            for place in rule.find_violations(entry):
                yield HostFinding(str(entry.get("name")), place, rule)


def _find_invalid_name(entry: ListEntry) -> Iterator[str]:
    if not _TOOL_NAME.fullmatch(str(entry.get("name", ""))):
        yield ""


def _find_invalid_arguments(entry: ListEntry) -> Iterator[str]:
    for name in entry["inputSchema"].get("properties", {}):
        if not _ARGUMENT_NAME.fullmatch(name):
            yield f"the argument {name!r}"


def _find_root_alternatives(entry: ListEntry) -> Iterator[str]:
    yield from (f"the root of its input schema, {name}," for name in _ALTERNATIVES if name in entry["inputSchema"])


def _find_incomplete_roots(entry: ListEntry) -> Iterator[str]:
    schema = entry["inputSchema"]
    if schema.get("type") != "object" or not isinstance(schema.get("properties"), dict):
        yield "its input schema"


def _find_arrays_without_items(entry: ListEntry) -> Iterator[str]:
    for place, schema in _iter_parts(entry, "inputSchema"):
        if schema.get("type") == "array" and not isinstance(schema.get("items"), dict | list):
            yield place


def _find_output_formats(entry: ListEntry) -> Iterator[str]:
    for place, schema in _iter_parts(entry, "outputSchema"):
        if "format" in schema:
            yield f"{place}, {schema['format']!r},"


def _find_outside_references(entry: ListEntry) -> Iterator[str]:
    for place, schema in _iter_parts(entry, "inputSchema", "outputSchema"):
        reference = schema.get("$ref", "#")
        if not str(reference).startswith("#"):
            yield f"{place}, {reference!r},"


def _find_boolean_schemas(entry: ListEntry) -> Iterator[str]:
    for place, schema in _iter_parts(entry, "inputSchema", "outputSchema"):
        named = [value for key in ("properties", "$defs") for value in schema.get(key, {}).values()]
        listed = [value for key in _LISTS_OF_SCHEMAS for value in schema.get(key, ())]
        if any(isinstance(value, bool) for value in (*named, *listed)):
            yield place


def _find_type_lists(entry: ListEntry) -> Iterator[str]:
    for place, schema in _iter_parts(entry, "inputSchema", "outputSchema"):
        if isinstance(schema.get("type"), list):
            yield place


def _find_empty_schemas(entry: ListEntry) -> Iterator[str]:
    """Yield schemas without a rule, except under `items`: each array needs items, also one of any values."""
    for key in ("inputSchema", "outputSchema"):
        for position in iter_subschemas(entry.get(key, {"type": "object"})):
            if position.pointer[-1:] != ("items",) and not position.schema.keys() - _WITHOUT_RULE:
                yield _describe_place(key, position.pointer)


def _find_long_descriptions(entry: ListEntry) -> Iterator[str]:
    if len(str(entry.get("description") or "")) > MAX_DESCRIPTION_CHARACTERS:
        yield "its description"


def _iter_parts(entry: ListEntry, *keys: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the schemas inside an entry, each with its place."""
    for key in keys:
        for position in iter_subschemas(entry.get(key, {})):
            yield _describe_place(key, position.pointer), position.schema


def _describe_place(key: str, pointer: tuple[str, ...]) -> str:
    return "/".join((key, *pointer))


HOST_RULES: tuple[HostRule, ...] = (
    HostRule(
        "tool-name",
        "Claude, ChatGPT, Codex, VS Code",
        "https://platform.claude.com/docs/en/agents-and-tools/tool-use/implement-tool-use, openai/codex#8174, "
        "microsoft/vscode#308463",
        HostReaction.REFUSES,
        "has a name other than 1 to 64 letters without accents, digits, _ and -",
        "Give the tool a name= without dots, or its toolset, mount or proxy a shorter prefix.",
        _find_invalid_name,
    ),
    HostRule(
        "argument-name",
        "Claude",
        "freee/freee-mcp#15, decocms/studio#6874",
        HostReaction.REFUSES,
        "has a name other than 1 to 64 letters without accents, digits, _, - and .",
        "Rename the parameter, or write Annotated[…, Field(alias='…')] for it.",
        _find_invalid_arguments,
    ),
    HostRule(
        "root-alternatives",
        "Claude, VS Code",
        "anthropics/claude-code#40075, dearlordylord/huly-mcp#66",
        HostReaction.REFUSES,
        "is not an allowed keyword at the root of input schemas",
        "Describe the arguments as properties of one object, and check their combinations in the tool.",
        _find_root_alternatives,
    ),
    HostRule(
        "root-properties",
        "ChatGPT, agents on OpenAI's API",
        "openai/openai-agents-python#449",
        HostReaction.REFUSES,
        "has no properties",
        "Give the root of the schema type: object, and properties.",
        _find_incomplete_roots,
    ),
    HostRule(
        "array-items",
        "VS Code",
        "microsoft/vscode-copilot-chat, src/extension/tools/common/toolSchemaNormalizer.ts",
        HostReaction.REFUSES,
        "is an array without items",
        "Add items to the schema of the array.",
        _find_arrays_without_items,
    ),
    HostRule(
        "output-format",
        "clients on the official TypeScript SDK",
        "https://www.npmjs.com/package/ajv-formats",
        HostReaction.REFUSES,
        "is a format that the client checks in each result",
        "Remove the format from the output schema.",
        _find_output_formats,
    ),
    HostRule(
        "outside-reference",
        "all",
        "modelcontextprotocol/inspector, rule remote-ref",
        HostReaction.REFUSES,
        "is a reference that clients do not fetch",
        "Move the referenced schema to $defs.",
        _find_outside_references,
    ),
    HostRule(
        "boolean-schema",
        "clients with typed schemas",
        "modelcontextprotocol/inspector, rule boolean-schema",
        HostReaction.LIMITS,
        "has a boolean as a schema",
        "Write {} in place of true, and {'not': {}} in place of false.",
        _find_boolean_schemas,
    ),
    HostRule(
        "type-list",
        "Gemini",
        "modelcontextprotocol/inspector, rule type-union; zereight/gitlab-mcp#166",
        HostReaction.LIMITS,
        "has a list of types",
        "Write anyOf, with one type in each branch.",
        _find_type_lists,
    ),
    HostRule(
        "empty-schema",
        "Gemini",
        "modelcontextprotocol/inspector, rule untyped-schema; google-gemini/gemini-cli#4400",
        HostReaction.LIMITS,
        "has no type and no other rule",
        "Declare the type of the value.",
        _find_empty_schemas,
    ),
    HostRule(
        "long-description",
        "models on OpenAI's API, Claude Code from 2048 characters",
        "modelcontextprotocol/servers#799, anthropics/claude-code#41593",
        HostReaction.LIMITS,
        f"has more than {MAX_DESCRIPTION_CHARACTERS} characters",
        "Shorten the docstring, and move details to the descriptions of arguments.",
        _find_long_descriptions,
    ),
)
"""All known rules."""
