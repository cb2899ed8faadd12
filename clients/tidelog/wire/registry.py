"""Where the schema of each API key is; a schema is imported when it is first asked for."""

from importlib import import_module

from tidelog.wire.header import AnyApi

MODULES = {
    0: "k00_produce",
    1: "k01_fetch",
    2: "k02_list_offsets",
    3: "k03_metadata",
    10: "k10_find_coordinator",
    18: "k18_api_versions",
    19: "k19_create_topics",
    20: "k20_delete_topics",
    22: "k22_init_producer_id",
}
"""Every key known here; a broker advertises those that it has a handler for."""


def api_for(key: int) -> AnyApi:
    """The schema of a key in `MODULES`; KeyError for others."""
    api: AnyApi = import_module(f"tidelog.wire.messages.{MODULES[key]}").API
    assert api.key == key, (api, key)
    return api
