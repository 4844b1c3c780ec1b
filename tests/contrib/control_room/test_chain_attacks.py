"""Changes of sealed rows by a person with access to the database, and the flows that do not alter them.

The tables below are those of docs/run/records.md: each change is noticed, or is stated there as one that is not.
"""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import models
from django.utils import timezone

from mcp_django.contrib.control_room.models import CallLogEntry, ChainHead
from mcp_django.contrib.control_room.recording.chain.anchors import Anchor, read_anchors
from mcp_django.contrib.control_room.recording.chain.heads import START_PROCESS
from mcp_django.contrib.control_room.recording.chain.seals import CLEARED_FIELDS, FORMS, Seal
from mcp_django.contrib.control_room.recording.chain.verification import verify_chain
from mcp_django.contrib.control_room.recording.counts import ProcessCounts
from mcp_django.contrib.control_room.recording.entries import CallDetail, CallEntry, CallGroup
from mcp_django.contrib.control_room.recording.maintenance import delete_old_rows, iter_prune_steps, remove_user
from mcp_django.contrib.control_room.recording.writer import RowWriter
from mcp_django.contrib.control_room.signals import chain_sealed
from mcp_django.observability import Outcome
from tests.contrib.control_room.conftest import ALIAS

pytestmark = pytest.mark.django_db

DETAIL = CallDetail(
    error_code=-32602,
    reference="4c1f",
    actor_key="9",
    client="Claude",
    revision="2026-07-28",
    transport="http",
    session="1a2b3c4d",
    call_id="17",
    trace_id="a" * 32,
    conversation="b" * 32,
    round=2,
    waited_milliseconds=1.5,
    timeline="{}",
    request_bytes=70,
    response_bytes=80,
    arguments='{"pk": 3}',
)
COLUMNS = [field.name for field in CallLogEntry._meta.concrete_fields if not field.primary_key]


@pytest.fixture(autouse=True)
def chain_on(change: Callable[..., None]) -> None:
    change(CALLS="all", CHAIN=True)


def write(process: str, users: str = "55", *, writer: RowWriter | None = None, at: float | None = None) -> RowWriter:
    """Write a row for each digit of `users`, which is the key of its user."""
    writer = writer or RowWriter(process)
    entries = [
        CallEntry(
            (timezone.now().timestamp() if at is None else at) + number / 1000,
            CallGroup(ALIAS, "tools/call", "greet", Outcome.OK, f"tests|{user}|cli", user, "cli"),
            0.25,
            DETAIL,
        )
        for number, user in enumerate(users)
    ]
    writer.write(ProcessCounts(), entries)
    return writer


@pytest.fixture
def rows(db: None) -> list[CallLogEntry]:
    """Three rows of each of two processes."""
    for process in ("one", "two"):
        write(process, "565")
    assert find_problems() == []
    return list(CallLogEntry.objects.order_by("process", "pk"))


def find_problems(*given: Anchor) -> list[tuple[str, str]]:
    return [(problem.kind, problem.text) for problem in verify_chain("default", given)]


def change_value(field: "models.Field[Any, Any]", value: Any) -> Any:
    if isinstance(value, datetime):
        return value - timedelta(microseconds=1)
    return value + 1 if isinstance(value, int | float) else f"{value}x"[-(field.max_length or 999) :]


def test_each_column_is_covered_by_the_digests() -> None:
    form = FORMS["3"]
    assert sorted(("at", "actor_key", "seal", *form.public, *form.personal)) == sorted(COLUMNS)
    assert all(getattr(DETAIL, name, "cli") not in ("", None) for name in COLUMNS)


@pytest.mark.parametrize("name", COLUMNS)
def test_the_change_of_any_column_is_found(rows: list[CallLogEntry], name: str, subtests: pytest.Subtests) -> None:
    field = CallLogEntry._meta.get_field(name)
    remove_user("6")
    for row in CallLogEntry.objects.filter(process="one"):
        before = getattr(row, name)
        empty = None if field.null else ""
        for value in (change_value(field, before or (0 if field.null else "x")), empty):
            if value == before or (value == "" and not isinstance(field, models.CharField | models.TextField)):
                continue
            with subtests.test(user=row.user_key, value=value):
                CallLogEntry.objects.filter(pk=row.pk).update(**{name: value})
                assert find_problems() != []
                CallLogEntry.objects.filter(pk=row.pk).update(**{name: before})
    assert find_problems() == []


