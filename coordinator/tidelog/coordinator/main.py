"""The entry of the coordinator's process: build the parts, run until told to end. (shell)"""

import asyncio
import os

import uvloop

from tidelog.coordinator.runtime.coordinator_process import CoordinatorProcess
from tidelog.kernel.failures import CannotStartError, CorruptError
from tidelog.kernel.launch import CoordinatorLaunch
from tidelog.node.runtime.process import EventLog, cannot_start


def run(launch: CoordinatorLaunch) -> int:
    """Run the coordinator in this process, a fork of the supervisor that has its name, its log
    and its parent's leave; its exit code."""
    log = EventLog("coordinator")
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        process = CoordinatorProcess(loop, launch, log)
        process.start()
    except (CannotStartError, CorruptError, OSError) as error:
        return cannot_start(launch, log, error)
    try:
        loop.run_forever()
        process.close()
    finally:
        loop.close()
    log.info("ended", pid=os.getpid(), exit_code=process.exit_code)
    return process.exit_code
