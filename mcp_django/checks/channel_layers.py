"""Can the workers of other processes be woken? With `check --deploy` only: one process needs no channel layer."""

from collections.abc import Sequence
from typing import Any

from django.core.checks import CheckMessage, Info, Warning, register

from ..conf.project import channel_layer

IN_MEMORY = "channels.layers.InMemoryChannelLayer"
REDIS, REDIS_PUBSUB = "channels_redis.core.RedisChannelLayer", "channels_redis.pubsub.RedisPubSubChannelLayer"


@register(deploy=True)
def check_channel_layer(app_configs: Sequence[Any] | None, **kwargs: Any) -> list[CheckMessage]:
    """With several processes there should be a layer that reaches them all, and forgets no groups."""
    layer = channel_layer()
    backend = None if layer is None else layer.get("BACKEND")
    if layer is None or backend == IN_MEMORY:
        what = "is not set" if layer is None else "is in memory, which reaches one process"
        return [
            Warning(
                f'CHANNEL_LAYERS["default"] {what}, so workers in other processes cannot be woken.',
                hint=(
                    "Nothing is lost, because the database has it: without a wake-up a worker sees by looking again, "
                    "some seconds later, what another has done, such as ending a session. With one process there is "
                    f"nothing to do. With several, use {REDIS_PUBSUB}."
                ),
                id="mcp_django.W003",
            )
        ]
    if backend in (REDIS, "channels_redis.layers.RedisChannelLayer"):
        return [
            Info(
                'CHANNEL_LAYERS["default"] is RedisChannelLayer, which drops what it carries when one process has '
                "more waiting than its capacity, and forgets its groups when Redis restarts.",
                hint=f"{REDIS_PUBSUB} does neither, and is faster.",
                id="mcp_django.I001",
            )
        ]
    return []