FALSE_REMOVALS: list[dict[str, str]] = [
    {"principal": "removed:aaaaaaaaaaaaaaaa"},
    {"principal": "removed:aaaaaaaaaaaaaaaa", "user_key": ""},
    {"principal": "removed:aaaaaaaaaaaaaaaa", "user_key": "", **dict.fromkeys(CLEARED_FIELDS, "")},
    {"principal": "removed:aaaaaaaaaaaaaaaa", "user_key": "5"},
    {"principal": "removed:aaaaaaaaaaaaaaaa", "arguments": '{"forged":1}', "client": "x", "timeline": "x"},
    {"principal": "removed:django|5|token:9"},
    {"actor_key": "removed:root did it"},
    {"actor_key": "removed:aaaaaaaaaaaaaaaa"},
    {"actor_key": ""},
    {"seal": ""},
]


@pytest.mark.parametrize("values", FALSE_REMOVALS)
@pytest.mark.parametrize("is_removed", [False, True])
def test_a_removal_that_never_happened_is_found(
    rows: list[CallLogEntry], values: dict[str, str], is_removed: bool
) -> None:
    """The same for a row whose user was removed: a writer cannot give it another person."""
    if is_removed:
        remove_user("5")
    CallLogEntry.objects.filter(pk=rows[0].pk).update(**values)
    assert [text for _kind, text in find_problems() if f"row {rows[0].pk} " in text]


def test_a_mark_copied_from_another_row_is_found(rows: list[CallLogEntry]) -> None:
    remove_user("6")
    marked = Seal.parse(CallLogEntry.objects.get(pk=rows[1].pk).seal)
    own = Seal.parse(rows[0].seal)
    assert marked is not None
    assert own is not None
    removed = {"principal": "removed:aaaaaaaaaaaaaaaa", "user_key": "", **dict.fromkeys(CLEARED_FIELDS, "")}
    CallLogEntry.objects.filter(pk=rows[0].pk).update(seal=str(own._replace(mark=marked.mark)), **removed)
    assert find_problems() == [("altered", f"row {rows[0].pk} does not fit its seal")]


def test_a_seal_has_one_text(rows: list[CallLogEntry], subtests: pytest.Subtests) -> None:
    first = rows[1].seal
    number = first.split(":")[1]
    for text in (
        first.replace(f":{number}:", f":0{number}:", 1),
        first.replace(f":{number}:", f":+{number}:", 1),
        first.replace(f":{number}:", ":\u0662:", 1),
        first + ":",
        " " + first,
        first.upper(),
        first.replace("3:", "03:", 1),
        "4" + first[1:],
        first[2:],
    ):
        with subtests.test(text=text):
            assert Seal.parse(text) is None
            CallLogEntry.objects.filter(pk=rows[1].pk).update(seal=text)
            assert find_problems()


def delete_head(rows: list[CallLogEntry]) -> None:
    ChainHead.objects.filter(process="one").delete()


def lower_head(rows: list[CallLogEntry]) -> None:
    rows[2].delete()
    ChainHead.objects.filter(process="one").update(number=2)


def date_head_back(rows: list[CallLogEntry]) -> None:
    CallLogEntry.objects.filter(process="one").delete()
    ChainHead.objects.filter(process="one").update(at=timezone.now() - timedelta(days=90))


def swap_rows(rows: list[CallLogEntry]) -> None:
    last = rows[-1].pk
    CallLogEntry.objects.filter(pk=rows[0].pk).update(id=last + 1)


def insert_unsealed(rows: list[CallLogEntry]) -> None:
    rows[0].pk, rows[0].seal, rows[0].process = None, "", "invented"
    rows[0].save(force_insert=True)


def insert_before_the_first_row_of_a_process(rows: list[CallLogEntry]) -> None:
    rows[3].at = rows[0].at + (rows[3].at - rows[0].at) / 2
    rows[3].pk, rows[3].seal = None, ""
    rows[3].save(force_insert=True)


def copy_to_another_process(rows: list[CallLogEntry]) -> None:
    rows[0].pk, rows[0].process = None, "three"
    rows[0].save(force_insert=True)


def strip_a_process(rows: list[CallLogEntry]) -> None:
    CallLogEntry.objects.filter(process="one").update(seal="", outcome="bug")
    ChainHead.objects.filter(process="one").delete()


def strip_all(rows: list[CallLogEntry]) -> None:
    CallLogEntry.objects.update(seal="")
    ChainHead.objects.exclude(process=START_PROCESS).delete()


def strip_all_with_the_start(rows: list[CallLogEntry]) -> None:
    CallLogEntry.objects.update(seal="")
    ChainHead.objects.all().delete()


