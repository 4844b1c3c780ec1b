"""Private members are read by their own module alone."""

import ast
from collections.abc import Iterator

from tests.repository.test_architecture import FILES, ROOT

NAMED_TUPLE = {"_asdict", "_fields", "_field_defaults", "_make", "_replace"}
DJANGO = {"_base_manager", "_db", "_default_manager", "_meta", "_raw_delete", "_state"}
"""Names that Django's own documentation or its contributed apps use on models and query sets."""
FOREIGN = {
    "mcp_django/contrib/oauth/toolkit_compat.py": {"_code_challenge_methods"},  # see its PRIVATE_NAMES
    "mcp_django/contrib/openapi/requests/in_process.py": {"_dont_enforce_csrf_checks"},  # as Django's test client
    "mcp_django/contrib/rest/views.py": {"_authenticator"},  # REST framework: the authenticator of a request
    "mcp_django/contrib/tasks/attempts/blocked_loops.py": {"_current_frames"},  # documented in `sys`
    "mcp_django/transports/http/django_request.py": {"_body", "_stream"},  # Django: a body that was read already
    "mcp_django/transports/stdio/stdio.py": {"_exit"},  # documented in `os`
}
"""Private names of other packages, by module. It only shrinks, except for a name with its reason."""


def _find_own_names(tree: ast.AST) -> Iterator[str]:
    """Yield the private names that a module defines, those in `__slots__` and other texts included."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Constant(value=str(name)):
                yield name


def _find_foreign_reads(tree: ast.AST) -> Iterator[str]:
    """Yield the private names that a module reads from the objects and modules of others."""
    own = {*_find_own_names(tree), *NAMED_TUPLE, *DJANGO}
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("mcp_django"):
                yield from (alias.name for alias in names if alias.name.startswith("_"))
            case ast.Attribute(value=ast.Name(id="self" | "cls")):
                continue
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"))):
                continue
            case ast.Attribute(attr=name) if name.startswith("_") and not name.startswith("__") and name not in own:
                yield name


def test_private_members_are_read_by_their_own_module_only() -> None:
    found: dict[str, set[str]] = {}
    for path in FILES:
        names = set(_find_foreign_reads(ast.parse(path.read_text())))
        if names:
            found[path.relative_to(ROOT).as_posix()] = names
    assert found == FOREIGN, "use a public name, or remove an entry of the table that is not needed any more"
