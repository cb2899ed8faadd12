"""What a Spark cluster is sent: our modules as one archive, and the program to run."""

import importlib.util
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tidelog.tools.output import fail

ARCHIVE: Final = "tidelog.zip"
PROGRAM: Final = "tidelog_pipeline.py"
_PARTS: Final = ("tidelog.kernel", "tidelog.wire", "tidelog.clients", "tidelog.spark")
_FOUND_BY_SPARK: Final = "pyspark_tidelog"
_TEXT: Final = '''"""For spark-submit --py-files tidelog.zip: runs the pipeline that is named."""

from tidelog.spark.pipelines.__main__ import main

main()
'''


def write_package(folder: Path) -> None:
    """Pure Python: what needs a compiler must be installed where tasks run."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / ARCHIVE, "w", zipfile.ZIP_DEFLATED) as archive:
        # `tidelog` is no package of its own: Python finds it in an archive by its folder's entry.
        archive.writestr("tidelog/", b"")
        for name, path in _sources():
            archive.write(path, name)
    (folder / PROGRAM).write_text(_TEXT, encoding="utf-8")


def _sources() -> Iterator[tuple[str, Path]]:
    for part in (*_PARTS, _FOUND_BY_SPARK):
        place = _folder_of(part)
        for path in sorted(place.rglob("*.py")):
            yield f"{part.replace('.', '/')}/{path.relative_to(place)}", path


def _folder_of(part: str) -> Path:
    try:
        spec = importlib.util.find_spec(part)
    except ModuleNotFoundError as error:
        fail(str(error))
    assert spec is not None, part
    assert spec.origin is not None, part
    return Path(spec.origin).parent
