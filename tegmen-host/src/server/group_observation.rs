//! The settings of a resource whose observers get one notification together.

use crate::group::Group;

/// A resource for which the server sends one notification to the address of a group, in place of one notification to
/// each observer (draft-ietf-core-observe-multicast-notifications-14).
///
/// The clients have to support this draft: other clients get a 5.03 response when they register. Every client with the
/// protection of [`Self::oscore`] takes part. A client with another protection, or whose registration has a query or an
/// option that selects another representation, observes the resource alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupObservation {
    /// The path of the resource, without a leading slash.
    pub path: String,
    /// The address of the group. The tokens of the messages to this address belong to this server alone. All groups of
    /// one address family use the same network interface.
    pub group: Group,
    /// The port of the group.
    pub port: u16,
    /// The name of the OSCORE group that protects the notifications. The server needs the context of a member of this
    /// group, and the other members take part. Each of them can read the notifications, also a member without the right
    /// to the resource. With `None` the notifications have no protection, and anyone can forge them.
    pub oscore: Option<String>,
}
