"""Ports the supervisor keeps for its brokers, from its first to its last moment.

A kept port is bound and never listens: while its broker is down, clients are refused at once, and
nobody else is given the port. The broker binds the same address (both with SO_REUSEADDR) and
listens. Two clusters that both only keep a port would not notice each other, so each port is also
claimed by an abstract Unix name, which the kernel gives to one holder and takes back at its death.
"""

import errno
import socket
from collections.abc import Sequence

from tidelog.kernel.failures import CannotStartError
from tidelog.tools.supervisor import proc

HOST = "127.0.0.1"
_FREE_PORT_ATTEMPTS_MAX = 20


class PortKeeper:
    """Holds ports until it is closed."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[socket.socket, socket.socket]] = {}

    def keep(self, wanted: int, *, preferred: int = 0) -> int:
        """Keep a port; 0 takes the preferred one if it is free, else any."""
        if wanted:
            return self._keep(wanted)
        if preferred:
            try:
                return self._keep(preferred)
            except CannotStartError:
                pass  # taken meanwhile: any other will do
        for _ in range(_FREE_PORT_ATTEMPTS_MAX):
            try:
                return self._keep(0)
            except CannotStartError as error:
                failed = error
        raise failed

    def let_go(self, port: int) -> None:
        """For others to take."""
        for held in self._kept.pop(port):
            held.close()

    def close(self) -> None:
        for port in list(self._kept):
            self.let_go(port)

    def _keep(self, port: int) -> int:
        keeper = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            keeper.bind((HOST, port))
            port = keeper.getsockname()[1]
            claim.bind(f"\0tidelog-port-{port}")
        except OSError as error:
            keeper.close()
            claim.close()
            raise CannotStartError(_why(port, error)) from error
        self._kept[port] = (keeper, claim)
        return port


def _why(port: int, error: OSError) -> str:
    if error.errno == errno.EACCES:
        return f"port {port} may not be used by this user: choose one of 1024 or more"
    if error.errno != errno.EADDRINUSE:
        return f"port {port} cannot be used ({error.strerror}): choose another with --base-port"
    holder = proc.listener(port)
    by = f" by {holder}" if holder else ""
    return f"port {port} is in use{by}: stop what uses it, or choose another with --base-port"


def bootstrap(ports: Sequence[int]) -> str:
    """Where clients find the brokers; one that was removed has no port."""
    return ",".join(f"{HOST}:{port}" for port in ports if port)
