"""Skills that administrators write: rows with a `SKILL.md` and files, and their versions."""

import base64
from typing import Any, ClassVar

from django.core.exceptions import ValidationError
from django.core.validators import MaxLengthValidator
from django.db import models, router, transaction
from django.utils.translation import gettext_lazy as _

from mcp_django.contrib.skills.packages import SkillPackage, check_package
from mcp_django.extensions.rows import PrimaryManager, Stored, StoredRow, StoredVersion, VersionedQuerySet
from mcp_django.protocol.skills import SKILL_FILE, InvalidSkill
from mcp_django.protocol.uri import quote_path
from mcp_django.providers.files import is_safe_name

MAX_PATH_CHARS = 300
"""Maximum number of characters of a path."""
MAX_TEXT_CHARS = 256 * 1024
"""Maximum number of characters of the text of a `SKILL.md`."""
MAX_FILE_BYTES = 4 * 1024 * 1024
"""Maximum number of bytes of one file."""


def check_path(path: str) -> None:
    """Raise ValidationError unless `path` is relative, and each of its names is a plain one."""
    if not all(is_safe_name(name) and not name.startswith(".") for name in path.split("/")):
        raise ValidationError(
            _("A path looks like “shop/refunds”: names without a leading dot, with a slash between two."), code="path"
        )


class StoredSkillQuerySet(VersionedQuerySet["StoredSkill"]):
    """Query set of skills."""

    def get_by_natural_key(self, server: str, path: str) -> "StoredSkill":
        return self.get(server=server, path=path)


class StoredSkill(Stored):
    """Skill stored as a row; its files are rows of their own."""

    SNAPSHOT_FIELDS: ClassVar[tuple[str, ...]] = ("path", *Stored.SNAPSHOT_FIELDS, "text")

    path = models.CharField(
        _("path"),
        max_length=MAX_PATH_CHARS,
        validators=[check_path],
    )
    enabled = models.BooleanField(_("published"), default=False)
    text = models.TextField(
        "SKILL.md",
        validators=[MaxLengthValidator(MAX_TEXT_CHARS)],
    )

    objects = PrimaryManager.from_queryset(StoredSkillQuerySet)()

    class Meta:
        verbose_name = _("skill")
        verbose_name_plural = _("skills")
        ordering = ["path", "server"]
        constraints = [
            models.UniqueConstraint(
                fields=["server", "path"],
                name="mcp_stored_skill_path",
                violation_error_message=_("This server already has a skill with this path."),
            )
        ]

    def __str__(self) -> str:
        return f"{self.path} ({self.server})" if self.server else self.path

    @property
    def key(self) -> str:
        """URI of the `SKILL.md`."""
        return f"skill://{quote_path(self.path)}/{SKILL_FILE}"

    def natural_key(self) -> tuple[str, str]:
        return self.server, self.path

    def save(self, *args: Any, **kwargs: Any) -> None:
        # Browsers send CRLF, which would change the digest of an unchanged text.
        self.text = self.text.replace("\r\n", "\n")
        super().save(*args, **kwargs)

    def clean(self) -> None:
        """Check the text and the path. Files are checked by `build_package`."""
        text = self.text.replace("\r\n", "\n")
        try:
            manifest = check_package({SKILL_FILE: text.encode()}).manifest
        except InvalidSkill as problem:
            raise ValidationError({"text": _("Invalid skill: %s.") % problem}) from None
        except UnicodeError:
            raise ValidationError({"text": _("The text is not Unicode.")}) from None
        if manifest.name != self.path.rpartition("/")[2]:
            message = _("The last name of the path must be the name in SKILL.md, “%s”.") % manifest.name
            raise ValidationError({"path": message})
        self.description = manifest.description

    def build_package(self) -> SkillPackage:
        """Return the skill with all its files. Raises InvalidSkill."""
        rows: Any = self
        files = {file.path: bytes(file.data) for file in rows.files.all()}
        return check_package({**files, SKILL_FILE: self.text.encode()})

    def snapshot(self) -> dict[str, Any]:
        rows: Any = self
        return {**super().snapshot(), "files": [file.snapshot() for file in rows.files.order_by("path")]}

    def apply_snapshot(self, data: dict[str, Any]) -> None:
        rows: Any = self
        with transaction.atomic(using=self._state.db, savepoint=False):
            super().apply_snapshot(data)
            rows.files.all().delete()
            for fields in data.get("files", ()):
                file = StoredSkillFile(skill=self, path=fields["path"], data=base64.b64decode(fields["data"]))
                file.full_clean()
                file.save()

    def replace_files(self, package: SkillPackage) -> None:
        """Set the text and the files of a checked skill, and save them."""
        rows: Any = self
        with transaction.atomic(using=self._state.db or router.db_for_write(StoredSkill)):
            self.text = package.files[SKILL_FILE].decode()
            self.full_clean()
            self.save()
            rows.files.all().delete()
            for path, data in package.files.items():
                if path != SKILL_FILE:
                    StoredSkillFile(skill=self, path=path, data=data).save()


class StoredSkillFileQuerySet(VersionedQuerySet["StoredSkillFile"]):
    """Query set of files."""

    def get_by_natural_key(self, server: str, skill: str, path: str) -> "StoredSkillFile":
        return self.get(skill__server=server, skill__path=skill, path=path)


class StoredSkillFile(StoredRow):
    """File of a skill, beside its `SKILL.md`."""

    skill = models.ForeignKey(StoredSkill, on_delete=models.CASCADE, related_name="files")
    path = models.CharField(_("path"), max_length=MAX_PATH_CHARS, validators=[check_path])
    data = models.BinaryField(_("content"), blank=True)

    objects = PrimaryManager.from_queryset(StoredSkillFileQuerySet)()

    class Meta:
        verbose_name = _("file")
        verbose_name_plural = _("files")
        default_permissions = ()
        ordering = ["path"]
        constraints = [
            models.UniqueConstraint(
                fields=["skill", "path"],
                name="mcp_stored_skill_file",
                violation_error_message=_("The skill already has a file with this path."),
            )
        ]

    def __str__(self) -> str:
        return self.path

    def natural_key(self) -> tuple[str, str, str]:
        return *self.skill.natural_key(), self.path

    natural_key.dependencies = ["mcp_skills.storedskill"]  # type: ignore[attr-defined]  # an attribute that Django reads

    def snapshot(self) -> dict[str, Any]:
        return {"path": self.path, "data": base64.b64encode(bytes(self.data)).decode()}

    def clean(self) -> None:
        if self.path == SKILL_FILE:
            raise ValidationError({"path": _("The text of SKILL.md is a field of the skill.")})
        if len(bytes(self.data or b"")) > MAX_FILE_BYTES:
            raise ValidationError({"data": _("The file is too large: the limit is %d bytes.") % MAX_FILE_BYTES})


class StoredSkillVersion(StoredVersion):
    """Version of a skill, with its files."""

    stored = models.ForeignKey(StoredSkill, on_delete=models.CASCADE, related_name="versions")

    class Meta:
        verbose_name = _("version of a skill")
        verbose_name_plural = _("versions of skills")
        default_permissions = ()
        ordering = ["-number"]
        constraints = [models.UniqueConstraint(fields=["stored", "number"], name="mcp_skill_version")]
