"""System checks of the channel layer, which wakes workers in other processes.

Most of them run with `check --deploy` only, because a single process needs no layer.
"""

from collections.abc import Iterator

from django.core.checks import CheckMessage, Error, Info, Warning

from mcp_django import conf
from mcp_django.checks.installation import register_check
from mcp_django.conf.project import channel_layer

IN_MEMORY_BACKEND = "channels.layers.InMemoryChannelLayer"
REDIS_BACKEND, REDIS_PUBSUB_BACKEND = (
    "channels_redis.core.RedisChannelLayer",
    "channels_redis.pubsub.RedisPubSubChannelLayer",
)
DEFAULT_ALIAS = "default"


@register_check(reads_settings=False)
def check_channel_layer_alias() -> Iterator[CheckMessage]:
    """Check that the configured layer exists.

    A missing default layer is left to `check --deploy`.
    """
    alias = _get_alias()
    if alias in (None, DEFAULT_ALIAS) or channel_layer(alias) is not None:
        return
    yield Error(
        f'MCP["CHANNEL_LAYER"] names "{alias}", which is not in CHANNEL_LAYERS.',
        hint="Add the layer to CHANNEL_LAYERS, or set the option to None: workers then poll once a second.",
        id="mcp_django.E008",
    )


@register_check(deploy=True, reads_settings=False)
def check_channel_layer() -> Iterator[CheckMessage]:
    """Check that several processes share a layer that keeps its groups."""
    alias = _get_alias()
    layer = None if alias is None else channel_layer(alias)
    if alias is None or (layer is None and alias != DEFAULT_ALIAS):
        return  # the project uses no layer, or E008 reports it

    backend = None if layer is None else layer.get("BACKEND")
    if layer is None or backend == IN_MEMORY_BACKEND:
        state = "is not set" if layer is None else "is in memory, which is limited to one process"
        yield Warning(
            f'CHANNEL_LAYERS["{alias}"] {state}, so workers in other processes cannot be woken.',
            hint=(
                "Nothing is lost, because the database stores all events. Without wake-ups workers poll once a "
                "second for events of other processes, such as forwarded responses or changed resources. With a "
                f"single process, ignore this. With several, use {REDIS_PUBSUB_BACKEND}, or set "
                'MCP["CHANNEL_LAYER"] to None if a delay of one second is acceptable.'
            ),
            id="mcp_django.W003",
        )
        return
    if backend in (REDIS_BACKEND, "channels_redis.layers.RedisChannelLayer"):
        yield Info(
            f'CHANNEL_LAYERS["{alias}"] is RedisChannelLayer, which drops messages when a process has '
            "more pending than its capacity, and loses its groups when Redis restarts.",
            hint=f"{REDIS_PUBSUB_BACKEND} does not, and is faster.",
            id="mcp_django.I001",
        )
        return


def _get_alias() -> str | None:
    return conf.get_settings().channel_layer if conf.is_usable() else DEFAULT_ALIAS
