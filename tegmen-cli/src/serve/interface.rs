//! Reads the options for the outgoing interfaces of rekey messages.

/// The network interface from which rekey messages are sent, for one group, or for all groups without an interface of
/// their own.
#[derive(Clone, Debug)]
pub(super) struct GroupInterface {
    pub(super) group: Option<String>,
    pub(super) name: String,
}

/// Reads [GROUP=]INTERFACE.
pub(super) fn group_interface(text: &str) -> Result<GroupInterface, String> {
    let (group, name) = text.split_once('=').map_or((None, text), |(group, name)| (Some(group), name));
    match name.is_empty() || group.is_some_and(str::is_empty) {
        true => Err("write it as INTERFACE, or as GROUP=INTERFACE".to_owned()),
        false => Ok(GroupInterface { group: group.map(str::to_owned), name: name.to_owned() }),
    }
}
