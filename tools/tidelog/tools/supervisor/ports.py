"""Ports the supervisor keeps for its brokers, from its first to its last moment.

A kept port is bound and does not listen: while its broker is down, clients are refused at once, and
no other program can listen there. Linux lets anybody bind a port that is only bound, if both
sockets have SO_REUSEADDR, as nearly every server has. So the kept socket does not have it: only a
socket of the same user with SO_REUSEPORT, as brokers have, may be bound beside it. A supervisor
takes a port before it sets SO_REUSEPORT, so two of them never keep the same one.

Nobody keeps the ports while the cluster is down. So a free port is chosen where the kernel takes
none for outgoing connections: otherwise a client that tries to come back may take it itself.
"""

import contextlib
import errno
import random
import socket
from collections.abc import Iterator, Sequence

from tidelog.kernel.failures import CannotStartError
from tidelog.tools.supervisor import proc, runs
from tidelog.tools.supervisor.runs import State
from tidelog.tools.supervisor.sources import PORT_MAX

HOST = "127.0.0.1"
_FREE_PORT_ATTEMPTS_MAX = 20
"""In each range of ports."""
_FEW_SERVICES_FROM = 10_000
"""Below lie the ports that most servers have by default."""


def ranges_of_free_ports(ephemeral: range, unprivileged_from: int) -> list[range]:
    """Where to look for a free port, best first: not where the kernel takes those of clients."""
    first = max(1024, unprivileged_from)
    start, end = (ephemeral.start, ephemeral.stop) if ephemeral else (PORT_MAX + 1, PORT_MAX + 1)
    ranges = (
        range(max(first, _FEW_SERVICES_FROM), start),
        range(max(first, end), PORT_MAX + 1),
        range(first, min(start, _FEW_SERVICES_FROM)),
    )
    return [one for one in ranges if one]


class PortKeeper:
    """Holds ports until it is closed."""

    def __init__(self, ranges: Sequence[range] | None = None) -> None:
        self._kept: dict[int, socket.socket] = {}
        self._ranges = ranges
        self.moved: list[str] = []
        """Sentences about preferred ports that others have."""

    def keep(self, wanted: int, *, preferred: int = 0) -> int:
        """Keep a port; 0 takes the preferred one if it is free, else any."""
        if wanted:
            return self._keep(wanted)
        if not preferred:
            return self._keep_free()
        try:
            return self._keep(preferred)
        except CannotStartError:
            port = self._keep_free()
            self.moved.append(
                f"port {preferred}, which a broker had before, is in use{_by(preferred)}: "
                f"the broker gets port {port}, so give clients the new bootstrap address"
            )
            return port

    def _keep_free(self) -> int:
        for port in self._choices():
            with contextlib.suppress(CannotStartError):
                return self._keep(port)
        for _ in range(_FREE_PORT_ATTEMPTS_MAX):
            try:
                return self._keep(0)
            except CannotStartError as error:
                failed = error
        raise failed

    def _choices(self) -> Iterator[int]:
        """At random, since several clusters may start at one moment."""
        ranges = self._ranges
        if ranges is None:
            ranges = ranges_of_free_ports(proc.ephemeral_ports(), proc.unprivileged_from())
        taken = proc.listening_ports() | self._kept.keys()
        for one in ranges:
            count = min(len(one), _FREE_PORT_ATTEMPTS_MAX)
            yield from (port for port in random.sample(one, count) if port not in taken)

    def let_go(self, port: int) -> None:
        """For others to take."""
        self._kept.pop(port).close()

    def close(self) -> None:
        for port in list(self._kept):
            self.let_go(port)

    def _keep(self, port: int) -> int:
        keeper = _reusing()
        try:
            _bind_alone(keeper, port)
        except OSError as error:
            keeper.close()
            raise CannotStartError(_why(port, error)) from error
        port = keeper.getsockname()[1]
        self._kept[port] = keeper
        return port


def _reusing() -> socket.socket:
    """May be bound where connections of an earlier run linger."""
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return made


def _bind_alone(keeper: socket.socket, port: int) -> None:
    """OSError where somebody else has the port; 0 is any.

    Listening, for a moment, ends what SO_REUSEADDR permits: it fails where another socket is bound
    for use, and later ones are compared with the options that this socket has then.
    """
    if port:
        keeper.bind((HOST, port))
    else:
        with _reusing() as chosen:
            # The kernel takes back a port that it has chosen itself when listening ends.
            chosen.bind((HOST, 0))
            keeper.bind(chosen.getsockname())
    keeper.listen(1)
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    keeper.shutdown(socket.SHUT_RDWR)


def _why(port: int, error: OSError) -> str:
    if error.errno == errno.EACCES:
        return f"port {port} may not be used by this user: choose one of 1024 or more"
    if error.errno != errno.EADDRINUSE:
        return f"port {port} cannot be used ({error.strerror}): choose another with --base-port"
    return (
        f"port {port} is in use{_by(port)}: stop what uses it, or choose another with --base-port"
    )


def _by(port: int) -> str:
    holder = _cluster_of(port) or proc.holder(port)
    return f" by {holder}" if holder else ""


def _cluster_of(port: int) -> str | None:
    """Which cluster of this user has the port, and who is to be asked to end it. A port of a broker
    that is down is kept by its supervisor, and nobody listens there."""
    address = f"{HOST}:{port}"
    for run, state in runs.living():
        if state is State.RUNNING and address in run.bootstrap.split(","):
            return f"cluster {run.cluster!r} in {run.where}, whose supervisor keeps it"
    return None


def bootstrap(ports: Sequence[int]) -> str:
    """Where clients find the brokers; one that was removed has no port."""
    return ",".join(f"{HOST}:{port}" for port in ports if port)
