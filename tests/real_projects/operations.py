"""Random operations of a user, and Django's own answers for the rows that the project shows the user."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from asgiref.sync import async_to_sync
from django.db import models

from mcp_django.protocol.errors import MCPError
from mcp_django.testing import TestClient
from tests.real_projects.site import Site

JSONObject = dict[str, Any]
COMPARABLE = {"integer", "boolean", "text"}
"""Kinds of columns whose shown value is the value in Python."""


@dataclass(slots=True)
class Findings:
    """Counts of operations and the differences that were found."""

    operations: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    internal_errors: list[str] = field(default_factory=list)

    def count(self, operation: str) -> None:
        """Count an operation."""
        self.operations[operation] = self.operations.get(operation, 0) + 1


class Comparison:
    """Operations of one project, in process."""

    def __init__(self, site: Site, seed: int) -> None:
        self.site = site
        self.random = random.Random(seed)
        self.findings = Findings()
        self.descriptions: dict[tuple[str, str], JSONObject | None] = {}
        self.clients = {name: TestClient(user=user) for name, user in site.users.items()}
        self.toolsets = {kind._meta.label: kind for kind in site.kinds}

    def run(self, count: int) -> Findings:
        """Compare each model's whole list as each user once, and then `count` random operations."""
        for kind in self.site.kinds:
            for name in self.clients:
                self.compare_pages(name, kind)
        acts: list[Callable[[str, type[models.Model]], None]] = [
            self.compare_row,
            self.compare_filter,
            self.compare_count,
            self.compare_groups,
            self.compare_order,
            self.compare_update,
            self.compare_deletion,
        ]
        for _ in range(count):
            self.random.choice(acts)(self.random.choice([*self.clients]), self.random.choice(self.site.kinds))
        return self.findings

    # Operations

    def compare_pages(self, name: str, kind: type[models.Model]) -> None:
        """Follow the cursors of a list, and compare the keys and all references with the visible rows."""
        found: list[Any] = []
        cursor = None
        while True:
            arguments = {"limit": self.random.choice([3, 7, 50]), **({"cursor": cursor} if cursor else {})}
            answer = self.call(name, kind, "list", arguments)
            if answer is None:
                break
            found += [row["pk"] for row in answer["items"]]
            for row in answer["items"]:
                self.check_references(name, kind, row)
            cursor = answer["next_cursor"]
            if cursor is None:
                break
        self.compare_keys(name, kind, "list", found)

    def compare_row(self, name: str, kind: type[models.Model]) -> None:
        """Get a random row, visible or not."""
        row = self.choose_row(kind)
        if row is None:
            return
        answer = self.call(name, kind, "get", {"pk": encode_key(row.pk)})
        visible = self.get_rows(name, kind).filter(pk=row.pk).exists()
        if (answer is not None) != visible:
            self.report(
                name, kind, f"get {row.pk}: {'shown' if answer else 'refused'}, visible: {visible}", not visible
            )
        if answer is not None:
            self.check_references(name, kind, answer)
            for column in self.get_columns(name, kind):
                if column["type"] in COMPARABLE and not column.get("refers_to") and column["name"] in answer:
                    value = getattr(row, column["name"])
                    if (
                        isinstance(value, bool | int | str)
                        and type(value) in (bool, int, str)
                        and answer[column["name"]] not in (value, str(value))
                    ):
                        self.report(
                            name, kind, f"get {row.pk}.{column['name']}: {answer[column['name']]!r}, not {value!r}"
                        )

    def compare_filter(self, name: str, kind: type[models.Model]) -> None:
        """List the rows that share a value with a random row."""
        chosen = self.choose_filter(name, kind)
        if chosen is None:
            return
        filters, expected = chosen
        answer = self.call(name, kind, "list", {"filters": filters, "limit": 100, "fields": []})
        if answer is not None and answer["next_cursor"] is None:
            found = [row["pk"] for row in answer["items"]]
            if sorted(map(str, found)) != sorted(str(encode_key(pk)) for pk in expected):
                self.report(
                    name, kind, f"list {filters}: {len(found)} rows, not {len(expected)}", len(found) > len(expected)
                )

    def compare_count(self, name: str, kind: type[models.Model]) -> None:
        """Count the rows that share a value with a random row."""
        chosen = self.choose_filter(name, kind)
        if chosen is None:
            return
        filters, expected = chosen
        answer = self.call(name, kind, "count", {"filters": filters})
        if answer is not None and answer["count"] != len(expected):
            self.report(
                name, kind, f"count {filters}: {answer['count']}, not {len(expected)}", answer["count"] > len(expected)
            )

    def compare_groups(self, name: str, kind: type[models.Model]) -> None:
        """Count the rows of each group."""
        columns = [
            column for column in self.get_columns(name, kind) if column["orderable"] and column["type"] == "boolean"
        ]
        if not columns:
            return
        column = self.random.choice(columns)["name"]
        answer = self.call(name, kind, "aggregate", {"group_by": [column], "limit": 100})
        if answer is not None:
            found = {group[column]: group["count"] for group in answer["groups"]}
            expected = Counter(self.get_rows(name, kind).values_list(column, flat=True))
            if found != dict(expected):
                self.report(name, kind, f"aggregate {column}: {found}, not {dict(expected)}", True)

    def compare_order(self, name: str, kind: type[models.Model]) -> None:
        """Compare the order of a column of integers."""
        columns = [
            c
            for c in self.get_columns(name, kind)
            if c["orderable"] and c["type"] == "integer" and not c.get("refers_to")
        ]
        if not columns:
            return
        column = self.random.choice(columns)["name"]
        answer = self.call(name, kind, "list", {"order_by": [column], "limit": 100, "fields": [column]})
        if answer is not None:
            values = [int(row[column]) for row in answer["items"] if isinstance(row[column], int | str)]
            if values != sorted(values):
                self.report(name, kind, f"order by {column}: {values}")

    def compare_update(self, name: str, kind: type[models.Model]) -> None:
        """Try to write nothing to a random row, as a dry run: a hidden row is refused like an unknown one."""
        row = self.choose_row(kind)
        if row is None:
            return
        answer = self.call(name, kind, "update", {"pk": encode_key(row.pk), "values": {}, "dry_run": True})
        if answer is not None and not self.get_rows(name, kind).filter(pk=row.pk).exists():
            self.report(name, kind, f"update {row.pk}: accepted, and the row is not visible", True)

    def compare_deletion(self, name: str, kind: type[models.Model]) -> None:
        """Try to delete a random row, as a dry run."""
        row = self.choose_row(kind)
        if row is None:
            return
        answer = self.call(name, kind, "delete", {"pk": encode_key(row.pk), "dry_run": True})
        if answer is not None and not self.get_rows(name, kind).filter(pk=row.pk).exists():
            self.report(name, kind, f"delete {row.pk}: accepted, and the row is not visible", True)

    # Parts

    def call(self, name: str, kind: type[models.Model], tool: str, arguments: JSONObject) -> JSONObject | None:
        """Return the structured result of a tool, or None if it is refused; note internal errors."""
        self.findings.count(tool)
        full_name = f"{kind._meta.app_label}_{kind._meta.model_name}_{tool}"
        try:
            answer = async_to_sync(self.clients[name].call_tool)(full_name, arguments)
        except MCPError:
            return None
        except Exception as error:
            self.findings.internal_errors.append(
                f"{name}: {full_name} {arguments}: {type(error).__name__}: {error}"[:400]
            )
            return None
        return None if answer.get("isError") else answer["structuredContent"]

    def get_rows(self, name: str, kind: type[models.Model]) -> "models.QuerySet[Any]":
        return self.site.get_visible_rows(self.site.users[name], kind)

    def get_columns(self, name: str, kind: type[models.Model]) -> list[JSONObject]:
        """Return the described fields with one value, empty without the tool."""
        key = name, kind._meta.label
        if key not in self.descriptions:
            self.descriptions[key] = self.call(name, kind, "describe", {})
        description = self.descriptions[key]
        return [] if description is None else [item for item in description["fields"] if not item["many"]]

    def choose_row(self, kind: type[models.Model]) -> Any:
        rows = models.QuerySet(kind)  # without a manager of the project, which may hide rows
        keys = list(rows.values_list("pk", flat=True)[:200])
        return rows.get(pk=self.random.choice(keys)) if keys else None

    def choose_filter(self, name: str, kind: type[models.Model]) -> tuple[JSONObject, list[Any]] | None:
        """Return a filter by the value of a random row, and the keys of the visible rows that Python selects by it."""
        row = self.choose_row(kind)
        columns = [
            c
            for c in self.get_columns(name, kind)
            if "exact" in c["lookups"] and (c["type"] in COMPARABLE or c.get("refers_to"))
        ]
        if row is None or not columns:
            return None
        column = self.random.choice(columns)
        attribute = kind._meta.get_field(column["name"]).attname if column.get("refers_to") else column["name"]
        if not hasattr(row, attribute):
            return None
        value = getattr(row, attribute)
        if value is not None and type(value) not in (bool, int, str):
            return None
        rows = [(other.pk, getattr(other, attribute)) for other in self.get_rows(name, kind)]
        if value is None:
            return {f"{column['name']}__isnull": True}, [pk for pk, other in rows if other is None]
        if type(value) is int and "gte" in column["lookups"] and self.random.random() < 0.4:
            return {f"{column['name']}__gte": value}, [pk for pk, other in rows if other is not None and other >= value]
        return {column["name"]: value}, [pk for pk, other in rows if other == value]

    def compare_keys(self, name: str, kind: type[models.Model], tool: str, found: list[Any]) -> None:
        expected = [encode_key(pk) for pk in self.get_rows(name, kind).values_list("pk", flat=True)]
        shown, visible = Counter(map(str, found)), Counter(map(str, expected))
        if shown != visible:
            extra, missing = shown - visible, visible - shown
            text = (
                f"{tool}: {len(found)} rows, not {len(expected)}; too many: {[*extra][:5]}, missing: {[*missing][:5]}"
            )
            self.report(name, kind, text, bool(extra))

    def check_references(self, name: str, kind: type[models.Model], row: JSONObject) -> None:
        """Note each reference of a row that names a row which the project does not show the user."""
        for field_name, reference in list_references(row):
            try:
                related = kind._meta.get_field(field_name).related_model
            except Exception:  # a computed field
                continue
            is_exposed = isinstance(related, type) and related._meta.label in self.toolsets
            if not is_exposed or "label" not in reference:
                continue
            if not self.get_rows(name, related).filter(pk=reference["pk"]).exists():
                self.report(name, kind, f"{row['pk']}.{field_name} refers to the hidden row {reference}", True)

    def report(self, name: str, kind: type[models.Model], text: str, is_leak: bool = False) -> None:
        (self.findings.leaks if is_leak else self.findings.wrong).append(f"{name}: {kind._meta.label} {text}")


def encode_key(pk: Any) -> Any:
    """Return a primary key as clients send it."""
    return pk if type(pk) is int and abs(pk) < 2**53 else str(pk)


def list_references(row: JSONObject) -> Iterator[tuple[str, JSONObject]]:
    """Yield the references of a row, each with the name of its field."""
    for field_name, value in row.items():
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, dict) and "pk" in item:
                yield field_name, item
