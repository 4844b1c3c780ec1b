"""Parts of models: managers, links to users, stored rows and their versions."""

from mcp_django.models import StoredState
from mcp_django.models.rows import PrimaryManager, VersionedQuerySet, create_user_key, hash_text
from mcp_django.models.stored.base import Stored, StoredRow
from mcp_django.models.stored.version import StoredVersion

__all__ = [
    "PrimaryManager",
    "Stored",
    "StoredRow",
    "StoredState",
    "StoredVersion",
    "VersionedQuerySet",
    "create_user_key",
    "hash_text",
]
