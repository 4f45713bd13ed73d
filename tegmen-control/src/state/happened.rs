//! Events for an operator who watches the changes of the state.

use super::device::{Device, Known};
use super::rows::{self, AcceptedSession, PolicyHead, Revocation, Row};
use crate::access::ace::trl::TokenHash;
use tegmen_store::store::Changed;

/// A change of the state, for an operator who watches the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Happened {
    /// A device was added.
    DeviceAdded(Device),
    /// A device was changed. The value is the device after the change.
    DeviceChanged(Device),
    /// The device of this name was removed.
    DeviceRemoved(String),
    /// A policy was applied.
    PolicyApplied {
        /// The name of the policy's file.
        file: String,
        /// The operator who applied the policy.
        by: String,
        /// The time at which the policy was applied, in seconds since 1970.
        at: u64,
    },
    /// A session identity was accepted.
    SessionAccepted {
        /// The session identity.
        identity: String,
        /// The subscriber that received the key.
        subscriber: String,
        /// The time until which the identity is remembered, in seconds since 1970.
        until: u64,
    },
    /// A token was revoked.
    TokenRevoked {
        /// The hash of the token.
        hash: TokenHash,
        /// The time at which the token expires, in seconds since 1970.
        expires: u64,
        /// The devices that the token concerns.
        concerned: Vec<String>,
    },
    /// A revoked token expired, and was removed from the revocation list.
    RevocationExpired(TokenHash),
}

impl Happened {
    /// Returns the events that belong to the change of a row. A row with many session identities gives several events.
    /// A row of another kind, or a row that cannot be read, gives no event.
    pub fn of(change: &Changed) -> Vec<Self> {
        if let (Some(Row::Sessions(_)), Some(entry)) = (Row::of(&change.key), &change.entry) {
            let sessions = rows::plain(&entry.value).and_then(rows::read_sessions).unwrap_or_default();
            return sessions.into_iter().map(Self::accepted).collect();
        }
        Self::one(change).into_iter().collect()
    }

    fn accepted(session: AcceptedSession) -> Self {
        let AcceptedSession { identity, subscriber, until, .. } = session;
        Self::SessionAccepted { identity, subscriber, until }
    }

    fn one(change: &Changed) -> Option<Self> {
        let row = Row::of(&change.key)?;
        let Some(entry) = &change.entry else {
            return match row {
                Row::Device(name) => Some(Self::DeviceRemoved(name.to_owned())),
                Row::Revoked(hash) => Some(Self::RevocationExpired(hash)),
                _ => None,
            };
        };
        Some(match row {
            Row::Device(name) => {
                let device = Known::read(name, entry).ok()?.device;
                match entry.created == change.revision {
                    true => Self::DeviceAdded(device),
                    false => Self::DeviceChanged(device),
                }
            }
            Row::Policy => {
                let PolicyHead { file, by, at, .. } = rows::read(&entry.value).ok()?;
                Self::PolicyApplied { file, by, at }
            }
            Row::Session(identity) => Self::accepted(rows::read_session(identity, &entry.value).ok()?),
            Row::Revoked(hash) => {
                let Revocation { expires, concerned } = rows::read(&entry.value).ok()?;
                Self::TokenRevoked { hash, expires, concerned }
            }
            Row::Digest(_) | Row::Part(_) | Row::Enrolment(_) | Row::Sessions(_) => return None,
        })
    }
}
