"""Tables of the control room: counts of calls, and rows of single calls.

The rows have no foreign keys, because they may be in another database and outlive users.
"""

from datetime import datetime
from typing import Any, ClassVar

from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from mcp_django.contrib.control_room.alert_rules import get_rules

NAME_CHARACTERS = 160
KEY_CHARACTERS = 255
SEAL_CHARACTERS = 400
PROCESS_CHARACTERS = 80
UNKNOWN_NAME = "(unknown)"
"""Name of calls whose tool, prompt or resource was not found."""
REMOVED_PREFIX = "removed:"
"""Start of the principal of a removed user."""
OTHER_NAMES = "(others)"
"""Name of calls above the limit of names that a process counts."""
_NO_TEXT: dict[str, Any] = {"blank": True, "default": "", "db_default": ""}
"""Options of a column that processes of an earlier version do not write."""


class Period(models.IntegerChoices):
    """Seconds that a count covers."""

    MINUTE = 60, _("minute")
    HOUR = 3600, _("hour")
    DAY = 86_400, _("day")


class OutcomeChoices(models.TextChoices):
    """Outcome of a call, as in the log."""

    OK = "ok", _("ok")
    TOOL_ERROR = "tool_error", _("tool error")
    INPUT_REQUIRED = "input_required", _("input required")
    ERROR = "error", _("protocol error")
    BUG = "bug", _("bug")
    TIMEOUT = "timeout", _("timeout")
    CANCELLED = "cancelled", _("cancelled")
    OVERLOADED = "overloaded", _("refused by a limit")


class TransportChoices(models.TextChoices):
    """Way of a call to the server."""

    HTTP = "http", "HTTP"
    WEBSOCKET = "websocket", "WebSocket"
    STDIO = "stdio", _("standard streams")
    PROCESS = "process", _("within the process")


class CallRollup(models.Model):
    """Count of the calls with one method, name and outcome in a period, by process.

    A process writes the total of its minute, so a repeated write changes nothing. The rows of hours and days are sums
    over all processes, with an empty process.
    """

    period = models.IntegerField(_("period"), choices=Period.choices)
    start = models.DateTimeField(_("start"))
    server = models.CharField(_("server"), max_length=64)
    method = models.CharField(_("method"), max_length=64)
    name = models.CharField(_("name"), max_length=NAME_CHARACTERS)
    outcome = models.CharField(_("outcome"), max_length=16, choices=OutcomeChoices.choices)
    process = models.CharField(_("process"), max_length=PROCESS_CHARACTERS)
    count = models.PositiveBigIntegerField(_("calls"))
    milliseconds_sum = models.FloatField(_("sum of milliseconds"))
    milliseconds_max = models.FloatField(_("longest, in milliseconds"))
    histogram = models.BinaryField(_("histogram"))

    class Meta:
        verbose_name = _("count of calls")
        verbose_name_plural = _("counts of calls")
        constraints = [
            models.UniqueConstraint(
                fields=["period", "start", "server", "method", "name", "outcome", "process"],
                name="mcp_control_room_rollup",
            )
        ]

    def __str__(self) -> str:
        return f"{self.method} {self.name} {self.outcome}"


class ServerRollup(models.Model):
    """Count of all calls of a server with one outcome in an hour.

    The charts of a day and of a week come from these rows.
    """

    start = models.DateTimeField(_("start"))
    server = models.CharField(_("server"), max_length=64)
    outcome = models.CharField(_("outcome"), max_length=16, choices=OutcomeChoices.choices)
    count = models.PositiveBigIntegerField(_("calls"))
    milliseconds_sum = models.FloatField(_("sum of milliseconds"))
    milliseconds_max = models.FloatField(_("longest, in milliseconds"))
    histogram = models.BinaryField(_("histogram"))

    objects: ClassVar[models.Manager["ServerRollup"]] = models.Manager()

    class Meta:
        verbose_name = _("count of calls of a server")
        verbose_name_plural = _("counts of calls of servers")
        default_permissions = ()
        constraints = [
            models.UniqueConstraint(fields=["start", "server", "outcome"], name="mcp_control_room_server_rollup")
        ]

    def __str__(self) -> str:
        return f"{self.server} {self.outcome}"


