"""What calls to the coordinator came to."""

from dataclasses import dataclass

from tidelog.node.metadata import link
from tidelog.wire.frame import decode_response
from tidelog.wire.messages import k19_create_topics as creation
from tidelog.wire.messages import k20_delete_topics as deletion
from tidelog.wire.messages import k37_create_partitions as growth
from tidelog.wire.messages import k44_incremental_alter_configs as altering
from tidelog.wire.messages import k64_unregister_broker as unregistering

CREATE_VERSION = 7
DELETE_VERSION = 6
GROWTH_VERSION = 3
ALTER_VERSION = 1


@dataclass
class Outcome:
    """What a call came to."""

    result: link.Result | None = None
    on_disk: int = 0
    """Records that were on disk when it came."""

    def codes(self) -> list[int]:
        """The error codes of an answer to a client's request."""
        assert isinstance(self.result, bytes), self.result
        frame = memoryview(self.result)
        if frame[0] == creation.API.key:  # a call's correlation id begins with its key
            _, created = decode_response(creation.API, CREATE_VERSION, frame)
            return [row.error_code for row in created.topics]
        if frame[0] == growth.API.key:
            _, grown = decode_response(growth.API, GROWTH_VERSION, frame)
            return [row.error_code for row in grown.results]
        if frame[0] == altering.API.key:
            _, altered = decode_response(altering.API, ALTER_VERSION, frame)
            return [row.error_code for row in altered.responses]
        if frame[0] == unregistering.API.key:
            _, gone = decode_response(unregistering.API, 0, frame)
            return [gone.error_code]
        _, deleted = decode_response(deletion.API, DELETE_VERSION, frame)
        return [row.error_code for row in deleted.responses]
