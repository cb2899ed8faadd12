"""DeleteAcls (key 31), versions 1-3: SECURITY_DISABLED. Not done: an authorizer."""

from tidelog.node.api.call import Call
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k31_delete_acls import (
    API,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


def delete_acls(_call: Call, request: DeleteAclsRequest) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
    )
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))


ROUTE = Route(API, range(1, 4), delete_acls, "SECURITY_DISABLED: there is no authorizer")
