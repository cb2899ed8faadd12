"""Processor time of this process, and what of it went into making tools that are kept."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager


def processor_s() -> float:
    """Of this process and all that it, or a child of it, waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


class Making:
    """What downloads and compilations took so far: no test is to blame for them."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0

    @contextmanager
    def counted(self) -> Iterator[None]:
        """To make one tool may take another one."""
        before = processor_s()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            if not self._depth:
                self.seconds += processor_s() - before


MAKING = Making()
"""Of this process."""
