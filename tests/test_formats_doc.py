"""docs/formats.md shows the layouts as they are declared."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"


def test_the_page_shows_the_layouts_as_declared() -> None:
    page = (DOCS / "formats.md").read_text()
    filled = runpy.run_path(str(DOCS / "print_formats.py"))["filled"]
    assert filled(page) == page, "run `make docs`"
