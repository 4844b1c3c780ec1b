"""Can the workers of other processes be woken? Mostly with `check --deploy` only: one process needs no layer."""

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Error, Info, Warning, register

from mcp_django import conf
from mcp_django.conf.project import channel_layer

IN_MEMORY = "channels.layers.InMemoryChannelLayer"
REDIS, REDIS_PUBSUB = "channels_redis.core.RedisChannelLayer", "channels_redis.pubsub.RedisPubSubChannelLayer"
DEFAULT = "default"


@register
def check_channel_layer_alias(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """The layer that `MCP` names must be there; that there is no default one is for `--deploy` to say."""
    alias = _alias()
    if alias in (None, DEFAULT) or channel_layer(alias) is not None:
        return []
    return [
        Error(
            f'MCP["CHANNEL_LAYER"] names "{alias}", which CHANNEL_LAYERS does not have.',
            hint="Describe the layer in CHANNEL_LAYERS, or set it to None: workers then look once a second.",
            id="mcp_django.E008",
        )
    ]


@register(deploy=True)
def check_channel_layer(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """With several processes there should be a layer that reaches them all, and forgets no groups."""
    alias = _alias()
    layer = None if alias is None else channel_layer(alias)
    if alias is None or (layer is None and alias != DEFAULT):
        return []  # the project wants none, or has been told
    backend = None if layer is None else layer.get("BACKEND")
    if layer is None or backend == IN_MEMORY:
        what = "is not set" if layer is None else "is in memory, which reaches one process"
        return [
            Warning(
                f'CHANNEL_LAYERS["{alias}"] {what}, so workers in other processes cannot be woken.',
                hint=(
                    "Nothing is lost, because the database has it: without a wake-up a worker sees by looking, once a "
                    "second, what another has done, such as passing on an answer or changing a resource. With one "
                    f"process there is nothing to do. With several, use {REDIS_PUBSUB}, or set "
                    'MCP["CHANNEL_LAYER"] to None if a second is soon enough.'
                ),
                id="mcp_django.W003",
            )
        ]
    if backend in (REDIS, "channels_redis.layers.RedisChannelLayer"):
        return [
            Info(
                f'CHANNEL_LAYERS["{alias}"] is RedisChannelLayer, which drops what it carries when one process has '
                "more waiting than its capacity, and forgets its groups when Redis restarts.",
                hint=f"{REDIS_PUBSUB} does neither, and is faster.",
                id="mcp_django.I001",
            )
        ]
    return []


def _alias() -> str | None:
    return conf.get_settings().channel_layer if conf.is_usable() else DEFAULT
