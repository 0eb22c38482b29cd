"""Write the layout tables into docs/formats.md, each between its two markers."""

import re
import sys
from pathlib import Path

from persist import format as record_format
from shmq import layout

PAGE = Path(__file__).with_name("formats.md")
TABLES = {
    "RECORD": record_format.RECORD,
    "PAD": record_format.PAD,
    "GAP_BODY": record_format.GAP_BODY,
    "MARK_BODY": record_format.MARK_BODY,
    "ENCODING_FIELD": record_format.ENCODING_FIELD,
    **layout.STRUCTURES,
}


def filled(text: str) -> str:
    """The page with every table as the dtypes have it now."""
    for name, dtype in TABLES.items():
        block = f"<!-- {name} -->\n{record_format.table(dtype)}\n<!-- /{name} -->"
        pattern = rf"<!-- {name} -->\n.*?<!-- /{name} -->"
        places = re.findall(pattern, text, flags=re.DOTALL)
        if len(places) != 1:
            sys.exit(f"docs/formats.md has {len(places)} places for the table {name}")
        text = text.replace(places[0], block)
    return text


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text()))
