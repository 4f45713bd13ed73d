//! A resource server as a part of `tegmen serve`. It uses the OSCORE profile of ACE.

use super::config_file::Mistake;
use super::contexts::ServedContexts;
use super::options::ResourceServer;
use crate::files::read_secret;
use crate::log::{Level, Log};
use crate::output::{Failure, printable};
use serde_json::json;
use std::path::Path;
use tegmen::secret::Secret;
use tegmen_control::access::ace::cwt::LONG_KEY_LEN;
use tegmen_control::access::protokey::MAX_PUBLISHER;
use tegmen_control::resource_server::{RevocationEvent, TokenSettings, Tokens};
use tegmen_host::credentials::Credentials;
use tegmen_host::hex::from_hex;
use tegmen_host::uri::{Scheme, Uri};
use tokio::task::JoinSet;

impl ResourceServer {
    /// Returns all mistakes in the settings of the resource server. `is_plain` is true for a server that serves
    /// unprotected requests.
    pub(super) fn mistakes(&self, is_plain: bool) -> Vec<Mistake> {
        let mut mistakes = Vec::new();
        let Some(name) = &self.resource_server else {
            let given = [
                ("token-key", self.token_key.is_some()),
                ("access-server", self.access_server.is_some()),
                ("revocations", self.revocations.is_some()),
            ];
            let given = given.into_iter().filter(|(_, is_given)| *is_given);
            mistakes.extend(given.map(|(key, _)| Mistake::new(key, "it needs --resource-server")));
            return mistakes;
        };
        if !(1..=MAX_PUBLISHER).contains(&name.len()) {
            mistakes.push(Mistake::new("resource-server", format!("a name has 1 to {MAX_PUBLISHER} bytes")));
        }
        match self.token_key.as_deref().map(token_key) {
            None => mistakes.push(Mistake::new("resource-server", "it needs --token-key")),
            Some(key) => mistakes.extend(key.err().map(|why| Mistake::new("token-key", why))),
        }
        mistakes.extend(self.list_server().err().map(|why| Mistake::new("revocations", why)));
        if is_plain && self.access_server.is_some() {
            mistakes.push(Mistake::new(
                "access-server",
                "a server with --plain serves clients without a token: leave it out",
            ));
        }
        mistakes
    }

    /// Opens the resource server, and logs its name and its limit of tokens. Returns `None` if the options configure no
    /// resource server. `contexts` are the OSCORE contexts of the server.
    pub(super) fn open(
        &self,
        credentials: &Credentials,
        contexts: &mut ServedContexts,
        log: &Log,
    ) -> Result<Option<Tokens>, Failure> {
        let (Some(name), Some(key)) = (&self.resource_server, &self.token_key) else { return Ok(None) };
        let settings = TokenSettings {
            name: name.clone(),
            key: token_key(key).map_err(Failure::usage)?,
            most: self.tokens_max as usize,
            hints: self.access_server.clone(),
        };
        let tokens = Tokens::new(settings, credentials.clone(), contexts.agreed()).map_err(Failure::io)?;
        contexts.accept_tokens(&tokens);
        log.always(
            || printable(&format!("resource server {name}: takes tokens at /authz-info, {} at most", self.tokens_max)),
            || json!({ "event": "resource_server", "name": name, "tokens": self.tokens_max }),
        );
        Ok(Some(tokens))
    }

    /// Returns the URI of the access control server that has the list of revoked tokens; `None` if the options name no
    /// such server. The error is a text for the operator.
    fn list_server(&self) -> Result<Option<Uri>, String> {
        let Some(text) = &self.revocations else { return Ok(None) };
        let uri = Uri::parse(text).map_err(|error| error.to_string())?;
        if uri.scheme == Scheme::Coaps && uri.path.is_empty() && uri.query.is_empty() {
            Ok(Some(uri))
        } else {
            Err(format!("{text}: name the access control server alone, as coaps://host[:port]"))
        }
    }

    /// Starts a task that reads the list of revoked tokens, if the options name a server for this list. The task runs
    /// on the runtime until the returned value is dropped.
    pub(super) fn start(&self, tokens: Option<&Tokens>, log: &Log) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        // The settings were checked before.
        if let (Ok(Some(uri)), Some(tokens)) = (self.list_server(), tokens) {
            let (tokens, log) = (tokens.clone(), log.clone());
            let report = move |event: RevocationEvent<'_>| {
                match event {
                RevocationEvent::Read { revoked, ended } => log.event(
                    Level::Info,
                    || printable(&format!("revoked tokens: {revoked} on the list, {ended} of them end here")),
                    || json!({ "event": "revocations", "revoked": revoked, "ended": ended }),
                ),
                RevocationEvent::Refused(code) => log.event(
                    Level::Warn,
                    || printable(&format!("the access control server refuses the list of revoked tokens ({code}): is this resource server enabled there?")),
                    || json!({ "event": "revocations", "error": code.to_string() }),
                ),
                RevocationEvent::Failed(why, pause) => log.event(
                    Level::Warn,
                    || {
                        printable(&format!(
                            "the list of revoked tokens cannot be read: {why}; another attempt in {} s",
                            pause.as_secs()
                        ))
                    },
                    || json!({ "event": "revocations", "error": why.to_string() }),
                ),
            }
            };
            tasks.spawn(async move { tokens.follow_revocations(&uri, report).await });
        }
        tasks
    }
}

/// Reads from a file the key under which tokens are sealed. The error is the reason why the key cannot be read.
fn token_key(file: &Path) -> Result<Secret<LONG_KEY_LEN>, String> {
    let text = read_secret(file)?;
    let bytes = from_hex(&text).map(zeroize::Zeroizing::new);
    let key = bytes.and_then(|bytes| <[u8; LONG_KEY_LEN]>::try_from(bytes.as_slice()).ok());
    let key = key.ok_or_else(|| {
        format!("{}: a key for tokens has 64 hexadecimal digits (openssl rand -hex 32)", file.display())
    })?;
    Ok(Secret::new(key))
}
