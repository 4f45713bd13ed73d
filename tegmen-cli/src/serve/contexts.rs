//! EDHOC, and the discovery of a server by its OSCORE contexts, as parts of `tegmen serve`.

use super::config_file::Mistake;
use super::options::Keys;
use crate::output::Failure;
use tegmen::identity::Principal;
use tegmen_control::resource_server::Tokens;
use tegmen_host::contexts::{AgreedContexts, Contexts, FollowedMember};
use tegmen_host::credentials::Credentials;
use tegmen_host::edhoc::{EdhocError, EdhocPeer, EdhocServer, read_key, read_peers};
use tegmen_host::group::Group;
use tegmen_host::resources::ListedPath;
use tegmen_host::server::ServerConfig;
use tegmen_host::state::Database;

/// The OSCORE contexts of a server, the EDHOC responder that makes further contexts, and the multicast groups in which
/// clients look for the server.
pub(super) struct ServedContexts {
    contexts: Contexts,
    edhoc: Option<EdhocServer>,
    groups: Vec<Group>,
}

impl ServedContexts {
    /// Returns the number of contexts that were loaded from files.
    pub(super) fn len(&self) -> usize {
        self.contexts.len()
    }

    /// Returns the contexts of groups.
    pub(super) fn members(&self) -> Vec<FollowedMember> {
        self.contexts.members().to_vec()
    }

    /// Returns the EDHOC responder, if the server has one.
    pub(super) fn edhoc(&self) -> Option<EdhocServer> {
        self.edhoc.clone()
    }

    /// Returns the store of the contexts that EDHOC makes while the server runs.
    pub(super) fn agreed(&mut self) -> AgreedContexts {
        match &self.edhoc {
            Some(edhoc) => edhoc.contexts(),
            None => {
                let agreed = AgreedContexts::default();
                self.contexts = std::mem::take(&mut self.contexts).with_agreed(agreed.clone());
                agreed
            }
        }
    }

    /// Lets the clients of a resource server run EDHOC, if the server has an EDHOC responder.
    pub(super) fn accept_tokens(&self, tokens: &Tokens) {
        if let Some(edhoc) = &self.edhoc {
            tokens.accept_edhoc(edhoc);
        }
    }

    /// Adds the contexts, the responder and the multicast groups to the settings of the server.
    pub(super) fn configure(self, config: &mut ServerConfig) {
        (config.oscore, config.edhoc) = (self.contexts, self.edhoc);
        config.groups.extend(self.groups);
    }
}

impl Keys {
    /// Opens the contexts, the EDHOC responder, and the multicast groups for discovery.
    pub(super) fn open_contexts(
        &self,
        state: Option<&Database>,
        credentials: &Credentials,
    ) -> Result<ServedContexts, Failure> {
        let learn = |name: &str, allow: Option<&[String]>| credentials.learn(name, allow);
        let contexts = Contexts::open_in(&self.oscore, state, learn).map_err(Failure::usage)?;
        let groups = self.discovery_groups(&contexts)?;
        Ok(ServedContexts { contexts, edhoc: self.edhoc_server(learn)?, groups })
    }

    /// Returns the multicast groups for discovery. A client that has one of the OSCORE contexts sends a request to
    /// such a group to find the server.
    fn discovery_groups(&self, contexts: &Contexts) -> Result<Vec<Group>, Failure> {
        let addresses = contexts.discovery_addresses();
        let pairs = self.oscore_discovery.iter().flat_map(|interface| addresses.iter().map(move |at| (at, interface)));
        let groups = pairs.map(|(address, interface)| format!("{address}%{interface}").parse());
        groups.collect::<Result<_, _>>().map_err(|error| Failure::usage(format!("--oscore-discovery: {error}")))
    }

    /// Returns all mistakes in the files of EDHOC. `has_tokens` is true for a resource server. Its clients need no
    /// entry in a file, because they present tokens.
    pub(super) fn edhoc_mistakes(&self, has_tokens: bool) -> Vec<Mistake> {
        if self.edhoc.is_some() && self.edhoc_clients.is_none() && !has_tokens {
            return vec![Mistake::new("edhoc", "it needs --edhoc-clients, or --resource-server")];
        }
        let key = self.edhoc.as_deref().and_then(|file| read_key(file).err());
        let clients = self.edhoc_peers().err();
        let key = key.map(|error| Mistake::new("edhoc", error.to_string()));
        key.into_iter().chain(clients.map(|error| Mistake::new("edhoc-clients", error.to_string()))).collect()
    }

    /// Returns the path of EDHOC, for `/.well-known/core` (RFC 9668, section 6).
    pub(super) fn edhoc_paths(&self) -> Vec<ListedPath> {
        let listed = || ListedPath {
            path: EdhocServer::PATH.to_owned(),
            resource_type: "core.edhoc",
            content_format: None,
            observable: false,
        };
        self.edhoc.iter().map(|_| listed()).collect()
    }

    /// Reads the file of EDHOC clients. Returns no clients if the options name no file.
    pub(super) fn edhoc_peers(&self) -> Result<Vec<EdhocPeer>, EdhocError> {
        self.edhoc_clients.as_deref().map_or_else(|| Ok(Vec::new()), read_peers)
    }

    /// Returns the responder of EDHOC; `None` if no key is given. `learn` receives the name and the rights of each
    /// client in the file of clients.
    fn edhoc_server(
        &self,
        learn: impl FnMut(&str, Option<&[String]>) -> Principal,
    ) -> Result<Option<EdhocServer>, Failure> {
        let Some(key) = &self.edhoc else { return Ok(None) };
        let identity = read_key(key).map_err(Failure::usage)?;
        let peers = self.edhoc_peers().map_err(Failure::usage)?;
        EdhocServer::new(identity, peers, learn).map(Some).map_err(Failure::io)
    }
}
