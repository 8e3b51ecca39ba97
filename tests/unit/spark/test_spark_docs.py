"""docs/spark.md lists every column and option with its default; running this file renews it."""

import re
from pathlib import Path

from tandemq.spark.columns import COLUMNS
from tandemq.spark.options import FileOptions, PullOptions, SelectOptions, SinkOptions, described

PAGE = Path(__file__).parents[3] / "docs" / "spark.md"


def lists() -> dict[str, str]:
    """Marker -> table."""
    columns = ["| column | type | meaning |", "|---|---|---|"]
    columns += (f"| `{name}` | {sql} | {meaning} |" for name, (sql, _, meaning) in COLUMNS.items())
    shared = {row[0] for row in described(SelectOptions)}
    return {
        "columns": "\n".join(columns),
        "PullOptions": options(described(PullOptions)),
        "FileOptions": options([row for row in described(FileOptions) if row[0] not in shared]),
        "SinkOptions": options(described(SinkOptions)),
    }


def options(rows: list[tuple[str, str, str]]) -> str:
    lines = ["| option | default | meaning |", "|---|---|---|"]
    for name, default, meaning in rows:
        text = meaning.replace("|", "\\|")
        lines.append(f"| `{name}` | {f'`{default}`' if default else ''} | {text} |")
    return "\n".join(lines)


def renewed(page: str) -> str:
    for marker, table in lists().items():
        pattern = re.compile(rf"<!-- {marker} -->\n(?:\n?\|.*\n)*", re.M)
        page = pattern.sub(lambda _, m=marker, t=table: f"<!-- {m} -->\n\n{t}\n", page)
    return page


def test_the_page_lists_every_column_and_option() -> None:
    """Generated lists; a change of an option changes the page."""
    page = PAGE.read_text()
    assert renewed(page) == page


if __name__ == "__main__":
    PAGE.write_text(renewed(PAGE.read_text()))
