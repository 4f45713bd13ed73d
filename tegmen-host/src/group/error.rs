//! The reasons why a membership cannot be used.

use super::GroupError;
use crate::cbor::Malformed;
use std::io;
use tegmen::axiom::BadAssociation;

/// The reason why the membership in a directory cannot be used. The text of each error proposes a remedy.
#[derive(Debug, thiserror::Error)]
pub enum MembershipError {
    /// A file cannot be read or written.
    #[error("{file}: {source}: {}", next_step(source))]
    File {
        /// The path of the file.
        file: String,
        /// The error of the system.
        source: io::Error,
    },
    /// Other users of this machine can read the secrets.
    #[error("{file}: others may read it (mode {mode:03o}), and it holds secrets: chmod 600 {file}")]
    Exposed {
        /// The path of the file.
        file: String,
        /// The permission bits of the file.
        mode: u32,
    },
    /// The file is not the file of a membership.
    #[error("{file}: {why}: {JOIN_AGAIN}")]
    Syntax {
        /// The path of the file.
        file: String,
        /// The fault of the text, or of the keys in it.
        why: String,
    },
    /// Another process uses the membership.
    #[error(
        "{dir}: another process uses this membership; end that process first, because two processes would use the same nonces"
    )]
    InUse {
        /// The directory.
        dir: String,
    },
    /// The sequence numbers of records cannot be trusted: the directory is a copy, or its file `numbers.toml` is lost.
    #[error("{dir}: {why}; the member could repeat nonces. {JOIN_AGAIN}")]
    Numbers {
        /// The directory.
        dir: String,
        /// The error in the file `numbers.toml`, or the reason why this file is not trusted.
        why: String,
    },
    /// This program cannot be a member with the parameters of the controller.
    #[error("the parameters of the group {group} cannot be used here: {}", of_association(*why))]
    Association {
        /// The name of the group.
        group: String,
        /// The part of the parameters that cannot be used.
        why: BadAssociation,
    },
    /// The controller gave parameters that belong to another group than the stored parameters.
    #[error(
        "the controller has another group {group} now: it was created again, and this member is not in it. Join it with \
         another directory, or remove this one first"
    )]
    OtherGroup {
        /// The name of the group.
        group: String,
    },
    /// The controller gave parameters that are older than the stored parameters.
    #[error(
        "the controller is in epoch {theirs} of the group {group}, and this member was in epoch {ours}: the store of the \
         controller is an old copy, and its operator has to create the group again"
    )]
    OldController {
        /// The name of the group.
        group: String,
        /// The number of the newest epoch that the member has used.
        ours: u16,
        /// The number of the epoch that the controller gave.
        theirs: u16,
    },
    /// The controller has admitted this member once more after it gave the keys in this directory. So another directory
    /// or program also has keys of this member.
    #[error(
        "the controller has admitted this member of the group {group} again, so another directory or program has its keys, and \
         two programs with these keys would use the same nonces: end the other program and join again, or give each its own credentials"
    )]
    AdmittedAgain {
        /// The name of the group.
        group: String,
    },
    /// The member has no private key of the kind with which the members of the group sign their records.
    #[error(
        "the records of the group {group} have signatures, and this member has no private key for them: let the device join by          itself, over a session with the controller (`tegmen group join URI`)"
    )]
    NoPrivateKey {
        /// The name of the group.
        group: String,
    },
    /// A server cannot distinguish two of its groups: they have the same address, or the same GroupID and the same
    /// port.
    #[error(
        "a server cannot be a member of both groups {one} and {other}: they have the same address, or the same GroupID \
         and port. Let the operator create one of them again, with another address and without --group-id"
    )]
    Alike {
        /// The name of the first group.
        one: String,
        /// The name of the second group.
        other: String,
    },
    /// The network interface of the group does not exist.
    #[error(transparent)]
    Interface(#[from] GroupError),
}

const JOIN_AGAIN: &str = "Join the group again (`tegmen group join`): the controller then gives the member new secrets";

/// Proposes a remedy to a user whose system refuses access to a file of a membership.
fn next_step(refusal: &io::Error) -> &'static str {
    match refusal.kind() {
        io::ErrorKind::NotFound => "join a group with `tegmen group join`, or correct the path",
        _ => "correct the path, or the permissions there",
    }
}

/// Returns the reason why the parameters are not suitable for a member, and a remedy.
const fn of_association(why: BadAssociation) -> &'static str {
    match why {
        BadAssociation::Suite => {
            "this host does not have the suite of the group, or the path of keys does not fit the leaf; create the group with \
             the suite ccm, ccm-8 or gcm"
        }
        BadAssociation::Epoch => "they are of an epoch that is over; ask the controller again",
        BadAssociation::Admission => "they are of another admission of the member; join again",
    }
}

impl MembershipError {
    pub(super) fn syntax(file: &std::path::Path, why: impl ToString) -> Self {
        Self::Syntax { file: file.display().to_string(), why: why.to_string() }
    }

    pub(super) fn keys(file: &std::path::Path, why: Malformed) -> Self {
        Self::syntax(file, format!("keys: {why}"))
    }
}
