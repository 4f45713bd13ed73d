//! Events for an operator who watches the changes of groups.

use super::config::GroupConfig;
use super::members::Member;
use super::rows::{self, Head, NAMES, Row};
use tegmen_store::store::Changed;

/// A change of a group, for an operator who watches groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupHappened {
    /// A group was created.
    Created {
        /// The name of the group.
        group: String,
        /// The configuration, which never changes.
        config: GroupConfig,
    },
    /// A group was deleted.
    Deleted {
        /// The name of the group.
        group: String,
    },
    /// A member was admitted, or got new secrets.
    Admitted {
        /// The name of the group.
        group: String,
        /// The name of the member.
        name: String,
        /// The leaf, the SenderID and the address of the member.
        member: Member,
    },
    /// A member left or was evicted.
    Left {
        /// The name of the group.
        group: String,
        /// The name of the member.
        name: String,
    },
    /// An epoch began.
    Epoch {
        /// The name of the group.
        group: String,
        /// The number of the epoch, from 1.
        epoch: u16,
        /// The number of epochs that can follow this epoch, including those that are reserved for evictions.
        epochs_left: u16,
    },
}

impl GroupHappened {
    /// Returns the name of the group that has changed.
    pub(super) fn group(&self) -> &str {
        match self {
            Self::Created { group, .. }
            | Self::Deleted { group }
            | Self::Admitted { group, .. }
            | Self::Left { group, .. }
            | Self::Epoch { group, .. } => group,
        }
    }

    /// Returns the changes of groups that one revision made. Rows of other kinds, and rows that cannot be read, are
    /// left out. In the result, the change of a member comes before the event of the epoch that this change began.
    pub fn of(revision: &[Changed]) -> Vec<Self> {
        let heads: Vec<(&str, Head)> = revision.iter().filter_map(head).collect();
        let mut happened = Vec::new();
        for (group, is_there) in revision.iter().filter_map(name) {
            let group = group.to_owned();
            match heads.iter().find(|(_, head)| head.name == group) {
                Some((_, head)) if is_there => happened.push(Self::Created { group, config: head.config }),
                None if !is_there => happened.push(Self::Deleted { group }),
                _ => {}
            }
        }
        let is_new = |group: &str| revision.iter().filter_map(name).any(|(name, _)| name == group);
        for (prefix, head) in heads.iter().filter(|(_, head)| !is_new(&head.name)) {
            happened.extend(changes(revision, prefix, head));
        }
        happened
    }
}

/// Returns two values if the change wrote the head of a group, which is the main row of the group in the store: the
/// prefix of the keys of all rows of the group, and the content of the head.
fn head(change: &Changed) -> Option<(&str, Head)> {
    let prefix = std::str::from_utf8(&change.key).ok()?.strip_suffix("head")?;
    prefix.strip_prefix("group/")?;
    Some((prefix, Head::read(&change.entry.as_ref()?.value).ok()?))
}

/// Returns the name of a group and a flag, if the change concerns the row with the name of a group; otherwise `None`.
/// The flag is true if the change wrote the row, and false if it deleted the row.
fn name(change: &Changed) -> Option<(&str, bool)> {
    let name = std::str::from_utf8(&change.key).ok()?.strip_prefix(NAMES)?;
    Some((name, change.entry.is_some()))
}

/// Returns the changes that one revision made in a group.
fn changes(revision: &[Changed], prefix: &str, head: &Head) -> Vec<GroupHappened> {
    // The members have separate rows now, and are otherwise the same.
    let is_separation =
        |change: &Changed| matches!(Row::of(&change.key, prefix), Some(Row::Joined(_))) && change.entry.is_none();
    if revision.iter().any(is_separation) {
        return Vec::new();
    }
    let group = || head.name.clone();
    let mut happened = Vec::new();
    let mut begins_epoch = true;
    for Changed { key, entry, .. } in revision {
        match (Row::of(key, prefix), entry) {
            (Some(Row::Member(name)), None) => {
                happened.push(GroupHappened::Left { group: group(), name: name.to_owned() });
            }
            (Some(Row::Member(name)), Some(entry)) => {
                let Ok(member) = rows::read(&entry.value) else { continue };
                happened.push(GroupHappened::Admitted { group: group(), name: name.to_owned(), member });
            }
            (Some(Row::Joined(_)), Some(entry)) => {
                let members = rows::read_joined(&entry.value).unwrap_or_default().into_iter();
                happened.extend(members.map(|(name, member)| GroupHappened::Admitted { group: group(), name, member }));
            }
            // A controller gets its SenderID within an epoch.
            (Some(Row::Replica(_)), Some(_)) => begins_epoch = false,
            _ => {}
        }
    }
    if begins_epoch {
        let epochs_left = head.config.last_epoch.saturating_sub(head.begun.epoch);
        happened.push(GroupHappened::Epoch { group: group(), epoch: head.begun.epoch, epochs_left });
    }
    happened
}
