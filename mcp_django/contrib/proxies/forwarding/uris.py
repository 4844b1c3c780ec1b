"""URIs in results of a remote server.

They are converted to the URIs of this server. Blocks and contents are left out in two cases: browsers run their URI, or
a resource of this project has it. A client could take such a link or content for the project's own.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from mcp_django.extensions.calls import Context, get_logger, sanitize_label
from mcp_django.extensions.errors import DeclarationError
from mcp_django.extensions.primitives import RelayedResult
from mcp_django.protocol.uri import is_script_uri
from mcp_django.server.composition.local_resources import find_local_uris

logger = get_logger("mcp_django.client")

Wire = dict[str, Any]
ConvertURI = Callable[[str], str]
"""Function that returns the local form of a remote URI. Raises DeclarationError."""


async def convert_uris(ctx: Context, body: RelayedResult, convert: ConvertURI | None, server: str) -> RelayedResult:
    """Return a checked result with local URIs, without those of this project.

    Without `convert`, URIs stay unchanged. `server` is the name of the remote server, for the log.
    """
    own_uris = {item["uri"] for item in _iter_resources(body)}
    if not own_uris:
        return body

    local_uris = _convert_all(own_uris, convert)
    taken = await find_local_uris(ctx, local_uris.values())
    kept = {uri: local for uri, local in local_uris.items() if local not in taken}
    for uri in own_uris - kept.keys():
        logger.warning("Left out a resource in a result of the server %r: %s", server, sanitize_label(uri))
    return body if all(kept.get(uri) == uri for uri in own_uris) else _replace_uris(body, kept)


def has_valid_source(icon: Any) -> bool:
    """Return True for an icon with the URL, or the data, of an image."""
    source = icon.get("src") if type(icon) is dict else None
    return type(source) is str and source.startswith(("https://", "http://", "data:image/"))


def _convert_all(uris: Iterable[str], convert: ConvertURI | None) -> dict[str, str]:
    """Return the local form of each URI, without those that browsers run or that are invalid."""
    converted = {}
    for uri in uris:
        try:
            if not is_script_uri(uri):
                converted[uri] = uri if convert is None else convert(uri)
        except DeclarationError:
            continue
    return converted


def _iter_resources(body: RelayedResult) -> Iterator[Wire]:
    """Yield the objects of a result that have the URI of a resource."""
    yield from body.get("contents", ())
    messages = [message["content"] for message in body.get("messages", ())]
    for block in [*body.get("content", ()), *messages]:
        if block["type"] in ("resource", "resource_link"):
            yield block["resource"] if block["type"] == "resource" else block


def _replace_uris(body: RelayedResult, kept: Mapping[str, str]) -> RelayedResult:
    """Return the result with these local URIs, and without resources at other URIs."""
    changed = RelayedResult(body)
    if "contents" in body:
        changed["contents"] = [{**item, "uri": kept[item["uri"]]} for item in body["contents"] if item["uri"] in kept]
    if "content" in body:
        blocks = [_replace_block_uri(block, kept) for block in body["content"]]
        changed["content"] = [block for block in blocks if block is not None]
    if "messages" in body:
        contents = [_replace_block_uri(message["content"], kept) for message in body["messages"]]
        changed["messages"] = [
            {**message, "content": content}
            for message, content in zip(body["messages"], contents, strict=True)
            if content is not None
        ]
    return changed


def _replace_block_uri(block: Wire, kept: Mapping[str, str]) -> Wire | None:
    """Return the block with its local URI; None for one that is left out."""
    if block["type"] not in ("resource", "resource_link"):
        return block
    item = block["resource"] if block["type"] == "resource" else block
    if item["uri"] not in kept:
        return None
    item = {**item, "uri": kept[item["uri"]]}
    return {**block, "resource": item} if block["type"] == "resource" else item