class ControlRoom(CallRollup):
    """Page of the control room, whose permission opens it. It has no rows of its own."""

    class Meta:
        proxy = True
        default_permissions = ("view",)
        permissions = [
            ("cancel_call", _("Can cancel calls")),
            ("end_stream", _("Can end streams without a session")),
            ("revoke_access", _("Can revoke the access of OAuth clients")),
        ]
        verbose_name = _("control room")
        verbose_name_plural = _("control room")


class UsageRollup(models.Model):
    """Count of the calls of one caller and name in an hour, by process."""

    start = models.DateTimeField(_("start"))
    server = models.CharField(_("server"), max_length=64)
    method = models.CharField(_("method"), max_length=64)
    name = models.CharField(_("name"), max_length=NAME_CHARACTERS)
    principal = models.CharField(_("principal"), max_length=KEY_CHARACTERS)
    user_key = models.CharField(_("user"), max_length=64, blank=True)
    client = models.CharField(_("client"), max_length=KEY_CHARACTERS, blank=True)
    process = models.CharField(_("process"), max_length=PROCESS_CHARACTERS)
    count = models.PositiveBigIntegerField(_("calls"))
    failed = models.PositiveBigIntegerField(_("failed calls"))
    milliseconds_sum = models.FloatField(_("sum of milliseconds"))

    class Meta:
        verbose_name = _("usage by a caller")
        verbose_name_plural = _("usage by callers")
        constraints = [
            models.UniqueConstraint(
                fields=["start", "server", "method", "name", "principal", "process"], name="mcp_control_room_usage"
            )
        ]
        indexes = [models.Index(fields=["user_key", "start"], name="mcp_control_room_usage_user")]

    def __str__(self) -> str:
        return f"{self.principal} {self.name}"


class ServingProcess(models.Model):
    """Process that serves calls, and reports here every few seconds."""

    name = models.CharField(_("process"), max_length=PROCESS_CHARACTERS, primary_key=True)
    started = models.DateTimeField(_("started"))
    updated = models.DateTimeField(_("last report"))
    running = models.PositiveIntegerField(_("running calls"))
    busy_threads = models.PositiveIntegerField(_("busy threads"))
    max_threads = models.PositiveIntegerField(_("maximum threads"))
    queued = models.PositiveIntegerField(_("calls that wait for a thread"))
    dropped = models.PositiveBigIntegerField(_("dropped records"))
    streams = models.PositiveIntegerField(_("open streams without a session"), default=0, db_default=0)
    package_version = models.CharField(_("version of mcp-django"), max_length=32, **_NO_TEXT)
    python_version = models.CharField(_("version of Python"), max_length=32, **_NO_TEXT)
    django_version = models.CharField(_("version of Django"), max_length=32, **_NO_TEXT)

    objects: ClassVar[models.Manager["ServingProcess"]] = models.Manager()

    class Meta:
        verbose_name = _("process")
        verbose_name_plural = _("processes")
        default_permissions = ()

    def __str__(self) -> str:
        return self.name

    @property
    def versions(self) -> tuple[str, str, str]:
        """Versions of the package, Python and Django.

        They are empty in the row of a process with an earlier version of the package.
        """
        return self.package_version, self.python_version, self.django_version


class LongCall(models.Model):
    """Running call that is older than a second.

    Its process writes the row, and deletes it at the end of the call.
    """

    key = models.CharField(max_length=32, primary_key=True)
    process = models.CharField(_("process"), max_length=PROCESS_CHARACTERS, db_index=True)
    started = models.DateTimeField(_("started"))
    server = models.CharField(_("server"), max_length=64)
    method = models.CharField(_("method"), max_length=64)
    name = models.CharField(_("name"), max_length=NAME_CHARACTERS, blank=True)
    principal = models.CharField(_("principal"), max_length=KEY_CHARACTERS)
    user_key = models.CharField(_("user"), max_length=64, blank=True)
    client = models.CharField(_("client"), max_length=KEY_CHARACTERS, blank=True)
    revision = models.CharField(_("revision"), max_length=16)
    waits_for = models.CharField(_("waits for"), max_length=NAME_CHARACTERS, blank=True)
    progress = models.FloatField(_("progress"), null=True)
    progress_total = models.FloatField(_("total"), null=True)
    cancelled = models.DateTimeField(_("cancelled"), null=True)
    """Time at which an administrator cancelled the call; the process does so with its next report."""

    objects: ClassVar[models.Manager["LongCall"]] = models.Manager()

    class Meta:
        verbose_name = _("running call")
        verbose_name_plural = _("running calls")
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.method} {self.name}".strip()


