"""A deleted topic's directory goes although a worker that compacts it still writes there."""

import os
import threading
from pathlib import Path

import pytest

from tidelog.node.runtime.disk import open_disk

ROUNDS = 30
NAMES = 40


def writes(descriptor: int, stop: threading.Event) -> None:
    """As a pass does: it makes files and renames them, by the directory that it has open."""
    number = 0
    while not stop.is_set():
        number += 1
        old, new = f"{number % NAMES}.cleaned", f"{number % NAMES}.swap"
        try:
            os.close(os.open(old, os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
            os.rename(old, new, src_dir_fd=descriptor, dst_dir_fd=descriptor)
        except FileNotFoundError:
            continue  # the file, or the directory, is gone


def test_a_directory_is_removed_while_files_come_and_change_their_names(tmp_path: Path) -> None:
    place = open_disk(str(tmp_path / "log0"), open_files_max=4)
    place.make()
    for number in range(ROUNDS):
        name = f"t-{number}.deleted"
        place.directory(name).make()
        for file in range(NAMES):
            (Path(place.path) / name / f"{file}.swap").touch()
        descriptor = os.open(f"{place.path}/{name}", os.O_RDONLY | os.O_DIRECTORY)
        stop = threading.Event()
        worker = threading.Thread(target=writes, args=(descriptor, stop))
        worker.start()
        try:
            place.remove_tree(name)
        finally:
            stop.set()
            worker.join()
            os.close(descriptor)
        assert not place.exists(name)


def test_a_directory_that_cannot_be_removed_is_told_of(tmp_path: Path) -> None:
    place = open_disk(str(tmp_path / "log0"), open_files_max=4)
    place.make()
    with pytest.raises(FileNotFoundError):
        place.remove_tree("never made")
