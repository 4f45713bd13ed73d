//! The session keys that are derived from protokeys (the crate `tegmen-protokey`), and the session identities that were
//! accepted.

mod accepted;

pub use accepted::{Accepted, AcceptedBounds, AcceptedIdentity, NotAccepted};
pub use tegmen_protokey::{
    MAX_IDENTITY, MAX_PUBLISHER, Mode, NONCE_LEN, Protokey, Publisher, SessionIdentity, WrongHint,
};

#[cfg(test)]
mod tests;
