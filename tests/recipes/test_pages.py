"""The form of the recipes: short pages, short sentences, and an index that lists all of them."""

import re

from tests.recipes.pages import RECIPES
from tests.repository.test_prose import sentences

MAX_LINES = 59
MAX_AVERAGE_WORDS = 18


def test_the_index_lists_each_recipe_with_a_question() -> None:
    index = (RECIPES / "index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\(([\w-]+\.md)\)", index)) == {path.name for path in RECIPES.glob("*.md")} - {"index.md"}
    rows = [line for line in index.splitlines() if line.startswith("| ") and "](" in line]
    assert all(row.split("|")[1].strip().endswith("?") for row in rows)


def test_recipes_are_short() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in RECIPES.glob("*.md")}
    assert {name for name, text in texts.items() if len(text.splitlines()) > MAX_LINES} == set()
    lengths = {name: [len(one.split()) for one in sentences(text) if one] for name, text in texts.items()}
    assert {name for name, words in lengths.items() if sum(words) > MAX_AVERAGE_WORDS * len(words)} == set()
