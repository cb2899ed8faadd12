"""From the stacks that perf prints to what processor time was spent on."""

import pytest

from hot_path import KERNEL_KINDS, OWN_KINDS, kind_of, samples, shares_of

PRINTED = """\
  7
\tffff8 _copy_from_iter ([kernel.kallsyms])
\tffff7 __x64_sys_pwritev ([kernel.kallsyms])
\t7f01 __libc_pwritev (/usr/lib/libc.so.6)

  7
\t5501 _PyEval_EvalFrameDefault (/usr/bin/python3.11)

  8
\tffff9 finish_task_switch ([kernel.kallsyms])
\tffff6 __x64_sys_epoll_wait ([kernel.kallsyms])
"""


def test_what_perf_prints_is_read_stack_by_stack() -> None:
    found = list(samples(PRINTED.splitlines()))
    assert [(pid, len(frames)) for pid, frames in found] == [(7, 3), (7, 1), (8, 2)]
    assert found[1][1] == ["_PyEval_EvalFrameDefault (/usr/bin/python3.11)"]


def test_the_last_stack_counts_without_a_line_behind_it() -> None:
    assert len(list(samples(PRINTED.rstrip().splitlines()))) == 3


@pytest.mark.parametrize(
    ("frames", "kind"),
    [
        (["_copy_to_iter ([kernel.kallsyms])", "tcp_recvmsg ([kernel.kallsyms])"], "receive"),
        (["rep_movs ([kernel.kallsyms])", "__x64_sys_pwritev ([kernel.kallsyms])"], "log write"),
        (["tcp_ack ([kernel.kallsyms])", "__x64_sys_sendto ([kernel.kallsyms])"], "send"),
        (
            ["clear_page ([kernel.kallsyms])", "asm_exc_page_fault ([kernel.kallsyms])"],
            "page faults",
        ),
        (["something ([kernel.kallsyms])"], "else"),
    ],
)
def test_a_moment_in_the_kernel_is_its_system_call_s(frames: list[str], kind: str) -> None:
    assert kind_of([*frames, "caller (/usr/lib/crc32c.so)"]) == f"kernel: {kind}"


@pytest.mark.parametrize(
    ("running", "kind"),
    [
        ("[unknown] (/x/_crc32c.abi3.so)", "checksum"),
        ("zmq::poll (/x/pyzmq.libs/libzmq.so.5)", "ZeroMQ"),
        ("uv__io_poll (/x/uvloop/loop.so)", "event loop"),
        ("__memcpy_avx (/usr/lib/libc.so.6)", "copy in memory"),
        ("PyObject_Call (/usr/lib/libpython3.11.so)", "Python"),
        ("malloc (/usr/lib/libc.so.6)", "else"),
    ],
)
def test_a_moment_outside_is_of_the_library_that_ran(running: str, kind: str) -> None:
    assert kind_of([running, "__libc_pwritev (/usr/lib/libc.so.6)"]) == kind


def test_shares_are_by_role_and_add_up() -> None:
    found = shares_of({7: "leader"}, samples(PRINTED.splitlines()))
    assert found == {
        "leader": {"kernel: log write": 0.5, "Python": 0.5},
        "others": {"kernel: waiting and waking": 1.0},
    }
    names = [kind for kind, _ in (*KERNEL_KINDS, *OWN_KINDS)]
    assert len(names) == len(set(names))
