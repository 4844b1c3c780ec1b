"""The verdict on a run: which of its promises the journal and the rows break.

A run of a tool has *finished* when its function has reached its last line (`Event.END`), and *asked* at `Event.ASK`
without an answer. An atomic tool finishes with its commit instead, which the booked row shows.

These ends without a result are promised, and counted apart:

- A tool that must not run twice fails if its process ended during its run, or could not reach PostgreSQL for most of a
  lease.
- The same tool fails although it has finished, if its process was killed within two seconds in which it could store
  the end, or if this process alone could not reach PostgreSQL for most of a lease: other processes cannot know of the
  end. So does a plain function that finishes after its deadline, because it could not be stopped there. An atomic tool
  never does.
- An atomic tool that must not run twice, and whose own SQL lost its connection, ends with an error result and books no
  row.
- A plain function cannot be stopped: without SQL it runs on beside the next run, after its process could not reach
  PostgreSQL for most of a lease. Its rows count once all the same.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.load.random_tasks.faults import ENDS, ISOLATES, OUTAGES, Fault, FaultKind
from tests.load.task_site.journal import Entry, Event

RECONNECT_SECONDS = 2.0
"""Seconds that a process may need to reach a database that answers again."""
STORE_SECONDS = 2.0
"""Seconds of a healthy process in which it stores an end."""
LOST_TEXT = "must not run twice"
"""Words in the error of each task that failed because its attempt was lost or stopped."""
MAX_BLOCK_RATIO = 1.6
"""Part of the lease for which a tool blocks the loop of its process at most."""
BEAT_SHARE = 0.25
"""Share of the lease between two heartbeats."""
MARGIN_SHARE = 0.1
"""Share of the lease by which an attempt stops before its end."""


class ToolTraits(NamedTuple):
    """Promises for a tool."""

    may_repeat: bool = False
    """True if it may run again after its worker was lost."""
    is_atomic: bool = False
    is_plain: bool = False
    """True for a plain function, which runs on a thread."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRecord:
    """A task at the end of a run, as the rows have it."""

    number: int
    tool: str
    status: str
    """Empty if there is no row."""
    is_error: bool = False
    """True if the result is an error."""
    seen: str = ""
    """The last status that the client saw; empty for none."""
    run: str = ""
    """The run that the result names."""
    rounds: int = 0
    """Number of attempts that ended with a question."""
    bookings: tuple[str, ...] = ()
    """The runs whose rows were committed."""
    created: float = 0.0
    """Seconds of CLOCK_MONOTONIC when the client called the tool."""
    is_acknowledged: bool = True
    """True if the client got the id of the task."""
    message: str = ""
    """Error or text of the error result."""


@dataclass(slots=True)
class Verdict:
    """Problems by kind, and numbers of all ends."""

    problems: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    ends: Counter[str] = field(default_factory=Counter)
    unstopped: int = 0
    """Number of tasks whose plain function ran on after its lease."""

    def count(self, kind: str) -> int:
        return len(self.problems.get(kind, ()))


class ToolRun(NamedTuple):
    """The entries of one run of a tool, in the order of their times."""

    entries: tuple[Entry, ...]

    @property
    def letters(self) -> str:
        return self.entries[0].run

    @property
    def process(self) -> str:
        return self.entries[0].process

    @property
    def begin(self) -> float:
        return self.entries[0].time

    @property
    def last(self) -> float:
        return self.entries[-1].time

    def count(self, event: Event) -> int:
        return sum(entry.event == event for entry in self.entries)

    @property
    def has_finished(self) -> bool:
        """True if the tool has nothing left to do: it has ended or asked."""
        return self.entries[-1].event in (Event.END, Event.ASK)


def judge(
    tasks: Iterable[TaskRecord],
    entries: Iterable[Entry],
    faults: Sequence[Fault],
    tools: dict[str, ToolTraits],
    *,
    lease: float,
) -> Verdict:
    """Compare each task with its runs and with the faults of its time."""
    verdict = Verdict()
    runs = group_runs(entries)
    for task in tasks:
        case = _Case(task, runs.get(task.number, []), faults, tools[task.tool], lease)
        for kind, text in case.find_problems():
            verdict.problems[kind].append(f"{task.number} {task.tool}: {text}")
        verdict.ends[case.describe_end()] += 1
        verdict.unstopped += case.has_unstopped_run()
    return verdict


