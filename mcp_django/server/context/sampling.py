"""Sampling (client/sampling): one or more requests to the client's model.

Further requests follow while the model uses tools or has to correct its answer. Each request carries the whole
conversation. Results of tools are recorded like those of `run_once`: the stateless era repeats the handler, but no
finished tool runs twice.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from mcp_django.protocol import jsonrpc
from mcp_django.protocol.jsonrpc import JSONMapping, JSONObject
from mcp_django.protocol.sampling_types import SamplingInput, ToolUseContent, blocks_of, build_messages
from mcp_django.schema import ArgumentError, compile_text_parser
from mcp_django.server.calls.call import Call
from mcp_django.server.context.conversation import (
    MAX_ATTEMPTS,
    ClientConversation,
    InputRequest,
    InputUnavailable,
    InvalidInputResponse,
)
from mcp_django.server.primitives.base import Tool

if TYPE_CHECKING:
    from mcp_django.server.context.context import Context

T = TypeVar("T")
Wire = JSONObject
OfferedTool = str | Callable[..., object] | Tool | JSONMapping
"""A tool for a sampling request.

It is the name of a tool of the server, the function of one, any other function, a Tool, or a definition in wire form:
`{"name": …, "description": …, "inputSchema": {…}}`.
"""
TOOL_CHOICES = ("auto", "required", "none")
INCLUDE_CONTEXTS = ("none", "thisServer", "allServers")
DEFAULT_MAX_TOKENS = 1024
DEFAULT_MAX_ITERATIONS = 8
"""Default limit; in the stateless era clients accept ten rounds by default."""
MODEL_PRIORITIES = ("costPriority", "speedPriority", "intelligencePriority")


@dataclass(frozen=True, slots=True)
class SamplingResult(Generic[T]):
    """Message of the client's model."""

    content: list[Wire]
    """Content blocks, unchanged."""
    model: str
    stop_reason: str | None = None
    """`endTurn`, `stopSequence`, `maxTokens`, `toolUse`, or a value of the client."""
    result: T | None = None
    """Value of type `result_type`; the text without a type."""
    messages: list[Wire] = field(default_factory=list)
    """Conversation including this message, in the form of the protocol.

    Append messages and sample again to continue it.
    """

    @property
    def text(self) -> str:
        """Text blocks, joined."""
        return "".join(block["text"] for block in self.content if block["type"] == "text")

    @property
    def tool_uses(self) -> list[ToolUseContent]:
        """Tool uses that the handler has to answer."""
        blocks = [block for block in self.content if block["type"] == "tool_use"]
        return [ToolUseContent(block["id"], block["name"], block["input"], block.get("_meta")) for block in blocks]

    def __str__(self) -> str:
        return self.text


def build_request_options(call: Call, given: JSONMapping) -> Wire:
    """Return the request members other than messages and tools, by wire name.

    Raises ValueError for values that no client could read.
    """
    options = {name: value for name, value in given.items() if value is not None}
    limit = options["maxTokens"]
    if type(limit) is not int or limit < 1:
        raise ValueError("max_tokens must be a positive integer")
    if "stopSequences" in options:
        options["stopSequences"] = [str(sequence) for sequence in options["stopSequences"]]

    if "modelPreferences" in options:
        options["modelPreferences"] = _build_model_preferences(options["modelPreferences"])
    included = options.get("includeContext", "none")
    if included not in INCLUDE_CONTEXTS:
        raise ValueError(f"include_context must be one of {', '.join(INCLUDE_CONTEXTS)}")
    if included != "none" and "context" in call.revision.sampling and not call.supports({"sampling": {"context": {}}}):
        # A preference that clients may ignore. Clients without the declared capability SHOULD NOT receive it.
        del options["includeContext"]
    return options


def _build_model_preferences(given: str | Sequence[str] | JSONMapping) -> Wire:
    if isinstance(given, str):
        return {"hints": [{"name": given}]}
    if not isinstance(given, Mapping):
        return {"hints": [{"name": str(name)} for name in given]}
    for name in MODEL_PRIORITIES:
        value = given.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
            raise ValueError(f"model_preferences: {name} must be a number from 0 to 1")
    return dict(given)


class SamplingTools(Protocol):
    """The tools of one sampling request: `execution.sampling_tools.Toolbox`."""

    definitions: list[JSONMapping]
    """Definitions for the model, in the form of the call's revision."""

    def is_definition_only(self, name: str) -> bool:
        """Return True for a plain definition, whose uses the handler must run."""

    async def run(self, call: Call, use: JSONMapping, scope: str, outer: ClientConversation) -> Wire:
        """Run one use of a tool and return the CallToolResult body."""


