"""Both pages have the picture of the layers, and it shows each room of the table once."""

import re

import pytest

from tests.repository.layer_picture import LAYERS, PAGES, render_layers, replace_picture


def test_both_pages_have_the_picture(subtests: pytest.Subtests) -> None:
    for path in PAGES:
        with subtests.test(page=path.name):
            text = path.read_text(encoding="utf-8")
            assert text == replace_picture(text, render_layers(LAYERS)), "run `make reference`"


def test_the_picture_has_each_room_and_public_names_on_top() -> None:
    picture = render_layers(LAYERS)
    for rooms in LAYERS:
        for room in rooms - {"__init__"}:
            assert len(re.findall(rf"(?<![\w.]){re.escape(room)}(?![\w.])", picture)) >= 1, room
    assert picture.index("mcp_django") < picture.index("wiring") < picture.index("protocol") < picture.index("aio")


def test_another_layer_changes_the_picture() -> None:
    assert render_layers([*LAYERS[:-1], LAYERS[-1] | {"novelty"}]) != render_layers(LAYERS)
