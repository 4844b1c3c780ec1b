"""Telling clients that something changed, from any process: a view, a handler, a task of Celery's, a command, a shell.

Everything here is said when the surrounding transaction commits, to the clients of every worker.
"""

from mcp_django.notifications.model_signals import publish_changes
from mcp_django.notifications.publish import (
    abroadcast,
    anotify_list_changed,
    anotify_resource_updated,
    broadcast,
    notify_list_changed,
    notify_resource_updated,
)

__all__ = [
    "abroadcast",
    "anotify_list_changed",
    "anotify_resource_updated",
    "broadcast",
    "notify_list_changed",
    "notify_resource_updated",
    "publish_changes",
]