def delete_the_start(rows: list[CallLogEntry]) -> None:
    ChainHead.objects.filter(process=START_PROCESS).delete()


def date_the_start_later(rows: list[CallLogEntry]) -> None:
    ChainHead.objects.filter(process=START_PROCESS).update(at=timezone.now())


def delete_all(rows: list[CallLogEntry]) -> None:
    CallLogEntry.objects.all().delete()
    ChainHead.objects.all().delete()


NOTICED = [
    *(delete_head, lower_head, date_head_back, swap_rows, insert_unsealed, insert_before_the_first_row_of_a_process),
    *(copy_to_another_process, strip_a_process, strip_all, strip_all_with_the_start, delete_the_start),
    *(date_the_start_later, delete_all),
]


@pytest.mark.parametrize("attack", NOTICED)
def test_an_attack_without_the_key_is_found(
    rows: list[CallLogEntry], attack: Callable[[list[CallLogEntry]], None]
) -> None:
    attack(rows)
    assert find_problems()
    with pytest.raises(CommandError, match="found"):
        call_command("mcp_audit", "verify", stderr=StringIO(), stdout=StringIO())


@pytest.mark.parametrize("index", range(3))
def test_a_deleted_row_of_any_place_is_found(rows: list[CallLogEntry], index: int) -> None:
    rows[index].delete()
    assert [kind for kind, _text in find_problems()] == ["removed"]


# Changes that the database alone does not show (docs/run/records.md), and the anchor does.


def put_back_an_earlier_end(rows: list[CallLogEntry]) -> None:
    head = ChainHead.objects.get(process="one")
    write("one", "5", writer=WRITERS["one"])
    CallLogEntry.objects.filter(process="one").latest("pk").delete()
    head.save()


def delete_a_process_and_its_end(rows: list[CallLogEntry]) -> None:
    CallLogEntry.objects.filter(process="one").delete()
    ChainHead.objects.filter(process="one").delete()


def replace_all_by_a_new_chain(rows: list[CallLogEntry]) -> None:
    """The key is known: each row is sealed again."""
    CallLogEntry.objects.filter(process="one").delete()
    ChainHead.objects.filter(process="one").delete()
    write("one", "777")


WRITERS: dict[str, RowWriter] = {}


@pytest.fixture
def anchored(change: Callable[..., None], tmp_path: Path) -> Iterator[Path]:
    """The file to which the writers of two processes have appended, one after the other."""
    path = tmp_path / "anchor.jsonl"
    change(CALLS="all", CHAIN=True, ANCHOR=str(path))
    now = timezone.now().timestamp()
    WRITERS.update((process, write(process, "565", at=now - age)) for process, age in (("one", 60), ("two", 30)))
    yield path
    WRITERS.clear()


@pytest.mark.parametrize("attack", [put_back_an_earlier_end, delete_a_process_and_its_end, replace_all_by_a_new_chain])
def test_the_anchor_finds_changes_that_the_database_does_not_show(
    anchored: Path, attack: Callable[[list[CallLogEntry]], None]
) -> None:
    assert find_problems(*read_anchors([anchored])) == []
    kept = list(read_anchors([anchored]))
    attack(list(CallLogEntry.objects.order_by("process", "pk")))
    assert find_problems() == []
    assert find_problems(*kept) or find_problems(*read_anchors([anchored]))


def test_a_row_without_a_seal_is_found_by_the_anchor_although_all_seals_are_gone(anchored: Path) -> None:
    strip_all_with_the_start([])
    problems = find_problems(*read_anchors([anchored]))
    assert sum(text.endswith("has no seal") for _kind, text in problems) == 4  # later than the first line
    assert sum("of the anchor is missing" in text for _kind, text in problems) == 2


def test_the_anchor_has_a_line_for_each_write_and_a_receiver_gets_the_same(anchored: Path) -> None:
    received: list[dict[str, Any]] = []

    def keep(sender: object, **values: Any) -> None:
        received.append({name: values[name] for name in Anchor._fields})
        raise RuntimeError("the receiver fails")

    chain_sealed.connect(keep)
    try:
        write("one", "5", writer=WRITERS["one"])
    finally:
        chain_sealed.disconnect(keep)
    lines = [json.loads(line) for line in anchored.read_text().splitlines()]
    assert [(line["process"], line["number"]) for line in lines] == [("one", 3), ("two", 3), ("one", 4)]
    assert [anchor._asdict() for anchor in read_anchors([anchored])][-1:] == received
    seal = Seal.parse(CallLogEntry.objects.filter(process="one").latest("pk").seal)
    assert seal is not None
    assert seal.digest == lines[-1]["digest"]
    assert anchored.stat().st_mode & 0o777 == 0o640


