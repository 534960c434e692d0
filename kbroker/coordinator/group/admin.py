"""Groups as an operator sees them: listed, described, deleted."""

from __future__ import annotations

from kbroker.coordinator.group.classic import CONSUMER, DEAD, STABLE, ClassicGroup
from kbroker.coordinator.group.commits import Commits
from kbroker.coordinator.group.group import Group
from kbroker.coordinator.group.rebalance import Rebalances
from kbroker.coordinator.step import Step
from kbroker.errors import GroupIdNotFoundError
from kbroker.protocol.messages import DescribeGroupsResponse, ListGroupsRequest, ListGroupsResponse

NO_SUCH_GROUP = "Group {} not found."
OTHER_KIND = "Group {} is not a classic group."
ERROR_FROM = 6  # before, a group that does not exist is described as Dead

Described = DescribeGroupsResponse.DescribedGroup
DescribedMember = DescribeGroupsResponse.DescribedGroupMember


def list_groups(groups: dict[str, Group], request: ListGroupsRequest) -> list[ListGroupsResponse.ListedGroup]:
    """Filters are compared whatever their case; one that names nothing finds nothing."""
    states = {state.strip().lower() for state in request.states_filter}
    kinds = {kind.lower() for kind in request.types_filter}
    return [
        ListGroupsResponse.ListedGroup(
            group_id=group.group_id,
            protocol_type=(group.protocol_type or "") if isinstance(group, ClassicGroup) else CONSUMER,
            group_state=group.state_name,
            group_type=group.kind,
        )
        for group in groups.values()
        if (not states or group.state_name.lower() in states) and (not kinds or group.kind in kinds)
    ]


def describe_group(group_id: str, group: Group | None, api_version: int) -> Described:
    if isinstance(group, ClassicGroup):
        chosen = group.protocol_name if group.state == STABLE else None
        return Described(
            group_id=group_id,
            group_state=group.state,
            protocol_type=group.protocol_type or "",
            protocol_data=chosen or "",
            members=[
                DescribedMember(
                    member_id=one.member_id,
                    group_instance_id=one.instance_id,
                    client_id=one.client_id,
                    client_host=one.client_host,
                    member_metadata=one.metadata(chosen),
                    member_assignment=one.assignment,
                )
                for one in group.members.values()
            ],
        )
    described = Described(group_id=group_id, group_state=DEAD)
    if api_version >= ERROR_FROM:
        refused = GroupIdNotFoundError((NO_SUCH_GROUP if group is None else OTHER_KIND).format(group_id))
        described.error_code, described.error_message = refused.code, refused.message
    return described


def delete_group(step: Step, group: Group | None, commits: Commits, rebalances: Rebalances) -> None:
    """The group and its offsets end; KafkaError if there is none or somebody is in it."""
    if group is None:
        raise GroupIdNotFoundError()
    group.check_delete()
    commits.forget_group(step, group.group_id)
    if isinstance(group, ClassicGroup):
        rebalances.forget_group(step, group)
    step.records += group.tombstones()
