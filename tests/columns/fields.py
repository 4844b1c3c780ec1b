"""Field classes that convert values."""

from enum import Enum
from typing import Any
from zoneinfo import ZoneInfo

from django.core.exceptions import ValidationError
from django.db import models
from django.utils.safestring import mark_safe


class Shade(Enum):
    RED = "r"
    BLUE = "b"


class EnumField(models.CharField):
    """Members of an enum, stored as their values."""

    enum: type[Enum] = Shade

    @property
    def validators(self) -> Any:  # a member is neither too long nor too large
        return []

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return None if value is None else self.enum(value)

    def to_python(self, value: Any) -> Any:
        if value is None or isinstance(value, self.enum):
            return value
        for member in self.enum:
            if value in (member.value, str(member)):
                return member
        raise ValidationError(f"{value} is no {self.enum.__name__}.")

    def get_prep_value(self, value: Any) -> Any:
        member = self.to_python(value)
        return None if member is None else member.value


class LevelField(models.IntegerField):
    """Members of an enum of numbers, which are not integers themselves."""

    class Member(Enum):
        LOW = 1
        HIGH = 20

    @property
    def validators(self) -> Any:
        return []

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return None if value is None else self.Member(value)

    def to_python(self, value: Any) -> Any:
        return value if value is None or isinstance(value, self.Member) else self.Member(int(value))

    def get_prep_value(self, value: Any) -> Any:
        return value.value if isinstance(value, Enum) else value


class SafeTextField(models.TextField):
    """HTML that templates do not escape."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return mark_safe(value)


class ReversedField(models.CharField):
    """Text that is stored in another form, as an encrypted text is."""

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return value[::-1]

    def get_db_prep_value(self, value: Any, connection: Any, prepared: bool = False) -> Any:
        return super().get_db_prep_value(value, connection, prepared)[::-1]


class ZoneField(models.Field):
    """Time zones."""

    def __init__(self, *args: Any, **options: Any) -> None:
        options.setdefault("choices", [(ZoneInfo(name), name) for name in ("Europe/Zurich", "UTC")])
        super().__init__(*args, **{"max_length": 40, **options})

    def get_internal_type(self) -> str:
        return "CharField"

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return ZoneInfo(value)

    def to_python(self, value: Any) -> Any:
        return value if isinstance(value, ZoneInfo) else ZoneInfo(value)

    def get_prep_value(self, value: Any) -> Any:
        return str(self.to_python(value))


class LabelPath:
    """Path in a tree, such as `top.science`."""

    def __init__(self, text: str) -> None:
        self.labels = text.split(".")

    def __str__(self) -> str:
        return ".".join(self.labels)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelPath) and self.labels == other.labels

    def __hash__(self) -> int:
        return hash(str(self))


class LabelPathField(models.CharField):
    """Paths in a tree."""

    @property
    def validators(self) -> Any:
        return []

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return LabelPath(value)

    def to_python(self, value: Any) -> Any:
        return value if isinstance(value, LabelPath) else LabelPath(value)

    def get_prep_value(self, value: Any) -> Any:
        return str(value)


@LabelPathField.register_lookup
class Below(models.Lookup):
    """Rows at or below a path."""

    lookup_name = "below"

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        sql, params = self.process_lhs(compiler, connection)
        return f"({sql} = %s OR {sql} LIKE %s)", [*params, self.rhs, *params, f"{self.rhs}.%"]
