"""Problems of declarations that are not served, for the system checks and the log."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from mcp_django.schema import DeclarationError, DeclarationFailure


@dataclass(frozen=True, slots=True)
class DeclarationProblem:
    """A declaration that is not served; reported by a system check."""

    text: str
    source: str
    hint: str = DeclarationError.hint
    names: tuple[str, ...] = ()
    """Names of the missing primitives; a name that ends in "*" covers all names with that prefix."""
    cause: BaseException | None = field(default=None, compare=False)
    """Exception of other code because of which the declaration cannot be built."""

    has_own_check: bool = False
    """True if a system check of its own reports it."""

    @classmethod
    def from_error(cls, error: DeclarationError, source: str, names: Sequence[str] = ()) -> "DeclarationProblem":
        """Return the problem that an error describes.

        A failure is one problem of its subject, for all declarations that have it.
        """
        source = error.subject if isinstance(error, DeclarationFailure) else source
        return cls(str(error), source, error.hint, tuple(names), error.__cause__, error.has_own_check)

    def covers(self, name: str) -> bool:
        """Return True if a primitive of this name is missing because of the problem."""
        return any(fnmatchcase(name, pattern) for pattern in self.names)

    def merge(self, other: "DeclarationProblem") -> "DeclarationProblem":
        """Return the problem with the names of both."""
        return replace(self, names=tuple(dict.fromkeys((*self.names, *other.names))))

    def __str__(self) -> str:
        return self.text if self.source in self.text else f"{self.source}: {self.text}"
