"""Trees of django-treebeard and django-mptt."""

from django.db import models
from mptt.fields import TreeForeignKey
from mptt.models import MPTTModel
from treebeard.mp_tree import MP_Node
from treebeard.ns_tree import NS_Node


class Category(MP_Node):
    """Tree by materialized paths."""

    name = models.CharField(max_length=50)

    def __str__(self) -> str:
        return self.name


class SortedCategory(MP_Node):
    """The same, in the order of names."""

    name = models.CharField(max_length=50)
    node_order_by = ["name"]

    def __str__(self) -> str:
        return self.name


class Chapter(NS_Node):
    """Tree by nested sets."""

    name = models.CharField(max_length=50)

    def __str__(self) -> str:
        return self.name


class Region(MPTTModel):
    """Tree of django-mptt."""

    name = models.CharField(max_length=50)
    parent = TreeForeignKey("self", null=True, blank=True, related_name="children", on_delete=models.CASCADE)

    def __str__(self) -> str:
        return self.name
