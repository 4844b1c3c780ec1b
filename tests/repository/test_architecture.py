"""The map of docs/design/map.md, as assertions.

A red test here means that the map is no longer true: move the code, or change the table below and the map in one
commit. Rooms that are not built yet are tolerated; rooms that are not on the map are not.
"""

import ast
import functools
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from mcp_django.server.calls.call import Call

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = "mcp_django"
OTHER_FOLDERS = ("tests", "project", "benchmarks", "scripts")
FILES = sorted(p for p in (ROOT / PACKAGE).rglob("*.py") if "migrations" not in p.parts)

# A room may import itself and every room named on an earlier line; never one beside it or on a later line.
LAYERS = (
    {"aio", "crypto"},
    {"protocol"},
    {"schema"},
    {"server"},
    {"conf", "exceptions", "logs", "lowlevel", "observability", "signals", "types"},
    {"file_folders", "html_pages", "http_client", "internal_request", "models"},
    {"auth", "client", "forms", "orm", "providers", "runtime"},
    {"wiring"},
    {"notifications", "transports"},
    {
        "__main__",
        "admin",
        "apps",
        "asgi",
        "checks",
        "management",
        "routing",
        "templatetags",
        "testing",
        "urls",
        "well_known",
    },
    {"extensions"},
    {"contrib.http_tools"},
    {
        "contrib",
        "contrib.apps",
        "contrib.client_pages",
        "contrib.control_room",
        "contrib.oauth",
        "contrib.openapi",
        "contrib.playground",
        "contrib.proxies",
        "contrib.rest",
        "contrib.skills",
        "contrib.tasks",
    },
    {"__init__", "contrib.memory"},
)
# The doors between rooms of one line.
SIDEWAYS = {
    ("orm", "forms"),  # a form's own fields are asked for as in a question
    ("admin", "management"),  # the page of access decides as mcp_inspect does
    ("apps", "checks"),  # AppConfig.ready() registers them
    ("asgi", "routing"),  # mount() serves the project's socket routes
    ("management", "testing"),  # mcp_call talks to the server in process
    ("urls", "well_known"),  # well-known paths are served at the root of the origin
    ("contrib.playground", "contrib.apps"),  # the playground shows apps as the preview does
    ("contrib.playground", "contrib.control_room"),  # it is linked from recorded calls, and shows their arguments
    ("contrib.tasks", "contrib.control_room"),  # tasks register their own rule of alerts
    ("contrib.rest", "contrib.openapi"),  # a document of drf-spectacular is a toolset as others are
}
# Rooms that may import less than their line allows.
ONLY = {
    # Importing the package never needs settings; __getattr__ imports the names that need them.
    "__init__": {"protocol", "schema", "server", "conf", "auth", "notifications", "orm"},
    # client and server never meet
    "client": {
        "aio",
        "conf",
        "crypto",
        "file_folders",
        "http_client",
        "logs",
        "models",
        "protocol",
        "schema",
        "signals",
    },
    "contrib.memory": {
        "__init__",
        "conf",
        "html_pages",
        "management",
        "notifications",
        "observability",
        "providers",
        "types",
    },  # a guest, which uses public names
}
# The sub-packages of a room and the modules at its top, as layers: each imports only those on earlier lines.
SUB_LAYERS = {
    "server": (
        {"capabilities", "lifespan", "options", "ports"},
        {"callables"},
        {"injection"},
        {"primitives"},
        {"calls"},
        {"context"},
        {"composition"},
        {"execution"},
        {"methods"},
        {"subscriptions"},
        {"server"},
        {"eras"},
        {"batch", "dispatcher"},
        {"pipeline"},
    ),
    "orm": (
        {"admin_log", "codecs", "row_permissions"},
        {"package_codecs", "row_filters"},
        {"declaration"},
        {"queries"},
        {"arguments"},
        {"schema"},
        {"rows"},
        {"writes"},
        {"tools"},
        {"actions", "resources"},
        {"toolset"},
        {"generic", "list_size", "tree_toolset"},
    ),
}
# The values of the engine: modules of every layer may name their types.
ENGINE_VALUES = {"server.calls.call", "server.calls.session", "server.primitives.base", "server.server"}
NO_DJANGO = ("protocol", "schema", "server")
SANS_IO = {"protocol", "schema"}
IO = (
    {"anyio", "asgiref", "asyncio", "concurrent", "multiprocessing", "selectors", "socket", "ssl", "subprocess"}
    | {"threading", "trio"}
    | {"http.client", "http.server", "urllib.request"}
)
# Third-party package -> where it may be imported. Everything else asks the room behind the door.
DOORS = {
    "celery": ("contrib/tasks/backends/celery",),
    "channels": ("asgi.py", "routing.py", "runtime/events/channel_layer", "transports/websocket"),
    "channels_redis": ("runtime/events/channel_layer",),
    "cryptography": ("crypto",),
    "docstring_parser": ("schema/",),
    "drf_spectacular": ("contrib/rest/openapi",),
    # One client sends the package's own requests; OpenAPI toolsets take httpx clients of the project.
    "httpx": ("http_client", "contrib/openapi/requests/http"),
    "jsonschema_rs": ("schema/",),
    "jwcrypto": ("auth/", "contrib/oauth/"),
    "httpx2": ("client/",),  # the SDK's HTTP client
    "mcp": ("client/",),
    "mcp_types": ("client/",),
    "msgspec": ("schema/",),
    "oauth2_provider": ("contrib/oauth/",),
    "oauthlib": ("contrib/oauth/",),
    "opentelemetry": (
        "client/session/telemetry",
        "contrib/tasks/rows/metrics",
        "runtime/calls/metrics",
        "runtime/calls/tracing",
    ),
    "orjson": ("protocol/",),
    "psycopg": ("runtime/",),
    # The guest declares its tools as projects do; the SDK's metadata of clients has pydantic's URLs.
    "pydantic": ("schema/", "contrib/memory/mcp_tools", "client/oauth/discovery"),
    "rest_framework": ("contrib/rest/",),
    "tomlkit": ("management/client_config/toml_text",),
    "websockets": ("client/",),
    "yaml": ("contrib/openapi/document/document", "schema/frontmatter"),
}
REVISION = re.compile(r"\b20\d\d-\d\d-\d\d\b")
COMMIT_HOOKS = "models/commit_hooks.py"
ASGIREF_INTERNALS = "aio/asgiref_internals.py"
ASGIREF_NAMES = {"async_to_sync", "iscoroutinefunction", "markcoroutinefunction", "sync_to_async"}
MAX_MODULES_IN_A_FOLDER = 15
VAGUE = {"common", "helper", "helpers", "misc", "mixin", "mixins", "util", "utils"}
MIN_MODULE_LINES, MAX_MODULE_LINES = 40, 500
# Names that Django and Python prescribe, and the boundary of the engine.
PRESCRIBED_MODULES = {
    "__init__.py",
    "apps.py",
    "asgi.py",
    "checks.py",
    "exceptions.py",
    "ports.py",
    "routing.py",
    "signals.py",
    "urls.py",
}
# Folders in which each module is a file that Django looks for, or one revision of the protocol as a difference.
PRESCRIBED_FOLDERS = {"commands", "migrations", "revisions"}
# Public modules: authors import from them.
PUBLIC_MODULES = {
    "extensions/admin_pages.py",
    "extensions/errors.py",
    "extensions/event_loop.py",
    "extensions/html_pages.py",
    "extensions/http_client.py",
    "extensions/internal_requests.py",
    "extensions/operators.py",
    "extensions/rows.py",
    "lowlevel.py",
    "observability.py",
    "well_known.py",
}
# Still to be joined with the modules that they serve. To become empty; add none.
SHORT_MODULES = {
    "auth/permissions.py",
}
MAX_POSITIONAL, MAX_KEYWORD = 5, 12
CALL_FIELDS = {field.name for field in fields(Call)}

FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def room(path: str) -> str:
    """Name the room of a path inside the package: `server/calls/call.py` is in `server`, `contrib/rest/plan.py` in
    `contrib.rest`, `urls.py` is `urls`.
    """
    first, *rest = path.removesuffix(".py").split("/")
    return f"contrib.{rest[0]}" if first == "contrib" and rest[:1] not in ([], ["__init__"]) else first


def level(name: str) -> int:
    """Number the line of a room in the table."""
    return next(number for number, rooms in enumerate(LAYERS) if name in rooms)


def may_import(importer: str, imported: str) -> bool:
    """Return True if the table has an arrow between two rooms."""
    if importer == imported:
        return True
    if importer in ONLY:
        return imported in ONLY[importer]
    if imported in ONLY and imported != "client":
        return False  # no room imports the guest or the public names
    return level(imported) < level(importer) or (importer, imported) in SIDEWAYS


@functools.cache
def list_nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """List all nodes of a syntax tree. Kept, because all rules read the same trees."""
    return tuple(ast.walk(tree))


def imports(path: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield (line, dotted name) for every import, those inside functions included."""
    for node in list_nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = [PACKAGE, *path.split("/")[:-1]]
            base = base[: len(base) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            if module != PACKAGE:
                yield node.lineno, module
                continue
            for alias in node.names:  # `from mcp_django import conf` names a room, `import tool` a public name
                yield node.lineno, f"{PACKAGE}.{alias.name}" if is_module(alias.name) else PACKAGE


def is_module(name: str) -> bool:
    """Return True if a name imported from the package is one of its modules."""
    known = any(name in rooms for rooms in LAYERS)
    return known or (ROOT / PACKAGE / name).is_dir() or (ROOT / PACKAGE / f"{name}.py").is_file()


def wrong_imports(path: str, tree: ast.Module) -> Iterator[str]:
    """Complain about imports that point up, sideways, out of a pure room, or through a wall instead of a door."""
    importer = room(path)
    for line, name in imports(path, tree):
        top, *rest = name.split(".")
        if top == PACKAGE:
            imported = room("/".join(rest) if rest else "__init__")
            if not may_import(importer, imported):
                yield f"{line}: {importer} may not import {imported}"
        elif top == "django" and importer in NO_DJANGO:
            yield f"{line}: {importer} may not import django"
        elif importer in SANS_IO and any(name == banned or name.startswith(f"{banned}.") for banned in IO):
            yield f"{line}: {importer} may not import {name}"
        elif top in DOORS and not path.startswith(DOORS[top]):
            yield f"{line}: {top} may only be imported by {', '.join(DOORS[top])}"


def wrong_settings(path: str, tree: ast.Module) -> Iterator[str]:
    """Complain about modules outside `conf` that read the setting `MCP` unparsed."""
    if room(path) == "conf":
        return
    for node in list_nodes(tree):
        if isinstance(node, ast.Attribute) and node.attr == "MCP" and "settings" in ast.unparse(node.value):
            yield f"{node.lineno}: only conf reads the setting MCP"


def wrong_imports_in_functions(path: str, tree: ast.Module) -> Iterator[str]:
    """Complain about imports inside functions.

    Allowed are those of a door, those of apps.py, and those of a package's lazy `__getattr__`.
    """
    if path.split("/")[-1] == "apps.py":  # Django loads models, checks and signals from ready()
        return
    for function in list_nodes(tree):
        if not isinstance(function, FUNCTION):
            continue
        if function.name == "__getattr__" and path.endswith("__init__.py") and function in tree.body:
            continue
        for node in ast.walk(function):
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            for name in [node.module or "."] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]:
                if name.split(".")[0] not in DOORS:
                    yield f"{node.lineno}: import of {name} inside {function.name}()"


def wrong_asgiref(path: str, tree: ast.Module) -> Iterator[str]:
    """Complain about undocumented names of asgiref outside the one module that a new version can break."""
    if path == ASGIREF_INTERNALS:
        return
    for node in list_nodes(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("asgiref"):
            for alias in node.names:
                if alias.name not in ASGIREF_NAMES:
                    yield f"{node.lineno}: {alias.name} of asgiref; use {ASGIREF_INTERNALS}"


def wrong_commit_hooks(path: str, tree: ast.Module) -> Iterator[str]:
    """Complain about hooks of transactions beside the one module that raises and logs their errors."""
    if path == COMMIT_HOOKS:
        return
    for node in list_nodes(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("transaction.on_commit", "on_commit"):
            yield f"{node.lineno}: {ast.unparse(node.func)}(); use call_on_commit of {COMMIT_HOOKS}"


def wrong_dates(path: str, tree: ast.Module) -> Iterator[str]:
    """Complain about revision dates outside their room; docstrings may name them."""
    if path.startswith("protocol/revisions/"):
        return
    prose = {id(node.value) for node in list_nodes(tree) if isinstance(node, ast.Expr)}
    for node in list_nodes(tree):
        if isinstance(node, ast.Constant) and id(node) not in prose:
            text = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
            if isinstance(text, str) and REVISION.search(text):
                yield f"{node.lineno}: {text!r}; ask the Revision instead"


def wrong_call_changes(path: str, tree: ast.Module) -> Iterator[str]:
    """Complain about changes of a `Call`, whose copies would not see them; its record is shared."""
    for node in list_nodes(tree):
        is_change = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr in CALL_FIELDS
        if is_change and ast.unparse(node.value).rpartition(".")[2] in ("call", "_call"):
            yield f"{node.lineno}: {ast.unparse(node)} is assigned; calls are immutable, change the record"


def wrong_sizes(path: str, tree: ast.Module, source: str) -> Iterator[str]:
    """Complain about modules and signatures that exceed the limits. Ruff bounds branches and statements."""
    if (lines := source.count("\n")) > MAX_MODULE_LINES:
        yield f"{lines}: the module is over {MAX_MODULE_LINES} lines; split it by noun"
    for node in list_nodes(tree):
        if not isinstance(node, FUNCTION):
            continue
        positional = [a.arg for a in (*node.args.posonlyargs, *node.args.args) if a.arg not in ("self", "cls")]
        if len(positional) > MAX_POSITIONAL:
            yield f"{node.lineno}: {node.name} takes {len(positional)} positional arguments, over {MAX_POSITIONAL}"
        if len(node.args.kwonlyargs) > MAX_KEYWORD:
            yield f"{node.lineno}: {node.name} takes {len(node.args.kwonlyargs)} keywords, over {MAX_KEYWORD}"


def wrong_names(path: str, tree: ast.Module) -> Iterator[str]:
    """Yield modules with vague names, and mixins."""
    for part in path.removesuffix(".py").split("/"):
        if part in VAGUE or part.endswith(("_utils", "_helpers")):
            yield f"1: a module named {part} has no subject"
    for node in list_nodes(tree):
        if isinstance(node, ast.ClassDef) and node.name.lower().endswith("mixin"):
            yield f"{node.lineno}: {node.name} is a mixin; compose instead"


def complaints(path: str, source: str) -> list[str]:
    """Run every rule over one module."""
    tree = ast.parse(source)
    found = [*wrong_imports(path, tree), *wrong_imports_in_functions(path, tree), *wrong_dates(path, tree)]
    found += [
        *wrong_sizes(path, tree, source),
        *wrong_names(path, tree),
        *wrong_commit_hooks(path, tree),
        *wrong_settings(path, tree),
        *wrong_call_changes(path, tree),
        *wrong_asgiref(path, tree),
    ]
    return [f"{path}:{complaint}" for complaint in found]


def context_variables(path: str, source: str) -> list[str]:
    """List the places that make a ContextVar."""
    if "ContextVar" not in source:
        return []
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [f"{path}:{c.lineno}" for c in calls if ast.unparse(c.func).split(".")[-1].split("[")[0] == "ContextVar"]


def inside(path: Path) -> str:
    """Name a file by its path inside the package."""
    return path.relative_to(ROOT / PACKAGE).as_posix()


@functools.cache
def modules() -> list[tuple[str, str, ast.Module]]:
    """List the path, the source and the syntax tree of every module of the package."""
    sources = [(inside(path), path.read_text(encoding="utf-8")) for path in FILES]
    return [(path, source, ast.parse(source)) for path, source in sources]


def other_modules() -> list[tuple[str, str, ast.Module]]:
    """List the same of the tests, the demo, the benchmarks and the scripts."""
    paths = [path for name in OTHER_FOLDERS for path in sorted((ROOT / name).rglob("*.py"))]
    sources = [(path.relative_to(ROOT).as_posix(), path) for path in paths if "migrations" not in path.parts]
    return [(name, source, ast.parse(source)) for name, path in sources if (source := path.read_text("utf-8"))]


def violations(rule: Callable[[str, ast.Module], Iterator[str]]) -> str:
    """List the complaints of one rule about all modules."""
    return "\n".join(f"{path}:{complaint}" for path, _, tree in modules() for complaint in rule(path, tree))


def test_imports_follow_the_map() -> None:
    assert violations(wrong_imports) == ""


def test_functions_import_only_optional_packages() -> None:
    assert violations(wrong_imports_in_functions) == ""


# Modules of `orm` that only read, although they lie in folders that may import `orm.writes`.
READING_MODULES = ("orm/tools/aggregate.py", "orm/tools/base.py", "orm/tools/history.py", "orm/tools/rows.py")


def test_tools_that_read_do_not_import_writing() -> None:
    trees = {path: tree for path, _, tree in modules()}
    found = [(path, name) for path in READING_MODULES for _, name in imports(path, trees[path]) if "orm.writes" in name]
    assert found == []


def test_one_module_uses_the_internals_of_asgiref() -> None:
    assert violations(wrong_asgiref) == ""


def test_only_conf_reads_the_setting_mcp() -> None:
    assert violations(wrong_settings) == ""


def test_hooks_of_transactions_raise_and_log_in_one_way() -> None:
    assert violations(wrong_commit_hooks) == ""


def test_calls_are_replaced_and_their_records_changed() -> None:
    assert violations(wrong_call_changes) == ""


def test_revision_dates_are_in_their_room_only() -> None:
    assert violations(wrong_dates) == ""


def test_modules_and_signatures_keep_to_the_limits() -> None:
    found = [f"{path}:{complaint}" for path, source, tree in modules() for complaint in wrong_sizes(path, tree, source)]
    assert found == []


def test_modules_are_named_after_their_subject() -> None:
    assert violations(wrong_names) == ""


def package_of(path: str) -> str:
    """Name the sub-package that a module is in. A module at the top of its room is one by itself."""
    *folders, name = path.removesuffix(".py").split("/")
    depth = 2 if folders[:1] == ["contrib"] else 1
    if name == "__init__":
        return "/".join([*folders, name])
    return "/".join(folders) if len(folders) > depth else "/".join([*folders, name])


def sub_package_imports() -> dict[str, set[str]]:
    """Map each sub-package to those that it imports, for types as well.

    The names that a package passes on are left out, and the values of the engine that its modules name as types.
    """
    known = {path.removesuffix(".py").replace("/", "."): path for path, _, _ in modules()}
    found: dict[str, set[str]] = {}
    for path, _, tree in modules():
        importer = package_of(path)
        type_imports = list_type_imports(tree)
        for node in list_nodes(tree):
            if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith(PACKAGE):
                continue
            base = (node.module or "").removeprefix(PACKAGE).lstrip(".")
            if room(path) == "server" and base in ENGINE_VALUES and node in type_imports:
                continue
            for alias in node.names:
                for name in (f"{base}.{alias.name}".lstrip("."), base):
                    if name in known:
                        found.setdefault(importer, set()).add(package_of(known[name]))
                        break
    return found


def list_type_imports(tree: ast.Module) -> set[ast.stmt]:
    """List the imports under `if TYPE_CHECKING`, which the interpreter never executes."""
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {statement for block in blocks for statement in block.body}


def test_imports_for_types_are_found() -> None:
    tree = ast.parse("from a import b\nif TYPE_CHECKING:\n    from c import d")
    assert [ast.unparse(node) for node in list_type_imports(tree)] == ["from c import d"]


def cycles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """List the nodes that reach themselves, as one sorted list for each cycle."""
    reached: dict[str, set[str]] = {}
    for start in arrows:
        seen: set[str] = set()
        todo = [start]
        while todo:
            for imported in arrows.get(todo.pop(), ()):
                if imported not in seen:
                    seen.add(imported)
                    todo.append(imported)
        reached[start] = seen
    rings = {frozenset(n for n in reached[a] if a in reached.get(n, ())) for a in arrows if a in reached[a]}
    return sorted(sorted(ring) for ring in rings if len(ring) > 1)


def wrong_sub_layers(arrows: dict[str, set[str]]) -> Iterator[str]:
    """Complain about imports between sub-packages that do not point down, and about sub-packages without a layer."""
    for name, layers in SUB_LAYERS.items():
        numbers = {f"{name}/{part}": number for number, parts in enumerate(layers) for part in parts}
        for importer in sorted(
            importer for importer in arrows if importer.startswith(f"{name}/") and not importer.endswith("/__init__")
        ):
            if importer not in numbers:
                yield f"{importer} has no line in SUB_LAYERS"
            for imported in sorted(arrows[importer] & numbers.keys() - {importer}):
                if importer in numbers and numbers[imported] >= numbers[importer]:
                    yield f"{importer} may not import {imported}"


def test_sub_packages_import_downwards_without_cycles() -> None:
    arrows = sub_package_imports()
    assert [*wrong_sub_layers(arrows), *(f"cycle: {', '.join(ring)}" for ring in cycles(arrows))] == []


def test_wrong_sub_layers_are_noticed() -> None:
    arrows = {"server/calls": {"server/context", "server/ports"}, "server/other": {"server/calls"}}
    assert list(wrong_sub_layers(arrows)) == [
        "server/calls may not import server/context",
        "server/other has no line in SUB_LAYERS",
    ]


def test_cycles_are_noticed() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == [["b", "c"]]


def test_folders_have_few_modules() -> None:
    sizes = Counter(inside(path.parent) for path in FILES if path.name != "__init__.py")
    assert {folder: size for folder, size in sizes.items() if size > MAX_MODULES_IN_A_FOLDER} == {}


def may_be_short(path: str) -> bool:
    """Return True if a module may have fewer lines than the minimum."""
    *folders, name = path.split("/")
    is_prescribed = name in PRESCRIBED_MODULES or not PRESCRIBED_FOLDERS.isdisjoint(folders)
    return is_prescribed or path in PUBLIC_MODULES or path in SHORT_MODULES


def test_exempt_modules_exist() -> None:
    assert {path for path, _, _ in modules()} >= SHORT_MODULES | PUBLIC_MODULES


def test_modules_have_a_subject_of_some_size() -> None:
    short = {
        path: count
        for path, source, _ in modules()
        if (count := len(source.splitlines())) < MIN_MODULE_LINES and not may_be_short(path)
    }
    assert short == {}, "join each with the module that it serves"


def test_imports_are_absolute() -> None:
    found = [
        f"{p}:{n.lineno}" for p, _, t in modules() for n in list_nodes(t) if isinstance(n, ast.ImportFrom) and n.level
    ]
    assert found == []


def test_every_room_is_on_the_map() -> None:
    strangers = {room(inside(path)) for path in FILES} - set().union(*LAYERS)
    assert not strangers, "give the room a line in LAYERS and in docs/design/map.md"


def documented_packages() -> set[str]:
    """List the rooms and sub-packages that have a line in the map, by their paths inside the package."""
    page = (ROOT / "docs" / "design" / "map.md").read_text(encoding="utf-8")
    chapters = page[page.index("## Below Django") :]
    return set(re.findall(r"^- `([\w/]+)`: \S", chapters, re.MULTILINE))


def test_every_room_of_the_table_is_in_the_design() -> None:
    rooms = {name.replace(".", "/") for rooms in LAYERS for name in rooms}
    sub_packages = {inside(path.parent) for path in FILES} - {"."}
    documented = documented_packages()
    assert (rooms | sub_packages) - documented == set(), "give it a line in docs/design/map.md"
    assert documented - rooms - sub_packages == set(), "docs/design/map.md names rooms that do not exist"


def test_the_package_has_one_context_variable_at_most() -> None:
    found = [place for path, source, _ in modules() for place in context_variables(path, source)]
    assert len(found) <= 1, "handlers are given their context; one variable holds the current call, for the log"


def test_rooms_below_django_import_without_it() -> None:
    """Import each module of these rooms, and the package itself, in a process where `import django` fails."""
    code = (
        "import sys; sys.modules['django'] = None\n"
        "import importlib, pkgutil\n"
        f"for room in {NO_DJANGO!r}:\n"
        f"    package = importlib.import_module(f'{PACKAGE}.{{room}}')\n"
        "    names = [m.name for m in pkgutil.walk_packages(package.__path__, package.__name__ + '.')]\n"
        "    assert names, f'{room} has no modules'\n"
        "    for name in names: importlib.import_module(name)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr


BROKEN_RULES = (
    ("protocol/jsonrpc.py", "import asyncio", "protocol may not import asyncio"),
    ("schema/reading.py", "from concurrent.futures import Future", "schema may not import concurrent.futures"),
    ("server/calls/call.py", "import django.http", "server may not import django"),
    ("protocol/errors.py", "from mcp_django.server.calls.call import Call", "protocol may not import server"),
    ("schema/reading.py", "from ..server import calls", "schema may not import server"),
    ("server/calls/call.py", "from mcp_django import conf", "server may not import conf"),
    ("auth/authorization/policy.py", "import mcp_django.wiring", "auth may not import wiring"),
    ("auth/authorization/policy.py", "from mcp_django.orm import toolset", "auth may not import orm"),
    ("wiring.py", "from mcp_django.transports import stdio", "wiring may not import transports"),
    ("transports/stdio/stdio.py", "import mcp_django.management", "transports may not import management"),
    ("client/multi_client.py", "from mcp_django.server import call", "client may not import server"),
    ("server/calls/call.py", "from mcp_django.client import multi_client", "server may not import client"),
    ("contrib/memory/mcp_tools.py", "from mcp_django.server import decorators", "contrib.memory may not import server"),
    ("wiring.py", "from mcp_django import tool", "wiring may not import __init__"),
    ("__init__.py", "from mcp_django.wiring import servers", "__init__ may not import wiring"),
    ("server/calls/call.py", "import orjson", "orjson may only be imported by protocol/"),
    ("orm/schema.py", "from pydantic import BaseModel", "pydantic may only be imported by schema/"),
    (
        "auth/authorization/policy.py",
        "from django.conf import settings\nX = settings.MCP",
        "only conf reads the setting",
    ),
    ("server/calls/call.py", "def f():\n    import json", "import of json inside f()"),
    ("server/calls/call.py", "X = '2025-06-18'", "ask the Revision"),
    ("server/calls/call.py", "X = b'2025-06-18'", "ask the Revision"),
    ("server/calls/call.py", "x = 1\n" * (MAX_MODULE_LINES + 1), "over 500 lines"),
    ("server/calls/call.py", "def f(a, b, c, d, e, g): ...", "6 positional arguments"),
    ("server/calls/call.py", f"def f(*, {', '.join(f'k{n}' for n in range(13))}): ...", "13 keywords"),
    ("server/utils.py", "", "has no subject"),
    ("server/calls/call.py", "class ToolMixin: ...", "is a mixin"),
    ("server/batch.py", "work.call.meta = {}", "calls are immutable"),
    ("server/batch.py", "self._call.connection = None", "calls are immutable"),
    ("auth/principal.py", "from asgiref.sync import SyncToAsync", "SyncToAsync of asgiref"),
    ("auth/principal.py", "from django.db import transaction\ntransaction.on_commit(f, robust=True)", "call_on_commit"),
)


def test_broken_rules_are_noticed(subtests: pytest.Subtests) -> None:
    for path, source, complaint in BROKEN_RULES:
        with subtests.test(path=path, source=source[:80]):
            found = complaints(path, source)
            assert len(found) == 1
            assert complaint in found[0]


ALLOWED = (
    ("server/calls/call.py", "from mcp_django.schema import reading\nfrom mcp_django.protocol import jsonrpc"),
    ("protocol/uri.py", "from urllib.parse import quote\nfrom http import HTTPStatus"),
    ("conf.py", "from django.conf import settings\nX = settings.MCP"),
    ("auth/principal.py", "from django.conf import settings\nX = settings.DEBUG"),
    ("schema/reading.py", "def f():\n    import msgspec"),
    ("contrib/memory/mcp_tools.py", "from mcp_django import tool"),
    ("__init__.py", "def __getattr__(name):\n    from importlib import import_module"),
    ("apps.py", "def ready(self):\n    from mcp_django import checks"),
    ("server/calls/call.py", '"""What 2025-06-18 asks for."""'),
    ("protocol/revisions/v2025_06_18.py", "VERSION = '2025-06-18'"),
    ("admin/tokens.py", "from mcp_django.models import PersonalAccessToken"),
    ("server/batch.py", "work.call.record.cancelled = True\ncall.connection.session = None\ncall.listener = None"),
)


def test_allowed_code_is_left_alone(subtests: pytest.Subtests) -> None:
    for path, source in ALLOWED:
        with subtests.test(path=path, source=source):
            assert complaints(path, source) == []


def test_context_variables_are_counted() -> None:
    source = "from contextvars import ContextVar\nA: ContextVar[int] = ContextVar('a')\nB = ContextVar[int]('b')"
    assert context_variables("server/calls/call.py", source) == ["server/calls/call.py:2", "server/calls/call.py:3"]
