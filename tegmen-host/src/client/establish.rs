//! The session of a client: its handshake, resumed or in full.

use super::again::{self, Memory, Offer};
use super::{Client, ClientConfig, ClientError, Role, Table};
use crate::clock;
use crate::provider::HostCrypto;
use crate::public_keys::PublicKeys;
use std::io;
use std::time::Duration;
use tegmen::coap::Exchanges;
use tegmen::counters::Counters;
use tegmen::crypto::Crypto as _;
use tegmen::dtls::Config;
use tegmen::dtls::resumption::Handle;
use tegmen::endpoint::{ClientOnly, Cx, Endpoint, Extended, PeerId, Peers as _, Resuming};

pub(super) fn no_room() -> ClientError {
    ClientError::System(io::Error::other("no room for a peer"))
}

/// An endpoint without peers.
pub(super) fn new_endpoint(
    crypto: &mut HostCrypto,
    counters: &mut Counters,
    config: &ClientConfig,
    dtls: Config,
) -> Endpoint<Table, Role> {
    let keys = config.public_keys.clone().unwrap_or_else(|| PublicKeys::new(dtls.suites));
    let role = Resuming { role: ClientOnly, sessions: again::Takes(config.resume.is_some()) };
    let role = tegmen::endpoint::PublicKeys { role: Extended::with(role, &dtls), keys };
    Endpoint::with_roles(&mut Cx { now: clock::now(), crypto, counters }, Table::new(), dtls, role)
}

impl Client {
    /// Talks to `peer` of the endpoint from now on.
    pub(super) fn talk_to(&mut self, peer: PeerId) {
        self.peer = peer;
        let mut first_id = [0; 2];
        self.crypto.random(&mut first_id);
        if let Some(exchanges) = self.endpoint.peers.attached(peer) {
            **exchanges = Exchanges::new(u16::from_ne_bytes(first_id));
        }
    }

    /// Begins a session, with a resumed handshake if there is something to resume.
    pub(super) async fn establish(&mut self, timeout: Duration) -> Result<(), ClientError> {
        let offer = self.memory.as_ref().and_then(Memory::offer);
        self.hello(offer.as_ref(), timeout)?;
        self.handshake(timeout).await
    }

    /// Sends a ClientHello from a new endpoint. Nothing of the session before is left.
    fn hello(&mut self, offer: Option<&Offer>, handshake_timeout: Duration) -> Result<(), ClientError> {
        let dtls = Config { handshake_timeout, ..self.config.dtls };
        self.endpoint = new_endpoint(&mut self.crypto, &mut self.counters, &self.config, dtls);
        let mut cx = Cx { now: clock::now(), crypto: &mut self.crypto, counters: &mut self.counters };
        let connected = match offer {
            Some((session, true, ticket)) => {
                self.endpoint.connect_again(&mut cx, &self.path, session, Handle::Ticket(ticket))
            }
            Some((session, false, id)) => self.endpoint.connect_again(&mut cx, &self.path, session, Handle::Id(id)),
            None => self.endpoint.connect(&mut cx, &self.path),
        };
        self.talk_to(connected.map_err(|_| no_room())?);
        (self.established, self.closed, self.refusal) = (false, None, None);
        self.unread.clear();
        if let Some(objects) = &mut self.objects {
            objects.forget_all();
        }
        Ok(())
    }
}
