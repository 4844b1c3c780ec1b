"""Authentication backend that decides as NetBox's does (netbox/netbox/authentication, ObjectPermissionMixin)."""

from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.db.models import Model

from tests.orm.object_backends import GRANTS, filter_granted


class ObjectPermissionBackend(ModelBackend):
    """Grants a permission without an object to users who have it on some rows; the database decides about an object."""

    def get_all_permissions(self, user_obj: Any, obj: Any = None) -> Any:
        return GRANTS.get(user_obj.get_username(), {}) if user_obj.is_active else {}

    def has_perm(self, user_obj: Any, perm: str, obj: Model | None = None) -> bool:
        if perm not in self.get_all_permissions(user_obj):
            return False
        if obj is None:
            return True
        return filter_granted(user_obj, perm, type(obj)._base_manager.all()).filter(pk=obj.pk).exists()


class RemoteUserBackend(ModelBackend):
    """Logs users in, and grants nothing."""

    def has_perm(self, user_obj: Any, perm: str, obj: Model | None = None) -> bool:
        return False
