"""What a client may do to a resource, as answers tell it: one bit for each of Kafka's operations.

There is no authorizer, so everybody may do all that a resource knows.
"""

from typing import Final

NOT_ASKED: Final = -(2**31)

_READ: Final = 3
_WRITE: Final = 4
_CREATE: Final = 5
_DELETE: Final = 6
_ALTER: Final = 7
_DESCRIBE: Final = 8
_CLUSTER_ACTION: Final = 9
_DESCRIBE_CONFIGS: Final = 10
_ALTER_CONFIGS: Final = 11
_IDEMPOTENT_WRITE: Final = 12


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


ON_TOPIC: Final = _bits(
    _READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS
)
ON_CLUSTER: Final = _bits(
    _CREATE,
    _ALTER,
    _DESCRIBE,
    _CLUSTER_ACTION,
    _DESCRIBE_CONFIGS,
    _ALTER_CONFIGS,
    _IDEMPOTENT_WRITE,
)
ON_GROUP: Final = _bits(_READ, _DELETE, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS)