class ReportedStream(models.Model):
    """Open stream of changes of a client without a session (`subscriptions/listen`).

    Its process writes the row, and deletes it at the end of the stream.
    """

    key = models.CharField(max_length=32, primary_key=True)
    process = models.CharField(_("process"), max_length=PROCESS_CHARACTERS, db_index=True)
    started = models.DateTimeField(_("started"))
    server = models.CharField(_("server"), max_length=64)
    principal = models.CharField(_("principal"), max_length=KEY_CHARACTERS)
    user_key = models.CharField(_("user"), max_length=64, blank=True)
    client = models.CharField(_("client"), max_length=KEY_CHARACTERS, blank=True)
    revision = models.CharField(_("revision"), max_length=16)
    lists = models.CharField(_("lists"), max_length=64, blank=True)
    """Kinds of lists whose changes the client gets, separated by commas."""
    resources = models.PositiveIntegerField(_("resources"))
    others = models.PositiveIntegerField(_("other subjects"))
    """Number of subscribed keys of extensions, such as tasks."""
    ended = models.DateTimeField(_("ended"), null=True)
    """Time at which an administrator ended the stream; the process does so with its next report."""

    objects: ClassVar[models.Manager["ReportedStream"]] = models.Manager()

    class Meta:
        verbose_name = _("stream without a session")
        verbose_name_plural = _("streams without a session")
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.principal}, {self.client}" if self.client else self.principal


class CallLogEntry(models.Model):
    """Call that failed, was slow, or was selected by the settings."""

    at = models.DateTimeField(_("time"))
    server = models.CharField(_("server"), max_length=64)
    method = models.CharField(_("method"), max_length=64)
    name = models.CharField(_("name"), max_length=NAME_CHARACTERS, blank=True)
    outcome = models.CharField(_("outcome"), max_length=16, choices=OutcomeChoices.choices)
    error_code = models.IntegerField(_("error code"), null=True, blank=True)
    reference = models.CharField(_("reference"), max_length=64, blank=True)
    milliseconds = models.FloatField(_("milliseconds"))
    principal = models.CharField(_("principal"), max_length=KEY_CHARACTERS)
    user_key = models.CharField(_("user"), max_length=64, blank=True)
    actor_key = models.CharField(_("acting user"), max_length=64, **_NO_TEXT)
    """User who acted in the name of the caller, such as an operator in the playground."""
    client = models.CharField(_("client"), max_length=KEY_CHARACTERS, blank=True)
    revision = models.CharField(_("revision"), max_length=16)
    transport = models.CharField(_("transport"), max_length=16, choices=TransportChoices.choices, **_NO_TEXT)
    session = models.CharField(_("session"), max_length=16, blank=True)
    call_id = models.CharField(_("call id"), max_length=NAME_CHARACTERS, blank=True)
    trace_id = models.CharField(_("trace id"), max_length=32, blank=True)
    conversation = models.CharField(_("conversation"), max_length=32, **_NO_TEXT)
    """Equal for all rounds of an operation; empty for a call without rounds."""
    round = models.PositiveIntegerField(_("round"), null=True, blank=True)
    waited_milliseconds = models.FloatField(_("waited, in milliseconds"), null=True, blank=True)
    """Time in which the call waited for a thread, its client or another server; null in older rows."""
    timeline = models.TextField(editable=False, **_NO_TEXT)
    """JSON of the waits; empty without any."""
    request_bytes = models.PositiveBigIntegerField(_("bytes received"), null=True, blank=True)
    response_bytes = models.PositiveBigIntegerField(_("bytes of the result"), null=True, blank=True)
    process = models.CharField(_("process"), max_length=PROCESS_CHARACTERS)
    arguments = models.TextField(_("arguments"), blank=True)
    """JSON of the arguments that the settings allow; empty without them."""
    seal = models.CharField(max_length=SEAL_CHARACTERS, blank=True, default="", editable=False)
    """Place in the hash chain of the process; empty without one."""

    class Meta:
        verbose_name = _("call")
        verbose_name_plural = _("calls")
        indexes = [
            models.Index(fields=["at"], name="mcp_control_room_call_at"),
            models.Index(fields=["name", "at"], name="mcp_control_room_call_name"),
            models.Index(fields=["user_key", "at"], name="mcp_control_room_call_user"),
            models.Index(fields=["reference"], name="mcp_control_room_call_ref"),
            models.Index(fields=["conversation"], name="mcp_control_room_call_round"),
        ]
        permissions = [
            ("view_call_arguments", _("Can view arguments of calls")),
            ("export_calllogentry", _("Can export calls")),
        ]

    def __str__(self) -> str:
        return f"{self.method} {self.name}".strip()


