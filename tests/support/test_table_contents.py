"""Rows that a test with transactions of its own leaves in the database."""

import pytest
from django.contrib.auth.models import Group, Permission
from django.db import connection

from tests.shop.models import Category
from tests.support.table_contents import TableContents

pytestmark = pytest.mark.django_db


def test_rows_that_were_added_are_deleted_in_any_order_of_their_tables() -> None:
    contents = TableContents(connection)
    Group.objects.create(name="sales").permissions.add(Permission.objects.all()[0])
    Category.objects.create(slug="tools", name="Tools", parent=Category.objects.create(slug="all", name="All"))
    assert contents.restore(connection)
    assert (Group.objects.count(), Category.objects.count()) == (0, 0)
    assert Permission.objects.exists()


def test_a_change_of_rows_that_were_there_is_seen() -> None:
    contents = TableContents(connection)
    Permission.objects.filter(pk=Permission.objects.all()[0].pk).update(name="another")
    assert not contents.restore(connection)
