//! Client, server, or both: types, so that an image links no code for what it never is.

use super::mobility::Mobility;
#[cfg(doc)]
use crate::dtls::connection_id;
use crate::dtls::record_size;
use crate::dtls::{Config, Profile};

/// Which roles an endpoint takes. A type, so that an image links no code for a role that it never has.
pub trait Roles {
    /// It opens handshakes.
    const CLIENT: bool;
    /// It answers them.
    const SERVER: bool;
    /// It takes in sessions that were kept outside ([`crate::dtls::session`]).
    const RESTORES: bool = false;
    /// It speaks of the size of records ([`record_size`]).
    const RECORD_SIZE: bool = false;

    /// It speaks of connection ids ([`connection_id`]), and so of return routability.
    const CONNECTION_ID: bool = false;

    /// The role under these settings.
    fn new(config: &Config) -> Self;

    /// The longest content of a record that is taken, in bytes; 0 if that is not said to anybody.
    fn record_size_limit(&self) -> u16 {
        0
    }

    /// How connection ids are used, and what is remembered of that; `None` if they are not.
    fn mobility(&mut self) -> Option<&mut Mobility> {
        None
    }
}

/// Opens handshakes and answers them.
pub struct Both;
/// Opens handshakes; ignores hellos.
pub struct ClientOnly;
/// Answers handshakes; opens none.
pub struct ServerOnly;
/// The role `R` with what a mote does without: extensions that limit the size of records ([`record_size`]), sessions that
/// are kept outside, connection ids ([`connection_id`]).
pub struct Extended<R> {
    role: core::marker::PhantomData<R>,
    record_size_limit: u16,
    mobility: Option<Mobility>,
}

impl Roles for Both {
    const CLIENT: bool = true;
    const SERVER: bool = true;

    fn new(_: &Config) -> Self {
        Self
    }
}

impl Roles for ClientOnly {
    const CLIENT: bool = true;
    const SERVER: bool = false;

    fn new(_: &Config) -> Self {
        Self
    }
}

impl Roles for ServerOnly {
    const CLIENT: bool = false;
    const SERVER: bool = true;

    fn new(_: &Config) -> Self {
        Self
    }
}

impl<R: Roles> Roles for Extended<R> {
    const CLIENT: bool = R::CLIENT;
    const SERVER: bool = R::SERVER;
    const RESTORES: bool = true;
    const RECORD_SIZE: bool = true;
    const CONNECTION_ID: bool = true;

    fn new(config: &Config) -> Self {
        let record_size_limit = match config.record_size_limit {
            0 => 0,
            limit => limit.clamp(record_size::MIN_LIMIT, record_size::MAX_LIMIT),
        };
        let policy = config.connection_id.filter(|_| config.profile == Profile::Default);
        Self { role: core::marker::PhantomData, record_size_limit, mobility: policy.map(Mobility::new) }
    }

    fn mobility(&mut self) -> Option<&mut Mobility> {
        self.mobility.as_mut()
    }

    fn record_size_limit(&self) -> u16 {
        self.record_size_limit
    }
}