def group_runs(entries: Iterable[Entry]) -> dict[int, list[ToolRun]]:
    """Return the runs of each task in the order of their starts."""
    by_run: dict[tuple[int, str], list[Entry]] = defaultdict(list)
    for entry in sorted(entries, key=lambda entry: entry.time):
        by_run[entry.number, entry.run].append(entry)
    runs: dict[int, list[ToolRun]] = defaultdict(list)
    for (number, _), found in by_run.items():
        runs[number].append(ToolRun(tuple(found)))
    return runs


@dataclass(frozen=True, slots=True)
class _Case:
    """A task with its runs, and with the faults during them."""

    task: TaskRecord
    runs: list[ToolRun]
    faults: Sequence[Fault]
    traits: ToolTraits
    lease: float

    def describe_end(self) -> str:
        task = self.task
        if task.status == "completed" and task.is_error:
            return "error result"
        if task.status != "failed":
            return task.status or "no row"
        return "failed, finished" if self._has_finished() else "failed, unfinished"

    def find_problems(self) -> list[tuple[str, str]]:
        """Return kinds and texts of the broken promises."""
        return [
            *self._find_lost(),
            *self._find_repeated(),
            *self._find_concurrent(),
            *self._find_wrong_bookings(),
            *self._find_wrong_result(),
            *self._find_wrong_failure(),
        ]

    def _find_lost(self) -> list[tuple[str, str]]:
        task = self.task
        # A client without the id can neither answer the task nor miss it.
        may_wait = not task.is_acknowledged and task.status in ("", "input_required")
        if task.status not in ("completed", "failed") and not may_wait:
            return [("lost", task.status or "has no row")]
        if task.seen in ("completed", "failed", "cancelled") and task.seen != task.status:
            return [("changed", f"{task.seen} became {task.status}")]
        return []

    def _find_repeated(self) -> list[tuple[str, str]]:
        if self.traits.may_repeat:
            return []
        steps = sum(run.count(Event.STEP) for run in self.runs)
        answered = sum(bool(run.count(Event.ANSWER)) for run in self.runs)
        if len(self.runs) <= self.task.rounds + 1 and steps <= 1 and answered <= 1:
            return []
        text = (
            f"{len(self.runs)} runs after {self.task.rounds} questions, {steps} steps, {answered} runs with the answer"
        )
        return [("repeated", text)]

    def _list_overlaps(self) -> list[tuple[ToolRun, ToolRun]]:
        """Return pairs of runs of which the first has an entry after the start of the second."""
        return [
            (run, later)
            for number, run in enumerate(self.runs)
            for later in self.runs[number + 1 :]
            if later.begin <= run.last
        ]

    def has_unstopped_run(self) -> bool:
        """Return True if a plain function ran on beside the next run, because its process could not stop it."""
        return any(self._is_unstopped(run) for run, _ in self._list_overlaps())

    def _is_unstopped(self, run: ToolRun) -> bool:
        return self.traits.is_plain and any(
            self._is_long(fault) and fault.begin <= run.last and fault.end >= run.begin
            for fault in self._list_isolations(run)
        )

    def _find_concurrent(self) -> list[tuple[str, str]]:
        overlaps = [(run, later) for run, later in self._list_overlaps() if not self._is_unstopped(run)]
        if not overlaps:
            return []
        run, later = max(overlaps, key=lambda pair: pair[0].last - pair[1].begin)
        seconds = run.last - later.begin
        return [("at once", f"{len(overlaps)} times, for {seconds:.3f} s in {run.process} beside {later.process}")]

    def _find_wrong_bookings(self) -> list[tuple[str, str]]:
        task = self.task
        has_result = task.status == "completed" and not task.is_error
        expected = (task.run,) if self.traits.is_atomic and has_result else ()
        if task.bookings == expected:
            return []
        return [("rows", f"{len(task.bookings)} rows of an atomic tool that ended as {self.describe_end()}")]

    def _find_wrong_result(self) -> list[tuple[str, str]]:
        task = self.task
        if task.status != "completed":
            return []
        if task.is_error:
            if self.traits.is_atomic and not self.traits.may_repeat and self._was_disturbed():
                return []
            return [("wrong end", f"error result without a cause: {task.message}")]
        finished = [run.letters for run in self.runs if run.count(Event.END)]
        if task.run not in finished:
            return [("wrong end", f"the run {task.run} of the result has not finished")]
        if task.run != self.runs[-1].letters:
            return [("wrong end", f"a run began after {task.run}, whose result is stored")]
        return []

    def _was_disturbed(self) -> bool:
        """Return True if the database was out of reach during the last run, or before its commit.

        The commit needs the event loop, which another tool may block.
        """
        run = self._get_last_run()
        return run is None or any(
            fault.begin <= run.last + (1 + MAX_BLOCK_RATIO) * self.lease and fault.end >= run.begin
            for fault in self._list_isolations(run)
        )

    def _find_wrong_failure(self) -> list[tuple[str, str]]:
        task = self.task
        if task.status != "failed":
            return []
        if self.traits.may_repeat:
            return [("failed again", f"failed although it may run again: {task.message}")]
        if LOST_TEXT not in task.message:
            return [("wrong end", f"failed for another reason than a lost attempt: {task.message}")]
        if self._has_finished():
            return [] if self._is_end_lost() else [("failed, finished", self._describe_run())]
        return [] if self._is_run_lost() else [("failed without a cause", self._describe_run())]

    def _describe_run(self) -> str:
        run = self._get_last_run()
        if run is None:
            return f"never began: {self.task.message}"
        return f"{run.entries[-1].event} at {run.last:.1f} in {run.process}, begun {run.last - run.begin:.1f} s before"

    def _get_last_run(self) -> ToolRun | None:
        """Return the run of the attempt that failed; None if it failed before the tool began."""
        return self.runs[-1] if len(self.runs) > self.task.rounds else None

    def _has_finished(self) -> bool:
        run = self._get_last_run()
        return run is not None and run.has_finished

    def _is_run_lost(self) -> bool:
        """Return True if an unfinished run was lost by a fault that is promised to cost it."""
        run = self._get_last_run()
        if run is None:
            return any(
                fault.end >= self.task.created for fault in self.faults if fault.kind in ENDS or self._is_long(fault)
            )
        until = run.last + self.lease
        ended = [fault for fault in self.faults if fault.kind in ENDS and fault.process == run.process]
        costly = ended + [fault for fault in self._list_isolations(run) if self._is_long(fault)]
        return any(fault.begin <= until and fault.end >= run.begin for fault in costly)

    def _is_end_lost(self) -> bool:
        """Return True if a finished run could not store its end."""
        run = self._get_last_run()
        assert run is not None
        if self.traits.is_atomic:
            return not self.task.bookings and self._is_run_lost()
        own = [fault for fault in self.faults if fault.process == run.process]
        if self.traits.is_plain and any(
            self._is_long(fault) and run.begin <= fault.end and run.last >= self._get_first_deadline(fault)
            for fault in self._list_isolations(run)
        ):
            return True
        if any(
            fault.kind in ISOLATES
            and self._is_long(fault)
            and fault.begin <= run.last + STORE_SECONDS
            and fault.end + RECONNECT_SECONDS >= run.last  # a thread may finish as soon as its process continues
            for fault in own
        ):
            return True
        return any(
            fault.kind is FaultKind.KILL
            and fault.begin >= run.last
            and self._count_healthy_seconds(run, fault.begin) <= STORE_SECONDS
            for fault in own
        )

    def _get_first_deadline(self, fault: Fault) -> float:
        """Return the earliest time at which a fault stops an attempt, whose last heartbeat was before it."""
        return fault.begin + (1 - BEAT_SHARE - MARGIN_SHARE) * self.lease

    def _count_healthy_seconds(self, run: ToolRun, until: float) -> float:
        """Return the seconds from the end of a run in which its process could reach the database."""
        seconds, now = 0.0, run.last
        for fault in sorted(self._list_isolations(run), key=lambda fault: fault.begin):
            if fault.end + RECONNECT_SECONDS > now and fault.begin < until:
                seconds += max(0.0, fault.begin - now)
                now = max(now, fault.end + RECONNECT_SECONDS)
        return seconds + max(0.0, until - now)

    def _list_isolations(self, run: ToolRun) -> list[Fault]:
        return [
            fault
            for fault in self.faults
            if fault.kind in OUTAGES or (fault.kind in ISOLATES and fault.process == run.process)
        ]

    def _is_long(self, fault: Fault) -> bool:
        """Return True if a fault may cost a lease, whose last heartbeat was before it."""
        reach = fault.end - fault.begin + BEAT_SHARE * self.lease + RECONNECT_SECONDS
        return fault.kind in ISOLATES | OUTAGES and reach >= self.lease
