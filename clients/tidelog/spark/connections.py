"""Clients that live as long as the process: tasks that follow each other in a worker share them."""

import os

from tidelog.clients.client import Client
from tidelog.clients.settings import ConnectionSettings
from tidelog.clients.transport import Transport
from tidelog.kernel.instant import ms
from tidelog.spark.options import Connection

_CLIENTS: dict[tuple[int, Connection], Client] = {}


def client_of(connection: Connection) -> Client:
    """The process's client of that cluster, which knows its brokers; made at first use.

    Keyed by the process as well: whoever is forked must not speak on its parent's sockets.
    """
    key = os.getpid(), connection
    client = _CLIENTS.get(key)
    if client is None:
        settings = ConnectionSettings(
            client_id=connection.client_id, request_timeout_ns=ms(connection.request_timeout_ms)
        )
        client = Client(
            Transport(settings), connection.bootstrap, timeout_ns=ms(connection.api_timeout_ms)
        )
        client.connect()
        _CLIENTS[key] = client
    return client
