"""DescribeAcls (key 29), versions 1-3: SECURITY_DISABLED. Not done: an authorizer."""

from tidelog.node.api.call import Call
from tidelog.node.api.registry import Route
from tidelog.wire.errors import ErrorCode
from tidelog.wire.messages.k29_describe_acls import API, DescribeAclsRequest, DescribeAclsResponse


def describe_acls(_call: Call, _request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED,
        error_message="No Authorizer is configured on the broker",
    )


ROUTE = Route(API, range(1, 4), describe_acls, "SECURITY_DISABLED: there is no authorizer")