async def prepare_sampling(
    context: "Context",
    messages: SamplingInput | Sequence[SamplingInput],
    *,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    system_prompt: str | None = None,
    temperature: float | None = None,
    stop_sequences: Sequence[str] | None = None,
    model_preferences: str | Sequence[str] | JSONMapping | None = None,
    include_context: str | None = None,
    metadata: Mapping[str, object] | None = None,
    tools: Sequence[OfferedTool] | None = None,
    tool_choice: str | None = None,
    max_iterations: int = DEFAULT_MAX_ITERATIONS,
    result_type: object = None,
    key: str | None = None,
) -> "SamplingLoop":
    """Create the sampling loop of `Context.sample`.

    Raises ValueError, TypeError or DeclarationError for invalid arguments.
    """
    options = {
        "maxTokens": max_tokens,
        "systemPrompt": system_prompt,
        "temperature": temperature,
        "stopSequences": stop_sequences,
        "modelPreferences": model_preferences,
        "includeContext": include_context,
        "metadata": metadata,
    }

    call = context.call
    request_options = build_request_options(call, options)
    result_reader = None if result_type in (None, str) else compile_text_parser(result_type)
    if tool_choice is not None and tool_choice not in TOOL_CHOICES:
        raise ValueError(f"tool_choice must be one of {', '.join(TOOL_CHOICES)}")
    if tool_choice is not None and not tools:
        raise ValueError("tool_choice needs tools")
    if tools and max_iterations < 0:
        raise ValueError("max_iterations must not be negative")

    toolbox = await call.server.build_toolbox(call, tools) if tools else None
    conversation = build_messages(messages)
    if result_reader is not None:
        conversation = _add_schema_instruction(conversation, result_reader.schema)
    return SamplingLoop(
        context,
        request_options,
        conversation,
        key=key,
        result_reader=result_reader,
        toolbox=toolbox,
        tool_choice=tool_choice if tools else None,
        max_iterations=max_iterations if tools else 0,
    )


class SamplingLoop:
    """Loop of one `ctx.sample`: requests to the model, tool runs and retries.

    `request_message` and `process_message` alternate until the result is complete.
    """

    def __init__(
        self,
        context: "Context",
        options: Wire,
        messages: list[Wire],
        *,
        key: str | None,
        result_reader: Any,
        toolbox: SamplingTools | None,
        tool_choice: str | None,
        max_iterations: int,
    ) -> None:
        self._context = context
        self._call = context.call
        self._options = options
        self._messages = messages
        self._key = key
        self._result_reader = result_reader
        self._toolbox = toolbox
        self._tool_choice = tool_choice
        self._max_iterations = max_iterations
        self._iteration = 0
        self._attempt = 1
        self._scope = self._assign_scope(messages)
        self._latest_result: SamplingResult[object] | None = None

    @property
    def _is_last(self) -> bool:
        """True if the model may use no more tools."""
        return bool(self._max_iterations) and self._iteration == self._max_iterations

    async def request_message(self) -> None:
        """Request a message from the model and wait for it."""
        self._latest_result = await self._context.request_input(
            self._build_request("none" if self._is_last else self._tool_choice)
        )

    async def process_message(self) -> SamplingResult[Any] | None:
        """Return the result if it is complete; else run the used tools and return None."""
        result = self._latest_result
        assert result is not None
        if result.content:
            self._messages = [*self._messages, {"role": "assistant", "content": result.content}]
        uses = [block for block in result.content if block["type"] == "tool_use"]

        if not uses:
            return self._parse_result(result)
        if self._must_return_tool_uses(uses):
            return replace(result, messages=self._messages)
        if self._is_last:
            raise InputUnavailable(f"The model used tools after the limit of {self._iteration} iterations")

        self._iteration += 1
        self._tool_choice = None if self._tool_choice == "required" else self._tool_choice
        results = await self._run_tools(uses, f"{self._scope}.{self._iteration}")
        self._messages = [*self._messages, {"role": "user", "content": results}]
        return None

    async def run(self) -> SamplingResult[Any]:
        """Run the loop until the result is complete."""
        while True:
            await self.request_message()
            result = await self.process_message()
            if result is not None:
                return result

    def _parse_result(self, result: SamplingResult[object]) -> SamplingResult[object] | None:
        """Return the result with its value; None if the model must correct it."""
        if self._result_reader is None:
            return replace(result, result=result.text, messages=self._messages)
        try:
            return replace(result, result=self._result_reader.parse(result.text), messages=self._messages)
        except ArgumentError as problem:
            reason = _describe_problem(result, problem)
        if self._attempt == MAX_ATTEMPTS:
            raise InputUnavailable(f"The model gave no valid answer in {MAX_ATTEMPTS} attempts: {reason}")
        self._attempt += 1
        self._messages = [
            *self._messages,
            _build_user_message(f"That cannot be used: {reason}. Answer again, with JSON only."),
        ]
        return None

    def _build_request(self, choice: str | None) -> InputRequest:
        messages = self._messages
        definitions = [] if self._toolbox is None else self._toolbox.definitions
        with_tools = definitions or any(block["type"].startswith("tool_") for m in messages for block in m["content"])
        needs: Wire = {"sampling": {"tools": {}} if with_tools else {}}
        params: Wire = {"messages": _shape_messages(self._call, messages, needs), **self._options}
        if definitions:
            params["tools"] = definitions
            if choice is not None:
                params["toolChoice"] = {"mode": choice}
        return InputRequest("sampling/createMessage", params, needs, _build_parser(bool(definitions)), self._key)

    def _must_return_tool_uses(self, uses: list[Wire]) -> bool:
        toolbox = self._toolbox
        return (
            toolbox is None or not self._max_iterations or any(toolbox.is_definition_only(use["name"]) for use in uses)
        )

    def _assign_scope(self, messages: list[Wire]) -> str:
        """Return the unique name of this sampling in its call, used as scope of its tools."""
        if self._toolbox is None:
            return ""
        name = self._key or f"sampling-{short_digest(messages)}"
        names = self._context.sampling_scopes = self._context.sampling_scopes or Counter()
        names[name] += 1
        return name if names[name] == 1 else f"{name}-{names[name]}"

    async def _run_tools(self, uses: list[Wire], scope: str) -> list[Wire]:
        """Run the tools one after the other, because they share the thread of the call."""
        return [await self._run_tool(use, f"{scope}.{number}") for number, use in enumerate(uses, 1)]

    async def _run_tool(self, use: Wire, scope: str) -> Wire:
        """Return the result of one tool use, which runs once in the whole conversation."""
        toolbox, context = self._toolbox, self._context
        assert toolbox is not None
        conversation = context.get_conversation()

        async def run() -> Wire:
            body = await toolbox.run(self._call, use, scope, conversation)
            return {name: body[name] for name in ("content", "isError", "_meta") if body.get(name)}

        body = await context.run_on_call_loop(conversation.run_once(f"{scope}.{short_digest(use)}", run))
        return {"type": "tool_result", "toolUseId": use["id"], "content": [], **body}


