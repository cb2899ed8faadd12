"""The entry of the transaction coordinator's process: build it, run until told to end. (shell)"""

import asyncio
import os

import uvloop

from tidelog.coordinator.runtime.transactions_process import TransactionsProcess
from tidelog.kernel.launch import Launch
from tidelog.node.runtime.process import EventLog


def run(launch: Launch) -> int:
    """Run the transaction coordinator in this process, a fork of the supervisor that has its name,
    its log and its parent's leave; its exit code."""
    log = EventLog("transaction-coordinator")
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    process = TransactionsProcess(loop, launch, log)
    process.start()
    try:
        loop.run_forever()
        process.close()
    finally:
        loop.close()
    log.info("ended", pid=os.getpid(), exit_code=process.exit_code)
    return process.exit_code
