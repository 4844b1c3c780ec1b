"""Command that creates a service account and its first token."""

from argparse import ArgumentParser
from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission
from django.core.exceptions import ValidationError
from django.core.management.base import CommandError
from django.db import transaction

from mcp_django.management.command_options import get_active_user
from mcp_django.management.output import CleanCommand
from mcp_django.management.token_creation import add_token_options, print_new_token
from mcp_django.models import ServiceAccount
from mcp_django.models.service_account import save_account


class Command(CleanCommand):
    """Write only the token to stdout: `TOKEN=$(manage.py mcp_createaccount ci --owner alice …)`.

    The account is created together with its token, or not at all.
    """

    help = "Create a service account, which is a user for a program, and print its first token once on stdout."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("username", help="username of the new account")
        parser.add_argument("--owner", required=True, metavar="USERNAME", help="person who is responsible for it")
        parser.add_argument("--description", default="", help="the program, and the place where it runs")
        parser.add_argument(
            "--group", action="append", dest="groups", default=[], metavar="NAME", help="its group; may be repeated"
        )
        parser.add_argument(
            "--permission",
            action="append",
            dest="permissions",
            default=[],
            metavar="APP.CODENAME",
            help="its permission, such as shop.view_order; may be repeated",
        )
        parser.add_argument(
            "--field",
            action="append",
            dest="fields",
            default=[],
            metavar="NAME=VALUE",
            help="a field that your user model requires, such as email=ci@example.com; may be repeated",
        )
        parser.add_argument("--token-name", default="first token", help="purpose of the token")
        parser.add_argument("--no-token", action="store_true", help="create no token")
        add_token_options(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        account = ServiceAccount(owner=get_active_user(options["owner"]), description=options["description"])
        groups = list(_iter_groups(options["groups"]))
        permissions = list(_iter_permissions(options["permissions"]))
        user = _build_user(options["username"], _read_fields(options["fields"]))

        with transaction.atomic():
            try:
                user.full_clean(exclude=["password"])
                account.full_clean(exclude=["user"])
            except ValidationError as problem:
                raise CommandError(_describe_problems(problem)) from None
            save_account(account, user)
            _set_relation(user, "groups", groups)
            _set_relation(user, "user_permissions", permissions)
            self.stderr.write(f"Service account {account}, owned by {account.owner}.")
            if not options["no_token"]:
                print_new_token(self, user, options["token_name"], options)


def _build_user(username: str, values: Mapping[str, str]) -> Any:
    model = get_user_model()
    known = {field.name for field in model._meta.concrete_fields}
    unknown = [name for name in values if name not in known]
    if unknown:
        raise CommandError(f"The user model has no field {unknown[0]!r}.")
    # `attname` takes the primary key of a related row as text.
    attributes = {field.attname: values[field.name] for field in model._meta.concrete_fields if field.name in values}
    return model(**{model.USERNAME_FIELD: username, **attributes})


def _read_fields(pairs: Iterable[str]) -> dict[str, str]:
    values = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise CommandError(f"--field {pair!r} has no value; write NAME=VALUE.")
        values[name] = value
    return values


def _iter_groups(names: Iterable[str]) -> Iterable[Any]:
    for name in names:
        group = Group.objects.filter(name=name).first()
        if group is None:
            raise CommandError(f"Unknown group {name!r}.")
        yield group


def _iter_permissions(names: Iterable[str]) -> Iterable[Any]:
    for name in names:
        app_label, _, codename = name.partition(".")
        found = list(Permission.objects.filter(content_type__app_label=app_label, codename=codename))
        if not found:
            raise CommandError(f"Unknown permission {name!r}; write APP.CODENAME, such as shop.view_order.")
        yield from found


def _set_relation(user: Any, name: str, rows: list[Any]) -> None:
    if not rows:
        return
    if not hasattr(user, name):
        raise CommandError(f"The user model has no {name}.")
    getattr(user, name).set(rows)


def _describe_problems(problem: ValidationError) -> str:
    texts = [f"{name}: {' '.join(messages)}" for name, messages in problem.message_dict.items()]
    return f"The account is not valid. {' '.join(texts)} Set fields of the user model with --field NAME=VALUE."
