"""Filters in the URLs of lists: links work, and no column is read by them."""

import re
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from typing import Any
from urllib.parse import parse_qsl

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission, User
from django.db.models import Field
from django.test import Client, RequestFactory
from django.urls import reverse
from django.utils import timezone

from mcp_django.admin.accounts.overview import MAX_SHOWN_ROWS
from mcp_django.contrib.control_room.models import Alert, AlertRule
from mcp_django.models import PersonalAccessToken, ServiceAccount
from mcp_django.models.service_account import save_account
from tests.contrib.control_room.test_room_links import make_session
from tests.contrib.control_room.test_rows import make_record, make_rollup, make_usage
from tests.contrib.tasks.test_task_admin import make_task

pytestmark = pytest.mark.django_db
LINKED_LOOKUPS = ("exact", "gt", "gte", "in", "isnull", "lt", "lte", "year", "month", "day")
PARTIAL_LOOKUPS = (
    "contains",
    "icontains",
    "startswith",
    "istartswith",
    "endswith",
    "regex",
    "iregex",
    "range",
    "length",
)


def is_list(model_admin: Any) -> bool:
    """Return True for an admin with Django's list of rows."""
    opts = model_admin.opts
    names = {getattr(pattern, "name", None) for pattern in model_admin.get_urls()}
    return opts.managed and f"{opts.app_label}_{opts.model_name}_change" in names


def list_package_admins() -> list[Any]:
    """Return the admins whose classes, or one of the base classes, this package defines."""
    return [
        model_admin
        for model_admin in admin.site._registry.values()
        if any(base.__module__.startswith("mcp_django.") for base in type(model_admin).__mro__) and is_list(model_admin)
    ]


def list_linked_fields(model_admin: Any) -> set[str]:
    """Return the fields by which links filter the list."""
    fields = {item for item in model_admin.list_filter if isinstance(item, str)}
    return {*fields, model_admin.date_hierarchy, *getattr(model_admin, "linked_fields", ())} - {None}


def list_filter_parameters(model_admin: Any) -> set[str]:
    """Return the parameters of the filters that are classes."""
    return {item.parameter_name for item in model_admin.list_filter if isinstance(item, type)}


def list_own_columns(model_admin: Any) -> list[str]:
    """Return the columns of the rows, and the values that the list computes for them."""
    request = RequestFactory().get("/")
    request.user = User(is_superuser=True, is_active=True, is_staff=True)
    fields = model_admin.model._meta.concrete_fields
    return [*(field.name for field in fields), *model_admin.get_queryset(request).query.annotations]


def iter_related_columns(model_admin: Any) -> Iterator[str]:
    """Yield the paths of the columns of rows to which the rows refer, or that refer to them."""
    for field in model_admin.model._meta.get_fields(include_hidden=True):
        if field.is_relation and field.related_model is not None:
            name = field.name if isinstance(field, Field) else field.related_query_name
            yield from (f"{name}__{column.name}" for column in field.related_model._meta.concrete_fields)


def log_in_reader(model_admin: Any) -> Client:
    """Return the browser of staff who may see the rows, and nothing else."""
    user = User.objects.create(username="reader", is_staff=True)
    opts = model_admin.opts
    user.user_permissions.set(
        Permission.objects.filter(content_type__app_label=opts.app_label, codename=f"view_{opts.model_name}")
    )
    browser = Client()
    browser.force_login(user)
    return browser


def get_path(model_admin: Any) -> str:
    return reverse(f"admin:{model_admin.opts.app_label}_{model_admin.opts.model_name}_changelist")


def test_all_lists_of_the_package_are_tried() -> None:
    names = {model_admin.opts.label for model_admin in list_package_admins()}
    assert {
        "mcp_control_room.CallLogEntry",
        "mcp_django.PersonalAccessToken",
        "mcp_django.Session",
        "mcp_memory.Conversation",
        "mcp_oauth.Consent",
        "mcp_skills.StoredSkill",
        "mcp_tasks.Task",
        "oauth2_provider.AccessToken",
    } <= names
    assert len(names) >= 20