def test_the_command_compares_with_the_file_of_the_settings_or_a_copy(anchored: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.jsonl"
    copy.write_bytes(anchored.read_bytes())
    call_command("mcp_audit", "verify", stdout=StringIO())
    delete_a_process_and_its_end([])
    for arguments in ([], ["--anchor", str(copy)]):
        err = StringIO()
        with pytest.raises(CommandError, match="1 problem found"):
            call_command("mcp_audit", "verify", *arguments, stderr=err, stdout=StringIO())
        assert err.getvalue() == "removed: one: the row with number 3 of the anchor is missing\n"
    copy.write_text("damaged\n")
    with pytest.raises(CommandError, match=r"line 1 of .* is not an anchor"):
        call_command("mcp_audit", "verify", "--anchor", str(copy), stdout=StringIO())


def test_an_anchor_that_cannot_be_written_stops_no_recording(
    change: Callable[..., None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    change(CALLS="all", CHAIN=True, ANCHOR=str(tmp_path / "missing" / "anchor"))
    write("one", "55")
    assert find_problems() == []
    assert "cannot be written: No such file or directory" in caplog.text


# Flows that do not alter rows.


def test_retention_removals_and_several_processes_are_no_problem(anchored: Path, change: Callable[..., None]) -> None:
    old = (timezone.now() - timedelta(days=40)).timestamp()
    write("old", "565", at=old)
    write("killed", "5")  # a process that is killed loses calls that it has not written
    for _ in range(3):
        write("one", "56", writer=WRITERS["one"])
        write("two", "65", writer=WRITERS["two"])
    remove_user("6")
    remove_user("9")  # the acting user of all rows, also of the removed ones
    assert find_problems(*read_anchors([anchored])) == []
    remove_user("5")
    assert find_problems(*read_anchors([anchored])) == []
    for step in iter_prune_steps():
        delete_old_rows(step)
    assert not CallLogEntry.objects.filter(process="old").exists()
    assert find_problems(*read_anchors([anchored])) == []
    for step in iter_prune_steps(timezone.now() + timedelta(days=60)):
        delete_old_rows(step)
    assert not CallLogEntry.objects.exists()
    assert [head.process for head in ChainHead.objects.order_by("process")][:1] == [START_PROCESS]


def test_rows_of_before_the_switch_have_no_seal(change: Callable[..., None]) -> None:
    change(CALLS="all")
    write("before", "56", at=timezone.now().timestamp() - 1)
    change(CALLS="all", CHAIN=True)
    write("after", "56")
    assert find_problems() == []


def test_a_replaced_secret_key_is_followed(rows: list[CallLogEntry], settings: Any) -> None:
    remove_user("6")
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "another", [settings.SECRET_KEY]
    write("three", "565")
    remove_user("5")
    assert find_problems() == []
    settings.SECRET_KEY_FALLBACKS = []
    assert {text for _kind, text in find_problems()} > {f"row {row.pk} does not fit its seal" for row in rows}


def test_an_altered_row_is_found_after_the_removal_of_its_user(rows: list[CallLogEntry]) -> None:
    CallLogEntry.objects.filter(pk=rows[0].pk).update(outcome="bug")
    remove_user("5")
    row = CallLogEntry.objects.get(pk=rows[0].pk)
    assert row.principal.startswith("removed:")
    assert row.session == ""
    assert find_problems() == [("altered", f"row {row.pk} does not fit its seal")]


def test_the_seal_of_a_removed_row_fits_no_guess(rows: list[CallLogEntry]) -> None:
    """The digits that the digests of the person were made with are gone, so the key confirms no name."""
    remove_user("5")
    remove_user("9")
    seal = Seal.parse(CallLogEntry.objects.get(pk=rows[0].pk).seal)
    before = Seal.parse(rows[0].seal)
    assert seal is not None
    assert before is not None
    assert (seal.personal_salt, seal.actor_salt) == ("", "")
    assert before.personal_salt != before.actor_salt
    assert seal.digest == before.digest


def test_the_first_seal_of_all_processes_has_one_time(rows: list[CallLogEntry]) -> None:
    start = ChainHead.objects.get(process=START_PROCESS)
    assert start.at == rows[0].at.astimezone(UTC)
    write("three", at=(start.at - timedelta(minutes=1)).timestamp())  # its calls waited for the database
    assert find_problems() == []
