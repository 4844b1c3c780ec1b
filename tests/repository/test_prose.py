"""The writing rules of CONTRIBUTING.md, as assertions on docstrings, comments, messages and pages."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.repository.pages import FENCE_OF_ANY_LANGUAGE, ROOT, name_of
from tests.repository.test_architecture import PACKAGE, list_nodes, modules, other_modules

# Pattern, and the most that 10,000 words may hold. Well-kept packages have about as many.
BANNED_PHRASES = {
    "what-clause as a noun": (
        re.compile(
            r"\b[Ww]hat\s(?:is|was|has|it|they|the|a|comes?|goes|can|may|must|there|others?|we|you|he|she|stands?|makes?"
            r"|one|each|all|somebody|nobody)\b"
        ),
        8,
    ),
    "say": (re.compile(r"\b(?:say|says|said|saying)\b"), 3),
    "tell": (re.compile(r"\b(?:tell|tells|told|telling)\b"), 3),
    "nobody": (re.compile(r"\b(?:nobody|somebody|whoever|whom)\b"), 1),
    "is none, is no X": (re.compile(r"\b(?:that is none|is none|is no [a-z]+|are no [a-z]+)\b"), 4),
    "goes on, stands, anew": (
        re.compile(r"\b(?:stands?|is over|are over|gives? way|goes? on|went on|anew|besides|meanwhile)\b"),
        2,
    ),
    "hear": (re.compile(r"\b(?:hear|hears|heard)\b"), 1),
    "look at": (re.compile(r"\blook(?:s|ed|ing)? (?:at|after)\b"), 3),
}
# A docstring starts with an imperative or a noun.
BANNED_FIRST_WORD = re.compile(
    r"(?:What|Who|Whose|Whom|Whether|How|Is|Are|Was|Were|May|Must|Can|Does|Do|Did|Has|Have|It|They|One|Nobody|Which|Where"
    r"|When|There|Those|That|This|These|Of|Its|Their|As|If|Not|No|For|From|By|To|In|On|With|Without|At|And|So)\b"
)
MAX_FIRST_LINE_CHARACTERS = 100
MAX_SENTENCE_WORDS = 30
PLAIN_PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "docs")
# Clients receive the docstrings of these modules, as descriptions of tools and of their results.
WIRE_DOCSTRINGS = ("contrib/memory/mcp_tools.py", "contrib/memory/schemas.py")

# The official conformance suite prescribes the docstrings of these modules.
CONFORMANCE_DOCSTRINGS = "tests/conformance/mcp_tools"


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of docstrings, those below attributes included."""
    for node in list_nodes(tree):
        for statement in getattr(node, "body", None) or () if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield statement.lineno, value.value


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of comments."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


