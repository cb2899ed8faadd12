"""The reader of Markdown that the other tests trust."""

from pathlib import Path

import pytest

from harness.suite import documents

PAGE = """# A page

<!-- command: start -->
```sh
one && two
```

```python
x = 1
```
"""


def test_a_marked_command_is_read() -> None:
    assert documents.marked(PAGE, "start") == "one && two"


def test_a_missing_marker_is_an_error() -> None:
    with pytest.raises(AssertionError, match="must stand once"):
        documents.marked(PAGE, "test")


def test_a_marked_block_of_two_lines_is_an_error() -> None:
    with pytest.raises(AssertionError, match="one command line, not 2"):
        documents.marked(PAGE.replace("&&", "\n"), "start")


def test_blocks_are_told_apart_by_language() -> None:
    assert [block.body for block in documents.blocks(PAGE, "python")] == ["x = 1\n"]


def test_a_link_to_nothing_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One & two\n[a](#one--two) [b](#three) [c](other.md) [d](https://kafka.apache.org)\n"
        "```\n[e](in-code.md)\n```\n[f](page.md#one--two)\n",
        encoding="utf-8",
    )
    assert documents.broken_links(page) == [
        "page.md: #three leads nowhere",
        "page.md: other.md leads nowhere",
    ]
