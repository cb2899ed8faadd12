"""The connector's jars: fetched where they are missing, refused where they are not the right ones;
and what a Spark cluster is sent."""

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tidelog.tools import connector_jars
from tidelog.tools.connector_jars import JARS, Jar, gather_jars
from tidelog.tools.output import CliError
from tidelog.tools.pipeline_package import write_package

_CONTENT = b"a jar"


@pytest.fixture
def one(monkeypatch: pytest.MonkeyPatch) -> Jar:
    """The only jar there is."""
    jar = Jar("org.some", "thing", "1.0", hashlib.sha256(_CONTENT).hexdigest())
    monkeypatch.setattr(connector_jars, "JARS", (jar,))
    return jar


def brings(content: bytes, fetched: list[str]) -> connector_jars.Fetch:
    def fetch(jar: Jar, folder: Path) -> str:
        fetched.append(jar.coordinates)
        (folder / jar.name).write_bytes(content)
        return ""

    return fetch


def test_a_jar_is_fetched_once(one: Jar, tmp_path: Path) -> None:
    fetched: list[str] = []
    assert gather_jars(tmp_path / "jars", brings(_CONTENT, fetched)) == [one]
    assert gather_jars(tmp_path / "jars", brings(_CONTENT, fetched)) == []
    assert fetched == ["org.some:thing:1.0"]


def test_a_damaged_jar_is_fetched_again(one: Jar, tmp_path: Path) -> None:
    (tmp_path / one.name).write_bytes(b"half a j")
    assert gather_jars(tmp_path, brings(_CONTENT, [])) == [one]
    assert (tmp_path / one.name).read_bytes() == _CONTENT


def test_another_jar_of_that_name_is_refused_and_not_left_there(one: Jar, tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"thing-1\.0\.jar is not the one that was published"):
        gather_jars(tmp_path, brings(b"another", []))
    assert not (tmp_path / one.name).exists()


@pytest.mark.usefixtures("one")
def test_why_nothing_came_is_told(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="could not be fetched: Maven is not here"):
        gather_jars(tmp_path, lambda _jar, _folder: "Maven is not here")


def test_every_jar_has_a_checksum_of_its_own() -> None:
    assert len(JARS) == len({jar.sha256 for jar in JARS}) == 4
    assert all(len(jar.sha256) == 64 for jar in JARS)


def test_the_package_holds_what_the_programs_import(tmp_path: Path) -> None:
    write_package(tmp_path)
    with zipfile.ZipFile(tmp_path / "tidelog.zip") as archive:
        names = set(archive.namelist())
    assert {"pyspark_tidelog/__init__.py", "tidelog/spark/pipelines/lag.py"} <= names
    assert not [name for name in names if name.startswith(("tidelog/node", "tidelog/tools"))]
    # From the archive alone: the site's packages stay, this project's folders do not.
    program = (
        "import sys; sys.path[:] = [one for one in sys.path if 'clients' not in one];"
        f"sys.path.insert(0, {str(tmp_path / 'tidelog.zip')!r});"
        "sys.meta_path[:] = [one for one in sys.meta_path if 'editable' not in repr(one).lower()];"
        "import tidelog.spark.pipelines.running as found; print(found.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.startswith(str(tmp_path / "tidelog.zip"))
