//! Pre-shared keys from a source other than the credentials file.

use zeroize::Zeroizing;

/// A key that a [`KeyStore`] found.
pub struct StoredKey {
    /// The name that identifies the owner in place of the PSK identity. Set it for an owner that has another PSK
    /// identity in each session, so that all these identities count as one owner. `None` uses the PSK identity. The
    /// sessions of an owner with a name are not restored after a restart of the server, because the server does not
    /// store which key they had.
    pub name: Option<String>,
    /// The pre-shared key, 1 to 64 bytes.
    pub key: Zeroizing<Vec<u8>>,
    /// The previous key, with which the owner is still accepted while the key is replaced; `None` if there is none. A
    /// session that the owner opened with this key counts as a session with the current key.
    pub previous: Option<Zeroizing<Vec<u8>>>,
    /// The rights of the owner, as in the credentials file: `"GET /sensors/*"`. `None` allows everything. A rule that
    /// does not parse allows nothing.
    pub allow: Option<Vec<String>>,
}

/// A source of keys other than a file: a database, or another server.
pub trait KeyStore: Send + Sync + 'static {
    /// Looks for the key of an identity. This function must return at once. The key store answers later with
    /// [`KeyTicket::answer`] of `ticket`, from any thread. Without an answer, the handshake fails after a time limit.
    ///
    /// A server that stores its sessions also calls this function after a restart, once for each stored session whose
    /// key came from a key store. The session continues only if the answer has the key of the session and no
    /// [name](StoredKey::name). The answer `None` ends the session. If a key store finds each key only once, or
    /// keeps its keys only in memory, these sessions end, and the peers open others.
    fn find(&self, identity: &str, ticket: KeyTicket);
}

/// The handle through which a key store answers one search for a key. It can be used only once.
pub struct KeyTicket {
    answer: Box<dyn FnOnce(Option<StoredKey>) + Send>,
}

impl KeyTicket {
    /// Returns the handle for one search for a key. The method [`Self::answer`] of the handle calls the closure
    /// `answer` with the found key, on the thread of the key store.
    pub fn new(answer: impl FnOnce(Option<StoredKey>) + Send + 'static) -> Self {
        Self { answer: Box::new(answer) }
    }

    /// Answers with the key, or with `None` if there is no key for this identity. The peer cannot find out whether
    /// there is a key. It also does not learn how long the search took, because the server uses answers only at fixed
    /// times.
    pub fn answer(self, found: Option<StoredKey>) {
        (self.answer)(found);
    }
}
