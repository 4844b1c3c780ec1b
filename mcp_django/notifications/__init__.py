"""Notifications to clients about changes, sent from any process.

Views, handlers, Celery tasks, commands and shells can call these functions. Notifications are sent to the clients of
all workers when the surrounding transaction commits.
"""

from mcp_django.notifications.model_signals import publish_changes
from mcp_django.notifications.publish import (
    abroadcast,
    anotify_extension_key,
    anotify_list_changed,
    anotify_resource_updated,
    broadcast,
    notify_extension_key,
    notify_list_changed,
    notify_resource_updated,
)

__all__ = [
    "abroadcast",
    "anotify_extension_key",
    "anotify_list_changed",
    "anotify_resource_updated",
    "broadcast",
    "notify_extension_key",
    "notify_list_changed",
    "notify_resource_updated",
    "publish_changes",
]