class ChainHead(models.Model):
    """End of the hash chain of a process.

    The row without a process has the number 0 and the time of the first seal of all processes.
    """

    process = models.CharField(max_length=PROCESS_CHARACTERS, primary_key=True)
    number = models.PositiveBigIntegerField()
    at = models.DateTimeField()
    seal = models.CharField(max_length=64, editable=False, **_NO_TEXT)
    """Keyed digest of the row; empty in rows of an earlier version."""

    class Meta:
        default_permissions = ()
        verbose_name = _("end of a chain")
        verbose_name_plural = _("ends of chains")

    def __str__(self) -> str:
        return f"{self.process}: {self.number}"


class AlertRule(models.TextChoices):
    """Rule of an alert of the control room itself. The label names its value."""

    ERRORS = "errors", _("Share of errors")
    BUGS = "bugs", _("Bugs")
    SLOW = "slow", _("Seconds in which 95 % of the calls ended")
    OLDEST_CALL = "oldest_call", _("Seconds since the start of the oldest running call")
    THREAD_QUEUE = "thread_queue", _("Calls that wait for a thread")
    SILENT_PROCESS = "silent_process", _("Seconds since the last report of a process")
    DROPPED = "dropped", _("Dropped records of calls")
    REMOTE = "remote", _("Processes for which a remote server fails")
    REFUSALS = "refusals", _("Calls refused by a limit")


class Alert(models.Model):
    """State of a rule for one subject: active above the limit, and cleared after a calm time."""

    rule = models.CharField(_("rule"), max_length=32, blank=True)
    """Empty in the one row that holds the time of the last check."""
    subject = models.CharField(_("subject"), max_length=KEY_CHARACTERS, blank=True)
    is_active = models.BooleanField(_("active"), default=False)
    value = models.FloatField(_("value"), default=0.0)
    limit = models.FloatField(_("limit"), default=0.0)
    total = models.FloatField(default=0.0, editable=False)
    """Last total of a rule whose increase counts."""
    since = models.DateTimeField(_("since"), null=True, blank=True)
    cleared = models.DateTimeField(_("cleared"), null=True, blank=True)
    above_since = models.DateTimeField(null=True, blank=True, editable=False)
    calm_since = models.DateTimeField(null=True, blank=True, editable=False)
    checked = models.DateTimeField(_("checked"))
    muted_until = models.DateTimeField(_("muted until"), null=True, blank=True)
    """End of the time in which the alert notifies no people and fails no check."""

    class Meta:
        verbose_name = _("alert")
        verbose_name_plural = _("alerts")
        default_permissions = ("view",)
        permissions = [("mute_alert", _("Can mute alerts"))]
        constraints = [models.UniqueConstraint(fields=["rule", "subject"], name="mcp_control_room_alert_subject")]

    def __str__(self) -> str:
        text = f"{self.label}: {self.value:g} > {self.limit:g}" if self.is_active else str(self.label)
        return f"{self.subject}: {text}" if self.subject else text

    def is_muted(self, now: datetime | None = None) -> bool:
        """Return True if the alert sends no mail and fails no check at a time."""
        return self.muted_until is not None and self.muted_until > (now or timezone.now())

    @property
    def label(self) -> str:
        """Name of the value."""
        rule = get_rules().get(self.rule)
        return self.rule if rule is None else str(rule.label)
