"""Types of MCP that handlers return, and parts of questions to the client.

Content, resources, prompts and sampling messages follow the MCP schema. Importing them needs neither Django's settings
nor its app registry.
"""

from mcp_django.protocol.content import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    ResourceLink,
    TextContent,
    TextResourceContents,
)
from mcp_django.protocol.display_text import clean_line, clean_text
from mcp_django.protocol.sampling_types import (
    SamplingMessage,
    ToolResultContent,
    ToolUseContent,
    validate_sampling_messages,
)
from mcp_django.protocol.types import Annotations, Icon, ToolAnnotations
from mcp_django.server.context.responses import ElicitationResult
from mcp_django.server.context.sampling import SamplingResult
from mcp_django.server.primitives.base import Completion
from mcp_django.server.primitives.results import PromptResult, ResourceResult, ToolStream
from mcp_django.server.primitives.task_options import TaskOptions

__all__ = [
    "Annotations",
    "AudioContent",
    "BlobResourceContents",
    "Completion",
    "ElicitationResult",
    "EmbeddedResource",
    "Icon",
    "ImageContent",
    "PromptMessage",
    "PromptResult",
    "ResourceLink",
    "ResourceResult",
    "SamplingMessage",
    "SamplingResult",
    "TaskOptions",
    "TextContent",
    "TextResourceContents",
    "ToolAnnotations",
    "ToolResultContent",
    "ToolStream",
    "ToolUseContent",
    "clean_line",
    "clean_text",
    "validate_sampling_messages",
]
