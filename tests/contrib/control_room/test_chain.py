"""Hash chain of recorded calls: an altered, a removed and an inserted row are found."""

from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from mcp_django.contrib.control_room.models import CallLogEntry, ChainHead
from mcp_django.contrib.control_room.recording import chain
from mcp_django.contrib.control_room.recording.chain import verify_chain
from mcp_django.contrib.control_room.recording.maintenance import delete_old_rows, iter_prune_steps, remove_user
from mcp_django.contrib.control_room.recording.recorder import CallRecorder
from tests.contrib.control_room.conftest import BlockingClient

pytestmark = pytest.mark.django_db


@pytest.fixture
def rows(caller: BlockingClient, recorder: CallRecorder, change: Callable[..., None]) -> list[CallLogEntry]:
    """Four rows in two writes."""
    change(CALLS="all", CHAIN=True)
    recorder.forget_settings()
    for _ in range(2):
        caller.call("greet")
        caller.call("fail", secret="swordfish")
        recorder.flush()
    return list(CallLogEntry.objects.order_by("pk"))


def find_problems() -> list[tuple[str, str]]:
    return [(problem.kind, problem.text) for problem in verify_chain("default")]


def test_an_untouched_chain_has_no_problem(rows: list[CallLogEntry]) -> None:
    assert find_problems() == []
    out = StringIO()
    call_command("mcp_audit", "verify", stdout=out)
    assert "4 rows, the last one at" in out.getvalue()
    assert "4 rows verified, no problem found." in out.getvalue()


@pytest.mark.parametrize(
    "values",
    [
        {"outcome": "ok"},
        {"milliseconds": 1.0},
        {"principal": "somebody"},
        {"arguments": "{}"},
        {"name": "other"},
        {"error_code": 5},
        {"at": timezone.now() - timedelta(minutes=5)},
        {"transport": "stdio"},
        {"round": 3},
        {"response_bytes": 5},
        {"timeline": "{}"},
        {"actor_key": "7"},
        {"seal": "1::::"},
        {"seal": "damaged"},
    ],
)
def test_an_altered_row_is_found(rows: list[CallLogEntry], values: dict[str, Any]) -> None:
    CallLogEntry.objects.filter(pk=rows[1].pk).update(**values)
    kinds = {kind for kind, text in find_problems() if f"row {rows[1].pk}" in text}
    assert kinds & {"altered", "inserted"}
    with pytest.raises(CommandError, match="found"):
        call_command("mcp_audit", "verify", stderr=StringIO(), stdout=StringIO())


def test_a_removed_row_is_found_wherever_it_was(rows: list[CallLogEntry], subtests: pytest.Subtests) -> None:
    for row, text in zip(
        rows,
        (
            f"a row before row {rows[1].pk} is missing, number 1",
            f"rows before row {rows[2].pk} are missing, numbers 2 to 2",
            f"rows before row {rows[3].pk} are missing, numbers 3 to 3",
            "rows at the end are missing, up to number 4",
        ),
        strict=True,
    ):
        with subtests.test(row=row.seal):
            CallLogEntry.objects.filter(pk=row.pk).delete()
            assert find_problems() == [("removed", text)]
            row.save(force_insert=True)
            assert find_problems() == []


def test_the_removal_of_all_rows_is_found(rows: list[CallLogEntry]) -> None:
    CallLogEntry.objects.all().delete()
    assert find_problems() == [("removed", "all rows up to number 4 are missing")]


def test_an_inserted_row_is_found(rows: list[CallLogEntry], subtests: pytest.Subtests) -> None:
    for seal, kind in (
        ("", "inserted"),
        (rows[1].seal, "inserted"),
        (rows[3].seal, "inserted"),
        ("5:1:a:b:c", "altered"),
    ):
        with subtests.test(seal=seal):
            row = CallLogEntry.objects.get(pk=rows[1].pk)
            row.pk, row.seal = None, seal
            row.save(force_insert=True)
            assert (kind, row.pk) in [(kind, row.pk) for kind, text in find_problems() if f"row {row.pk}" in text]
            row.delete()


def test_retention_and_the_removal_of_a_user_are_no_problem(
    rows: list[CallLogEntry], recorder: CallRecorder, caller: BlockingClient
) -> None:
    assert remove_user(rows[0].user_key) or CallLogEntry.objects.update(principal="removed:x", client="")
    assert find_problems() == []


def test_the_removal_of_an_acting_user_lets_nobody_alter_the_caller(rows: list[CallLogEntry]) -> None:
    CallLogEntry.objects.update(actor_key="removed:x")
    assert find_problems() == []
    CallLogEntry.objects.filter(pk=rows[1].pk).update(principal="tests|bob|cli")
    assert find_problems() == [("altered", f"row {rows[1].pk} does not fit its seal")]


def test_rows_of_before_the_later_columns_are_verified_with_those_after_them(
    rows: list[CallLogEntry], recorder: CallRecorder, caller: BlockingClient
) -> None:
    key = chain._derive_keys()[0]
    previous_at = previous = ""
    for number, row in enumerate(rows, start=1):  # written as before migration 0008
        for name, value in chain._DEFAULTS.items():
            setattr(row, name, value)
        values = {name: getattr(row, name) for name in chain._ALL_FIELDS}
        personal = chain._digest(key, [values[name] for name in ("principal", "user_key", "client", "arguments")])
        fields = [chain._format_time(row.at), *(values[name] for name in chain.FIRST_FIELDS)]
        digest = chain._digest(key, [*fields, number, previous_at, previous, personal])
        row.seal = f"{number}:{previous_at}:{previous}:{personal}:{digest}"
        row.save()
        previous_at, previous = chain._format_time(row.at), digest
    recorder._writer._chain = chain.ChainState(len(rows), previous, rows[-1].at)
    caller.call("greet")
    recorder.flush()
    assert find_problems() == []
    assert CallLogEntry.objects.count() == 5

    CallLogEntry.objects.filter(pk=rows[2].pk).update(conversation="forged")
    assert find_problems() == [("altered", f"row {rows[2].pk} does not fit its seal")]


def test_rows_past_their_retention_may_be_deleted(
    rows: list[CallLogEntry], change: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    change(CALLS="all", CHAIN=True, KEEP={"calls": 1})
    later = timezone.now() + timedelta(days=2)
    monkeypatch.setattr(timezone, "now", lambda: later)
    rows[0].delete()
    assert find_problems() == []
    for step in iter_prune_steps(later):
        delete_old_rows(step)
    assert find_problems() == []
    assert not ChainHead.objects.exists()


def test_another_key_finds_all_rows(rows: list[CallLogEntry], settings: Any) -> None:
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another", [settings.SECRET_KEY]
    assert find_problems() == []
    settings.SECRET_KEY_FALLBACKS = []
    assert len(find_problems()) == 4


def test_without_the_setting_rows_have_no_seal(caller: BlockingClient, recorder: CallRecorder) -> None:
    caller.call("fail")
    recorder.flush()
    assert CallLogEntry.objects.get().seal == ""
    assert not ChainHead.objects.exists()