@pytest.mark.parametrize("model_admin", list_package_admins(), ids=lambda model_admin: model_admin.opts.label)
def test_a_url_cannot_filter_by_part_of_a_column(model_admin: Any, subtests: pytest.Subtests) -> None:
    browser, path = log_in_reader(model_admin), get_path(model_admin)
    assert browser.get(path).status_code == 200
    for column in list_own_columns(model_admin):
        with subtests.test(column):
            assert browser.get(path, {f"{column}__startswith": "1"}).status_code == 400


@pytest.mark.parametrize("model_admin", list_package_admins(), ids=lambda model_admin: model_admin.opts.label)
def test_only_fields_of_links_are_permitted_as_lookups(model_admin: Any) -> None:
    fields, parameters = list_linked_fields(model_admin), list_filter_parameters(model_admin)
    relations = {name: model_admin.model._meta.get_field(name) for name in fields}
    keys = {f"{name}__{field.target_field.name}" for name, field in relations.items() if field.is_relation}
    columns = [*list_own_columns(model_admin), *iter_related_columns(model_admin)]
    allowed = {
        name
        for column in columns
        for lookup in ("", *LINKED_LOOKUPS, *PARTIAL_LOOKUPS)
        if model_admin.lookup_allowed(name := f"{column}__{lookup}" if lookup else column, "1")
    }
    linked = {f"{name}__{lookup}" if lookup else name for name in fields | keys for lookup in ("", *LINKED_LOOKUPS)}
    assert allowed <= linked | parameters


def follow_filters(browser: Client, path: str) -> set[str]:
    """Open the links of a page that filter lists of this package; return their lookups, with the model's name."""
    names = {get_path(model_admin): model_admin.opts.model_name for model_admin in list_package_admins()}
    page = browser.get(path, follow=True)
    assert page.status_code == 200, path
    found = set()
    for link in set(re.findall(r'href="([^"#]*\?[^"]+)"', page.content.decode())):
        target, _, query = unescape(link).partition("?")
        target = target or path.partition("?")[0]
        if target in names and not query.startswith("o="):
            assert browser.get(f"{target}?{query}").status_code == 200, f"{path}: {target}?{query}"
            found |= {f"{names[target]}.{name}" for name, _value in parse_qsl(query)}
    return found


def test_links_of_the_package_filter_its_lists() -> None:
    now = timezone.now()
    root = User.objects.create_superuser("root")
    account = ServiceAccount(owner=root)
    save_account(account, User(username="robot"))
    for _number in range(MAX_SHOWN_ROWS + 1):
        token, _text = PersonalAccessToken.issue(user=account.user, name="CI", expires=now + timedelta(days=1))
    caller = {"principal": f"django|{account.user.pk}|token:{token.pk}", "user_key": str(account.user.pk)}
    make_usage(now, **caller)
    make_rollup(now, outcome="bug", count=3)
    entry = make_record(now, **caller)
    for _number in range(7):
        make_session(caller["principal"])
    Alert.objects.create(rule=AlertRule.ERRORS, subject="default: greet", is_active=True, since=now, checked=now)
    Alert.objects.create(rule=AlertRule.REFUSALS, subject="default", is_active=True, since=now, checked=now)
    make_task()
    browser = Client()
    browser.force_login(root)

    target = "?server=default&method=tools/call&name=greet"
    found = set()
    for path in (
        reverse("admin:mcp_control_room_controlroom_changelist"),
        reverse("admin:mcp_control_room_controlroom_target") + target,
        reverse("admin:mcp_control_room_calllogentry_change", args=[entry.pk]),
        reverse("admin:mcp_django_serviceaccount_change", args=[account.pk]),
        reverse("admin:mcp_control_room_calllogentry_changelist"),
        reverse("admin:mcp_django_personalaccesstoken_changelist"),
        reverse("admin:mcp_tasks_task_changelist"),
    ):
        found |= follow_filters(browser, path)
    assert found >= {
        "calllogentry.at__gte",
        "calllogentry.milliseconds__gte",
        "calllogentry.name",
        "calllogentry.outcome__in",
        "calllogentry.principal",
        "calllogentry.server",
        "calllogentry.user_key",
        "calllogentry.user_key__exact",
        "personalaccesstoken.user__exact",
        "session.state",
        "task.created__gte",
        "task.status__exact",
    }
