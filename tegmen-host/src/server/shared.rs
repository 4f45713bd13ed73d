//! The values of a server that all its shards share.

use super::authorization::AnyPolicy;
use super::bodies::Ledger;
use super::cid_routing::Passed;
use super::event::EventSink;
use super::limits::Gate;
use super::notifier::Notifier;
use super::{Event, Listen, Offers, ServerConfig, StartError};
use crate::credentials::Credentials;
use crate::prefix::Shares;
use crate::provider::HostCrypto;
use crate::public_keys::PublicKeys;
use crate::resumption::ServerResumption;
use crate::slab::Capacity;
use crate::state::Sessions;
use std::sync::Arc;
use tegmen::dtls::Config;
use tokio::sync::{mpsc, watch};

pub(super) struct Shared<'a, A> {
    pub(super) config: &'a ServerConfig,
    pub(super) credentials: &'a Credentials,
    pub(super) policy: AnyPolicy,
    pub(super) application: A,
    pub(super) events: EventSink,
    /// The addresses at which the server listens, with the actual port numbers.
    pub(super) addresses: Vec<Listen>,
    pub(super) notifier: Notifier,
    pub(super) sessions: Option<Arc<Sessions>>,
    pub(super) keys: PublicKeys,
    pub(super) resumption: ServerResumption,
    pub(super) gate: Arc<Gate>,
    /// The group observations that the server can start.
    pub(super) offers: Arc<Offers>,
    /// The ledger, which counts the bytes that bodies of requests and responses take in memory.
    pub(super) bodies: Arc<Ledger>,
    /// The number of shards that may still have a request to answer: see [`Answering`](super::ending::Answering).
    pub(super) answering: watch::Sender<usize>,
    /// The queues of datagrams that one shard passes to another.
    pub(super) to_shards: Vec<mpsc::Sender<Passed>>,
    /// The number of datagrams of each network prefix in the queues of `to_shards`.
    pub(super) waiting: Arc<Shares>,
}

impl<'a, A> Shared<'a, A> {
    /// Opens the database of sessions and the ticket keys, if the settings name them.
    ///
    /// # Errors
    /// [`StartError`] if the database or the ticket keys cannot be used.
    pub(super) fn new(
        config: &'a ServerConfig,
        (credentials, policy): (&'a Credentials, AnyPolicy),
        (application, events): (A, EventSink),
        (addresses, to_shards): (Vec<Listen>, Vec<mpsc::Sender<Passed>>),
        notifier: Notifier,
    ) -> Result<Self, StartError> {
        let sessions =
            config.state.clone().map(|state| Sessions::open(state, config.sessions.capacity.peers)).transpose()?;
        let keys = config.trust.public_keys.clone().unwrap_or_else(|| PublicKeys::new(config.dtls.suites));
        let resumption = match &config.resumption {
            None => ServerResumption::none(),
            Some(wanted) => {
                let crypto = &mut HostCrypto::from_os().map_err(StartError::System)?;
                ServerResumption::new(crypto, wanted, credentials, &keys, config.trust.key_store.is_some())?
            }
        };
        for membership in &config.memberships {
            let name = format!("group {}", membership.name());
            membership.set_principal(credentials.learn(&name, membership.settings().allow.as_deref()));
            let events = events.clone();
            membership.on_event(Arc::new(move |group, news| events(Event::Member { group: group.to_owned(), news })));
        }
        let policy = if config.edhoc.is_some() { policy.with_edhoc() } else { policy };
        let offers = Arc::new(Offers::new(config, &addresses)?);
        Ok(Self {
            config,
            credentials,
            policy,
            application,
            events,
            addresses,
            notifier,
            sessions: sessions.map(Arc::new),
            keys,
            resumption: resumption.with_devices(config.delegate.clone(), credentials),
            gate: Arc::new(Gate::new(config.sessions.hellos)),
            offers,
            bodies: Ledger::new(config.coap.max_bodies),
            answering: watch::Sender::new(0),
            to_shards,
            waiting: Arc::new(Shares::new()),
        })
    }

    /// Returns the number of shards.
    pub(super) fn shards(&self) -> usize {
        self.to_shards.len()
    }

    /// Returns a new crypto provider for a shard, with the key log of the settings.
    ///
    /// # Errors
    /// [`StartError::System`] if there is no randomness, [`StartError::KeyLog`] if the key log cannot be written.
    pub(super) fn crypto(&self) -> Result<HostCrypto, StartError> {
        let mut crypto = HostCrypto::from_os().map_err(StartError::System)?;
        if let Some(file) = &self.config.log.key_log {
            let source = |source| StartError::KeyLog { file: file.display().to_string(), source };
            crypto.log_keys_to(file).map_err(source)?;
        }
        Ok(crypto)
    }

    /// Returns the maximum numbers of peers and handshakes of one shard.
    pub(super) fn capacity(&self) -> Capacity {
        Capacity {
            peers: self.config.sessions.capacity.peers.div_ceil(self.shards()),
            handshakes: self.config.sessions.capacity.handshakes.div_ceil(self.shards()),
        }
    }

    /// Returns the DTLS settings of shard `number`, whose connection ids contain this number.
    pub(super) fn dtls(&self, number: usize) -> Config {
        let mut dtls = self.config.dtls;
        if let Some(policy) = &mut dtls.connection_id {
            policy.shard = number as u8;
            policy.len = if self.shards() > 256 { 0 } else { policy.len };
        }
        dtls
    }
}
