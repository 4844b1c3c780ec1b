"""Functions as skills: instructions that are written at each read.

Their entries have no digests (`"dynamic"`), so clients cannot verify them, and some ask the user each time.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Unpack

from mcp_django.contrib.skills.provider import SCHEME
from mcp_django.extensions.calls import Context
from mcp_django.extensions.errors import DeclarationError
from mcp_django.extensions.primitives import (
    PrimitiveOptions,
    Registry,
    describe_callable,
    get_registry,
    register_resource,
)
from mcp_django.protocol.skills import MANIFEST_KEY, SKILL_FILE, SkillManifest, find_problems
from mcp_django.protocol.uri import quote_path
from mcp_django.providers.files import is_safe_name
from mcp_django.schema.frontmatter import parse_frontmatter

F = TypeVar("F", bound=Callable[..., Any])


def skill(
    path: str,
    *,
    server: str = "default",
    registry: Registry | None = None,
    frontmatter: Mapping[str, Any] | None = None,
    **options: Unpack[PrimitiveOptions],
) -> Callable[[F], F]:
    """Register a function as a skill: `@skill("shop/stock-report")`.

    The function returns the Markdown below the frontmatter. The last name of the path is the name of the skill. The
    description is that of the options, or of the docstring. `frontmatter` adds fields, such as `license`. The other
    options are those of `@resource`.

    Raises DeclarationError for an invalid name, description or field.
    """

    def decorate(function: F) -> F:
        source = getattr(function, "__qualname__", repr(function))
        if not all(map(is_safe_name, path.split("/"))):
            raise DeclarationError(f"{source}: {path!r} is an invalid path of a skill; write it like 'shop/refunds'")
        name = path.rpartition("/")[2]
        description = str(options.get("description") or describe_callable(function).summary or "")
        fields = {"name": name, "description": " ".join(description.split()), **(frontmatter or {})}
        problems = list(find_problems(fields))
        if problems:
            raise DeclarationError(f"{source}: {'; '.join(problems)}")

        text = _write_frontmatter(fields)
        add_frontmatter = _build_interceptor(text)
        declared: Any = {
            **options,
            "name": name,
            "description": fields["description"],
            "mime_type": "text/markdown",
            "metadata": {
                **options.get("metadata", {}),
                MANIFEST_KEY: SkillManifest(parse_frontmatter(text.encode()), None),
            },
            "interceptors": (add_frontmatter, *options.get("interceptors", ())),
        }
        uri = f"{SCHEME}{quote_path(path)}/{SKILL_FILE}"
        target = get_registry(server) if registry is None else registry
        registered: F = register_resource(target, uri, declared)(function)
        return registered

    return decorate


def _write_frontmatter(fields: Mapping[str, Any]) -> str:
    """Return fields as YAML: each value is JSON, which YAML includes."""
    lines = [f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in fields.items()]
    return "---\n" + "\n".join(lines) + "\n---\n"


def _build_interceptor(text: str) -> Callable[..., Any]:
    async def add_frontmatter(ctx: Context, proceed: Callable[[], Any]) -> Any:
        body = await proceed()
        return None if body is None else f"{text}{body}"

    return add_frontmatter
