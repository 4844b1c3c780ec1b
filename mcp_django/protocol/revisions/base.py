"""The table of a protocol revision, and functions that reduce objects to it.

The server builds each object once, in the richest form. A `Revision` converts such a wire object to its own form.
Inputs are never changed; without changes, the same object is returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal

from mcp_django.protocol import meta
from mcp_django.protocol.revisions import downgrade
from mcp_django.protocol.revisions.downgrade import Wire

_STATELESS_ONLY = frozenset({"resultType", "ttlMs", "cacheScope"})
_CAPABILITIES = frozenset(
    {"completions", "experimental", "extensions", "logging", "prompts", "resources", "tasks", "tools"}
)
_PARTS = frozenset({"annotations", "resource"})
_TASKS_EXTENSION = "io.modelcontextprotocol/tasks"


class Era(Enum):
    """The two eras of the protocol, by the way of connecting."""

    HANDSHAKE = "handshake"
    """``initialize`` once, then messages of a session in both directions."""
    STATELESS = "stateless"
    """Self-contained requests.

    The server responds ``input_required`` instead of sending requests.
    """


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Revision:
    """A revision of the protocol.

    Compare revisions as objects, never through the version string.
    """

    version: str
    """Date in wire form; an identifier, not a quantity."""
    era: Era
    methods: frozenset[str]
    """Requests that a client may send. An unlisted method is method-not-found."""
    notifications: frozenset[str]
    """Notifications that the revision defines, in either direction."""
    client_notifications: frozenset[str]
    """Notifications that a client may send."""
    client_requests: frozenset[str]
    """Requests that a server may send, also as entries of ``inputRequests``."""

    implementation_fields: frozenset[str]
    tool_fields: frozenset[str]
    tool_annotation_fields: frozenset[str]
    prompt_fields: frozenset[str]
    argument_fields: frozenset[str]
    """Fields of an argument of a prompt."""
    resource_fields: frozenset[str]
    template_fields: frozenset[str]
    contents_fields: frozenset[str]
    """Fields of the contents of a resource, read or embedded."""
    annotation_fields: frozenset[str]
    """Fields of ``annotations`` on content, resources and templates."""
    content: Mapping[str, frozenset[str]]
    """Content block types, and the fields of each."""
    capabilities: frozenset[str]
    """Server capabilities.

    Keys that no revision defines are custom and pass unchanged.
    """

    batches: bool = False
    """True if a JSON array of messages is accepted."""
    resource_not_found: int = -32002
    """Error code for a resource that does not exist."""
    structured: Literal["none", "object", "any"] = "none"
    """Allowed values of ``structuredContent``."""
    elicitation: frozenset[str] = frozenset()
    """Modes of elicitation: ``form``, ``url``."""
    elicitation_id: bool = False
    """True if a url elicitation has an ``elicitationId``."""
    form_defaults: frozenset[str] = frozenset()
    """JSON types of form properties that may have a ``default``."""
    form_titled_enums: bool = False
    """True if choices of a form have titles by ``oneOf``, else by ``enumNames``."""
    form_multi_select: bool = False
    """True if a form property may be an array of choices."""
    polling: bool = False
    """True if the server may close the connection of a stream that continues.

    Each stream then opens with an event that has an id and no data, which clients of other revisions cannot read.
    """
    sampling: frozenset[str] = frozenset()
    """Optional features of sampling, if the client has them: ``tools``, ``context``."""
    sampling_content: frozenset[str] = frozenset({"text", "image"})
    """Types of the blocks in messages to and from the client's model."""
    sampling_lists: bool = False
    """True if a sampling message may hold several blocks."""
    completion_context: bool = False
    """True if ``completion/complete`` carries the arguments chosen before."""
    argument_errors_in_result: bool = False
    """True if invalid tool arguments give an ``isError`` result, not invalid params."""
    url_elicitation_error: bool = False
    """True if a request may fail with URLElicitationRequired."""
    progress_message: bool = False
    """True if progress may have a ``message``."""
    result_type: bool = False
    """True if every result must have a ``resultType``."""
    cacheable: frozenset[str] = frozenset()
    """Methods whose complete results have ``ttlMs`` and ``cacheScope``."""
    input_required_methods: frozenset[str] = frozenset()
    """Methods that may respond ``input_required``."""
    core_tasks: bool = False
    """True if the protocol itself has tasks: a client asks for one with ``params.task``."""
    boolean_properties: bool = False
    """True if root ``properties`` of a tool's schema may be ``true`` or ``false``."""
    verbatim: bool = False
    """True for the richest form, in which content and results pass unchanged."""

    def __repr__(self) -> str:
        return f"<Revision {self.version}>"

    def with_changes(
        self,
        *,
        add: Mapping[str, Iterable[str]] | None = None,
        remove: Mapping[str, Iterable[str]] | None = None,
        **facts: Any,
    ) -> Revision:
        """Return the next revision, with changed fields.

        `add` and `remove` change sets of names; `facts` replace other fields.
        """
        for field, names in (add or {}).items():
            facts[field] = getattr(self, field) | frozenset(names)
        for field, names in (remove or {}).items():
            facts[field] = facts.get(field, getattr(self, field)) - frozenset(names)
        return replace(self, **facts)

    def shape_implementation(self, implementation: Wire) -> Wire:
        """Reduce ``serverInfo`` to the fields of this revision."""
        return downgrade.keep_fields(implementation, self.implementation_fields)

    def shape_capabilities(self, capabilities: Wire) -> Wire:
        """Remove server capabilities that this revision does not define.

        ``extensions`` pass everywhere, because both eras negotiate extensions. Only the tasks extension is limited to
        the stateless era.
        """
        unknown = _CAPABILITIES - self.capabilities
        if not unknown.isdisjoint(capabilities):
            capabilities = {key: value for key, value in capabilities.items() if key not in unknown}
        extensions = capabilities.get("extensions")
        if extensions and self.era is Era.HANDSHAKE and _TASKS_EXTENSION in extensions:
            rest = {key: value for key, value in extensions.items() if key != _TASKS_EXTENSION}
            return downgrade.add_field(capabilities, "extensions", rest or None)
        return capabilities

    def shape_tool(self, tool: Wire) -> Wire:
        """Reduce an entry of ``tools/list``.

        An output schema in an unsupported form is removed.
        """
        shaped = downgrade.keep_fields(tool, self.tool_fields)
        annotations = shaped.get("annotations")
        if annotations is not None:
            shaped = downgrade.add_field(
                shaped, "annotations", downgrade.keep_fields(annotations, self.tool_annotation_fields)
            )

        output = shaped.get("outputSchema")
        if output is not None and self.structured == "object" and output.get("type") != "object":
            shaped = downgrade.add_field(shaped, "outputSchema", None)

        if self.boolean_properties:
            return shaped
        for key in ("inputSchema", "outputSchema"):
            schema = shaped.get(key)
            if schema is not None:
                shaped = downgrade.add_field(shaped, key, downgrade.without_boolean_properties(schema))
        return shaped

    def shape_prompt(self, prompt: Wire) -> Wire:
        """Reduce an entry of ``prompts/list``."""
        shaped = downgrade.keep_fields(prompt, self.prompt_fields)
        arguments = shaped.get("arguments")
        if not arguments:
            return shaped
        return downgrade.add_field(
            shaped,
            "arguments",
            downgrade.shape_each(arguments, lambda item: downgrade.keep_fields(item, self.argument_fields)),
        )

    def shape_resource(self, resource: Wire) -> Wire:
        """Reduce an entry of ``resources/list``."""
        return self._annotated(downgrade.keep_fields(resource, self.resource_fields))

    def shape_template(self, template: Wire) -> Wire:
        """Reduce an entry of ``resources/templates/list``."""
        return self._annotated(downgrade.keep_fields(template, self.template_fields))

    def shape_content(self, block: Wire) -> Wire:
        """Reduce a content block, and replace a block of an unsupported type.

        Audio becomes an embedded resource, a resource link a text with its name and URI.
        """
        if self.verbatim:
            return block

        fields = self.content.get(block["type"])
        if fields is not None and block.keys() <= fields and _PARTS.isdisjoint(block):
            return block
        if fields is None:
            block = downgrade.replace_block(block)
            fields = self.content[block["type"]]

        shaped = self._annotated(downgrade.keep_fields(block, fields))
        embedded = shaped.get("resource")
        if embedded is not None:
            shaped = downgrade.add_field(shaped, "resource", downgrade.keep_fields(embedded, self.contents_fields))
        return shaped

    def shape_contents(self, contents: list[Wire]) -> list[Wire]:
        """Reduce the contents of a resource."""
        if self.verbatim:
            return contents
        return downgrade.shape_each(contents, lambda item: downgrade.keep_fields(item, self.contents_fields))

    def shape_result(self, result: Wire) -> Wire:
        """Remove the stateless era's members from any result, in the handshake era."""
        if self.result_type:
            return result
        if not _STATELESS_ONLY.isdisjoint(result):
            result = {key: value for key, value in result.items() if key not in _STATELESS_ONLY}
        info = result.get("_meta")
        if info is not None and meta.SERVER_INFO in info:
            rest = {key: value for key, value in info.items() if key != meta.SERVER_INFO}
            return downgrade.add_field(result, "_meta", rest or None)
        return result

    def shape_call_result(self, result: Wire) -> Wire:
        """Reduce a result of ``tools/call``; removed structured content remains as text."""
        if self.verbatim:
            return result
        shaped = self.shape_result(result)
        content = downgrade.shape_each(shaped["content"], self.shape_content)
        if "structuredContent" in shaped:
            value = shaped["structuredContent"]
            if self.structured == "none" or (self.structured == "object" and not isinstance(value, dict)):
                content = downgrade.with_text_of(content, value)
                shaped = {key: kept for key, kept in shaped.items() if key != "structuredContent"}
        return downgrade.add_field(shaped, "content", content)

    def shape_read_result(self, result: Wire) -> Wire:
        """Reduce a result of ``resources/read``."""
        if self.verbatim:
            return result
        shaped = self.shape_result(result)
        return downgrade.add_field(shaped, "contents", self.shape_contents(shaped["contents"]))

    def shape_prompt_result(self, result: Wire) -> Wire:
        """Reduce a result of ``prompts/get``."""
        if self.verbatim:
            return result
        shaped = self.shape_result(result)
        messages = downgrade.shape_each(
            shaped["messages"],
            lambda message: downgrade.add_field(message, "content", self.shape_content(message["content"])),
        )
        return downgrade.add_field(shaped, "messages", messages)

    def shape_sampling_message(self, message: Wire) -> list[Wire]:
        """Convert a message for the client's model, whose content is a list of blocks.

        Returns one message, or one for each block if the revision does not support lists.

        Raises:
            ValueError: sampling in this revision does not support the type of a block.
        """
        blocks = downgrade.shape_each(message["content"], self._sampled)
        if self.sampling_lists:
            return [{**message, "content": blocks[0] if len(blocks) == 1 else blocks}]
        return [{"role": message["role"], "content": block} for block in blocks]

    def _sampled(self, block: Wire) -> Wire:
        kind = block["type"]
        if kind not in self.sampling_content:
            raise ValueError(f"sampling in revision {self.version} has no {kind.replace('_', ' ')}")
        if kind == "tool_result":
            return self.shape_call_result(block)
        return self.shape_content(block) if kind in self.content else block

    def requested_schema(self, schema: Wire) -> Wire:
        """Reduce the schema of an elicitation form.

        Raises:
            ValueError: the revision has no forms, or does not support the named property.
        """
        if "form" not in self.elicitation:
            raise ValueError(f"revision {self.version} has no elicitation forms")
        if self.form_titled_enums and self.form_multi_select:
            return schema

        properties = {
            name: downgrade.form_property(name, field, self.form_defaults)
            for name, field in schema["properties"].items()
        }
        shaped: Wire = {"type": "object", "properties": properties}
        if "required" in schema:
            shaped["required"] = schema["required"]
        return shaped

    def _annotated(self, item: Wire) -> Wire:
        annotations = item.get("annotations")
        if annotations is None:
            return item
        kept = downgrade.keep_fields(annotations, self.annotation_fields)
        return downgrade.add_field(item, "annotations", kept or None)
