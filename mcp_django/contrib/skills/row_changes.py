"""Changes of stored skills: the version of cached rows, and notifications to clients."""

from typing import Any

from django.core.exceptions import ObjectDoesNotExist
from django.db.models.signals import post_delete, post_save

from mcp_django import conf
from mcp_django.contrib.skills.models import StoredSkill, StoredSkillFile
from mcp_django.extensions.rows import StoredState
from mcp_django.notifications import notify_list_changed, notify_resource_updated
from mcp_django.notifications.publish import log_failure


def connect() -> None:
    """Connect to saves and deletions of skills and files, fixtures included."""
    for model, receiver in ((StoredSkill, _on_skill_changed), (StoredSkillFile, _on_file_changed)):
        for name, signal in (("saved", post_save), ("deleted", post_delete)):
            signal.connect(receiver, sender=model, dispatch_uid=f"mcp_django.skills.{receiver.__name__}.{name}")


def _on_skill_changed(*, instance: StoredSkill, using: str, **_: Any) -> None:
    StoredState.objects.using(using).change_version()
    current, previous = (instance.server, instance.key), instance.published_key
    instance.published_key = current
    for server, uri in {current} if previous is None else {current, previous}:
        _notify(server, uri, using)


def _on_file_changed(*, instance: StoredSkillFile, using: str, **_: Any) -> None:
    StoredState.objects.using(using).change_version()
    try:
        skill = instance.skill
    except ObjectDoesNotExist:
        return  # deleted together with its skill, whose own signal notifies clients
    _notify(skill.server, skill.key, using)


def _notify(server: str, uri: str, using: str) -> None:
    """Notify the clients of a server, or of all servers for ""."""
    if server and server not in conf.servers():
        return  # a server that is not in the settings has no clients
    with log_failure("skills"):
        notify_resource_updated(uri, server=server or None, using=using)
        notify_list_changed("resources", server=server or None, using=using)
