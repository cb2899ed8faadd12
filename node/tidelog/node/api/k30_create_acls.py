"""CreateAcls (key 30), versions 1-3: SECURITY_DISABLED. Not done: an authorizer."""

from tidelog.node.api.call import Call
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k30_create_acls import (
    API,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)


def create_acls(_call: Call, request: CreateAclsRequest) -> CreateAclsResponse:
    refused = AclCreationResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
    )
    return CreateAclsResponse(results=[refused] * len(request.creations))


ROUTE = Route(API, range(1, 4), create_acls, "SECURITY_DISABLED: there is no authorizer")