def _shape_messages(call: Call, messages: list[Wire], needs: Wire) -> list[Wire]:
    """Return the messages in the client's revision, or raise InputUnavailable."""
    if not call.supports(needs):
        return messages  # not sent: the capability is missing
    try:
        return [written for message in messages for written in call.revision.shape_sampling_message(message)]
    except ValueError as problem:
        raise InputUnavailable(f"The client's model cannot receive this message: {problem}") from None


def _build_parser(with_tools: bool) -> Any:
    def read(raw: object) -> SamplingResult[Any]:
        if type(raw) is not dict:
            raise InvalidInputResponse("a sample must be an object")
        try:
            blocks = blocks_of(raw.get("content"))
        except ValueError as problem:
            raise InvalidInputResponse(str(problem)) from None
        kinds = {block["type"] for block in blocks}
        used = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if "tool_result" in kinds or (used and not with_tools) or len(set(used)) < len(used):
            raise InvalidInputResponse("the model may use only the offered tools, each use with a unique id")
        stop = raw.get("stopReason")
        return SamplingResult(blocks, str(raw.get("model", "")), stop if type(stop) is str else None)

    return read


def _add_schema_instruction(messages: list[Wire], schema: Wire) -> list[Wire]:
    """Append the instruction on the result format to the conversation.

    It is added to the last message if that is user text.
    """
    instruction = f"Answer with JSON only. It must fit this JSON Schema: {jsonrpc.dumps(schema).decode()}"
    last = messages[-1]
    if last["role"] != "user" or [block["type"] for block in last["content"]] != ["text"]:
        return [*messages, _build_user_message(instruction)]
    (block,) = last["content"]
    return [*messages[:-1], {**last, "content": [{**block, "text": f"{block['text']}\n\n{instruction}"}]}]


def _describe_problem(sample: SamplingResult[object], problem: ArgumentError) -> str:
    if sample.stop_reason == "maxTokens":
        return "the answer was cut off because it is too long"
    return str(problem)


def short_digest(value: object) -> str:
    """Return a short digest of a JSON value."""
    return hashlib.sha256(jsonrpc.dumps_sorted(value)).hexdigest()[:10]


def _build_user_message(text: str) -> Wire:
    return {"role": "user", "content": [{"type": "text", "text": text}]}
