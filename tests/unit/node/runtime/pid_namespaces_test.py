"""A container is dead only if it is shown that no process is in its pid namespace."""

import shutil
from pathlib import Path

import pytest

from harness.processes.containers import container
from tidelog.node.runtime.pid_namespaces import is_gone

INITIAL, OTHER, THIRD = "pid:[4026531836]", "pid:[4026532200]", "pid:[4026532300]"


class Machine:
    """A folder that looks like /proc."""

    def __init__(self, proc: Path, own: str = INITIAL) -> None:
        self.proc = proc
        self.add("self", own, "4711")
        self.add("1", INITIAL, "1")
        (proc / "meminfo").touch()

    def add(self, pid: str, namespace: str | None, numbers: str | None) -> None:
        """Without a namespace or numbers: a process of another user, who keeps them secret."""
        process = self.proc / pid
        (process / "ns").mkdir(parents=True)
        if namespace is not None:
            (process / "ns/pid").symlink_to(namespace)
        else:
            (process / "ns/pid").mkdir()  # readlink fails, and not because the process is gone
        (process / "status").write_text("Name:\tx\n" + (f"NSpid:\t{numbers}\n" if numbers else ""))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "proc")


def test_a_namespace_without_a_process_is_gone(machine: Machine) -> None:
    machine.add("20", INITIAL, "20")
    machine.add("21", THIRD, "21\t1")
    machine.add("22", None, "22")
    assert is_gone(OTHER, machine.proc)


def test_a_namespace_with_a_process_is_there(machine: Machine) -> None:
    machine.add("20", OTHER, "20\t1")
    assert not is_gone(OTHER, machine.proc)


@pytest.mark.parametrize("numbers", ["20\t1", None])
def test_a_process_that_may_be_in_it_leaves_the_question_open(
    machine: Machine, numbers: str | None
) -> None:
    machine.add("20", None, numbers)
    assert not is_gone(OTHER, machine.proc)


def test_a_process_that_ends_while_it_is_looked_at_is_in_no_namespace(machine: Machine) -> None:
    (machine.proc / "20").mkdir()
    assert is_gone(OTHER, machine.proc)


@pytest.mark.parametrize("name", ["", "pid:[1]", INITIAL, "time:[4026532200]", "x"])
def test_what_is_no_container_s_namespace_is_never_gone(machine: Machine, name: str) -> None:
    assert not is_gone(name, machine.proc)


def test_nothing_is_shown_from_within_a_container(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "proc", own=THIRD)
    assert not is_gone(OTHER, machine.proc)


def test_nothing_is_shown_to_who_does_not_see_the_processes_of_others(machine: Machine) -> None:
    shutil.rmtree(machine.proc / "1")
    assert not is_gone(OTHER, machine.proc)


def test_a_real_namespace_is_gone_when_its_last_process_has_ended() -> None:
    with container() as running:
        assert not is_gone(running.namespace)
        running.end()
        assert is_gone(running.namespace)
