//! Pre-shared keys from a source other than the credentials file.

use zeroize::Zeroizing;

/// A key that a [`KeyStore`] found.
pub struct StoredKey {
    /// The name that identifies requests of the owner, in place of the PSK identity. Use it for an owner that has
    /// another identity in each session, so that all these identities are one owner.
    pub name: Option<String>,
    /// The pre-shared key, 1 to 64 bytes.
    pub key: Zeroizing<Vec<u8>>,
    /// The previous key. The owner is still accepted with it while the key is replaced.
    pub previous: Option<Zeroizing<Vec<u8>>>,
    /// The rights of the owner, as in the credentials file: `"GET /sensors/*"`. `None` allows everything. A rule that
    /// does not parse allows nothing.
    pub allow: Option<Vec<String>>,
}

/// A source of keys other than a file: a database, or another server.
pub trait KeyStore: Send + Sync + 'static {
    /// Looks for the key of an identity. It must return at once. The answer goes to the ticket later, from any
    /// thread. Without an answer, the handshake fails after a time limit.
    fn find(&self, identity: &str, ticket: KeyTicket);
}

/// The right to answer one question for a key, once.
pub struct KeyTicket {
    answer: Box<dyn FnOnce(Option<StoredKey>) + Send>,
}

impl KeyTicket {
    /// Returns a ticket that passes its answer to the function `answer`, on the thread that answers.
    pub fn new(answer: impl FnOnce(Option<StoredKey>) + Send + 'static) -> Self {
        Self { answer: Box::new(answer) }
    }

    /// Answers with the key, or with `None` if there is no key for this identity. The peer cannot distinguish the two
    /// answers. It also does not learn how long the search took, because answers take effect at fixed times.
    pub fn answer(self, found: Option<StoredKey>) {
        (self.answer)(found);
    }
}
