"""Hash chain of recorded calls: an altered, a removed and an inserted row are found."""

from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.utils import timezone

from mcp_django import Server
from mcp_django.contrib.control_room.models import CallLogEntry, ChainHead
from mcp_django.contrib.control_room.recording.chain import seals
from mcp_django.contrib.control_room.recording.chain.heads import START_PROCESS
from mcp_django.contrib.control_room.recording.chain.verification import verify_chain
from mcp_django.contrib.control_room.recording.maintenance import delete_old_rows, iter_prune_steps, remove_user
from mcp_django.contrib.control_room.recording.recorder import CallRecorder
from tests.contrib.control_room.conftest import BlockingClient, make_caller

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create(username="ada")


@pytest.fixture
def caller(server: Server, ada: User) -> BlockingClient:
    """A client of a user with an account."""
    return BlockingClient(server, make_caller(user=ada))


@pytest.fixture
def rows(caller: BlockingClient, recorder: CallRecorder, change: Callable[..., None]) -> list[CallLogEntry]:
    """Four rows in two writes."""
    change(CALLS="all", CHAIN=True)
    recorder.queue.forget_settings()
    for _ in range(2):
        caller.call("greet")
        caller.call("fail", secret="swordfish")
        recorder.flush()
    return list(CallLogEntry.objects.order_by("pk"))


FIRST_FIELDS = (
    *("server", "method", "name", "outcome", "error_code", "reference", "milliseconds", "revision", "session"),
    *("call_id", "trace_id", "process"),
)
LATER_FIELDS = ("transport", "conversation", "round", "waited_milliseconds", "request_bytes", "response_bytes")
"""Fields of the digest of a row before migrations 0008 and 0011, in their order."""


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


@pytest.mark.parametrize("form", ["1", "2"])
def test_rows_of_earlier_versions_are_verifiable_and_can_lose_their_user(
    rows: list[CallLogEntry], recorder: CallRecorder, caller: BlockingClient, form: str, ada: User
) -> None:
    key = seals.derive_keys()[0]
    previous_at = previous = ""
    for number, row in enumerate(rows, start=1):
        for name, value in seals.FORMS[form].uncovered.items():
            setattr(row, name, value)
        values = seals.get_values(row)
        actor = seals.digest(key, [seals.format_time(row.at), row.process, row.actor_key])[:24] if form == "2" else ""
        personal = seals.digest(key, [values[name] for name in seals.FORMS[form].personal])
        links = [number, previous_at, previous, personal]
        later = [*(values[name] for name in LATER_FIELDS), actor] if actor else []
        fields = [seals.format_time(row.at), *(values[name] for name in FIRST_FIELDS)]
        digest = seals.digest(key, [*fields, *links, *later])
        row.seal = f"{number}:{previous_at}:{previous}:{personal}:{digest}" + (f":{actor}" if actor else "")
        row.save()
        previous_at, previous = seals.format_time(row.at), digest
    ChainHead.objects.all().delete()
    recorder._writer._chain = seals.ChainState(len(rows), previous, rows[-1].at)
    caller.call("greet")
    recorder.flush()
    assert find_problems() == []

    CallLogEntry.objects.filter(pk=rows[2].pk).update(principal="removed:0123456789abcdef", client="")
    CallLogEntry.objects.filter(pk=rows[2].pk).update(user_key="", arguments="", timeline="")
    assert find_problems() == []  # a removal of that time, without a mark
    assert remove_user(str(ada.pk))
    assert find_problems() == []
    assert CallLogEntry.objects.filter(session="", call_id="", reference="").count() == 4

    for change in ({"conversation": "forged"}, {"user_key": "5"}, {"principal": "removed:me"}, {"outcome": "bug"}):
        row = CallLogEntry.objects.get(pk=rows[2].pk)
        CallLogEntry.objects.filter(pk=row.pk).update(**change)
        assert find_problems() == [("altered", f"row {row.pk} does not fit its seal")]
        row.save()


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
    assert ChainHead.objects.exclude(process=START_PROCESS).count() == 1  # the last end stays


def test_another_key_finds_all_rows(rows: list[CallLogEntry], settings: Any) -> None:
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another", [settings.SECRET_KEY]
    assert find_problems() == []
    settings.SECRET_KEY_FALLBACKS = []
    assert {text for _kind, text in find_problems()} >= {f"row {row.pk} does not fit its seal" for row in rows}


def test_without_the_setting_rows_have_no_seal(caller: BlockingClient, recorder: CallRecorder) -> None:
    caller.call("fail")
    recorder.flush()
    assert CallLogEntry.objects.get().seal == ""
    assert not ChainHead.objects.exists()
