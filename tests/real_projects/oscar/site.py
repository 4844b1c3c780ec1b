"""Rows and users of the shop, and the rows that its own pages show them: Django's permissions decide."""

from django.apps import apps
from django.contrib.auth.models import User

from tests.real_projects.django_permissions import add_readers, get_visible_rows
from tests.real_projects.population import add_rows, list_kinds
from tests.real_projects.site import Site


def build_site() -> Site:
    """Return the site, with its rows."""
    kinds = list_kinds()
    add_categories()
    errors = add_rows([kind for kind in kinds if kind._meta.label != "catalogue.Category"])
    return Site(kinds=kinds, users=add_readers(User, kinds), get_visible_rows=get_visible_rows, errors=errors)


def add_categories() -> None:
    """Add a tree of categories by treebeard's own methods."""
    category = apps.get_model("catalogue.Category")
    for number in range(3):
        root = category.add_root(name=f"Root {number}")
        for child in range(3):
            root.add_child(name=f"Child {number}.{child}")
