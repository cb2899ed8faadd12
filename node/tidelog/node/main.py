"""The entry of a broker process: build the parts, run until told to end. A shell."""

import asyncio
import os

import uvloop

from tidelog.kernel.failures import CannotStartError, CorruptError
from tidelog.kernel.launch import BrokerLaunch, log_file
from tidelog.node.runtime.broker_process import BrokerProcess
from tidelog.node.runtime.process import (
    EventLog,
    cannot_start,
    end_with_parent,
    set_title,
    setup_logging,
)


def run(launch: BrokerLaunch) -> int:
    """Run broker `launch.broker_id` in this process, a fork of the supervisor; its exit code."""
    end_with_parent(launch.supervisor_pid)
    setup_logging(log_file(launch.data_dir, "broker", launch.broker_id), "broker", launch.broker_id)
    set_title(f"broker{launch.broker_id}", f"tidelog broker {launch.broker_id}")
    log = EventLog("broker")
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    process = BrokerProcess(loop, launch, log)
    try:
        process.start()
    except (CannotStartError, CorruptError, OSError) as error:
        return cannot_start(launch, log, error)
    try:
        loop.run_forever()
    finally:
        loop.close()
    log.info("ended", pid=os.getpid(), exit_code=process.exit_code)
    return process.exit_code