def messages(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of the strings of three words and more in `raise` statements and calls of loggers."""
    for node in list_nodes(tree):
        is_log = isinstance(node, ast.Call) and ast.unparse(node.func).startswith("logger.")
        if not is_log and not isinstance(node, ast.Raise):
            continue
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and len(part.value.split()) >= 3:
                yield part.lineno, part.value


def phrases(texts: list[tuple[str, str]]) -> dict[str, list[str]]:
    """Map each banned phrase that exceeds its bound in (place, text) pairs to the places."""
    count = max(1, sum(len(text.split()) for _, text in texts))
    over = {}
    for name, (pattern, bound) in BANNED_PHRASES.items():
        places = [f"{place}: {match[0]}" for place, text in texts for match in pattern.finditer(text)]
        if len(places) * 10_000 > bound * count:
            over[name] = places
    return over


def wrong_first_line(text: str) -> str | None:
    """Return the problem of the first line of a docstring, or an empty string."""
    first = text.strip().split("\n")[0]
    if match := BANNED_FIRST_WORD.match(first):
        return f"starts with {match[0]!r}: {first}"
    if len(first) > MAX_FIRST_LINE_CHARACTERS:
        return f"has {len(first)} characters in its first line: {first}"
    if first.endswith("?"):
        return f"is a question: {first}"
    return None


def sentences(page: str) -> Iterator[str]:
    """Yield the sentences of a page's paragraphs and list items.

    Code, tables, headings and enumerations of names are left out.
    """
    text = FENCE_OF_ANY_LANGUAGE.sub("", page)
    text = re.sub(r"(?m)^(?:#|\||<).*$", "", text)
    text = re.sub(r"\]\([^)]*\)", "]", text)
    text = re.sub(r"(?:`[^`]*`,\s+){4,}`[^`]*`", "", text)
    for block in re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.) ", text):
        yield from re.split(r"(?<=[.!?:;])\s+", " ".join(block.split()))


def plain_pages() -> list[Path]:
    """List the pages that the rules bind."""
    paths = [ROOT / name for name in PLAIN_PAGES]
    files = [file for path in paths for file in (sorted(path.rglob("*.md")) if path.is_dir() else [path])]
    return [file for file in files if file.is_file()]


def test_docstrings_start_with_an_imperative_or_a_noun() -> None:
    wrong = [
        f"{path}:{line}: {problem}"
        for path, _, tree in modules()
        if path not in WIRE_DOCSTRINGS
        for line, text in docstrings(tree)
        if (problem := wrong_first_line(text))
    ]
    assert wrong == []


def test_docstrings_and_comments_use_plain_phrases() -> None:
    texts = [
        (f"{PACKAGE}/{path}:{line}", text)
        for path, source, tree in modules()
        for line, text in (*docstrings(tree), *comments(source))
    ]
    assert phrases(texts) == {}


def test_docstrings_and_comments_beside_the_package_use_plain_phrases() -> None:
    texts = [
        (f"{path}:{line}", text)
        for path, source, tree in other_modules()
        if not path.startswith(CONFORMANCE_DOCSTRINGS)
        for line, text in (*docstrings(tree), *comments(source))
    ]
    assert phrases(texts) == {}


def test_errors_and_logs_use_plain_phrases() -> None:
    texts = [(f"{PACKAGE}/{path}:{line}", text) for path, _, tree in modules() for line, text in messages(tree)]
    assert phrases(texts) == {}


def test_pages_use_plain_phrases() -> None:
    texts = [(name_of(page), FENCE_OF_ANY_LANGUAGE.sub("", page.read_text(encoding="utf-8"))) for page in plain_pages()]
    assert phrases(texts) == {}


def test_pages_have_short_sentences() -> None:
    long = [
        f"{name_of(page)}: {len(sentence.split())} words: {sentence}"
        for page in plain_pages()
        for sentence in sentences(page.read_text(encoding="utf-8"))
        if len(sentence.split()) > MAX_SENTENCE_WORDS
    ]
    assert long == []


def test_broken_writing_rules_are_noticed(subtests: pytest.Subtests) -> None:
    for text, problem in (
        ("What is registered.", "starts with 'What'"),
        ("Is it open?", "starts with 'Is'"),
        ("Open?", "is a question"),
        ("x" * 101, "has 101 characters"),
        ("Return the cached principal.", None),
        ("Isolation level of a transaction.", None),
    ):
        with subtests.test(text=text):
            assert (wrong_first_line(text) or "").startswith(problem or "")
            assert (wrong_first_line(text) is None) == (problem is None)

    assert set(phrases([("here", "Nobody told us what is said. " * 9 + "nobody heard")])) == {
        "what-clause as a noun",
        "say",
        "tell",
        "nobody",
        "hear",
    }
    page = "# Title\n\nOne. Two\nmore: three.\n\n- item\n- [b](c)\n\n```\ncode\n```\n"
    assert [sentence for sentence in sentences(page) if sentence] == ["One.", "Two more:", "three.", "- item", "[b]"]

    assert list(docstrings(ast.parse('"""A"""\nx = 1\n"""B"""\ndef f():\n    """C"""'))) == [
        (1, "A"),
        (3, "B"),
        (5, "C"),
    ]
    raised = ast.parse('raise ValueError(f"one two three {x}")\nlogger.info("a b c")\nprint("d e f")')
    assert list(messages(raised)) == [(1, "one two three "), (2, "a b c")]
