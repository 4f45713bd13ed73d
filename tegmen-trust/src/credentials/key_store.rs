//! Pre-shared keys from a source other than the credentials file.

use zeroize::Zeroizing;

/// A key that a [`KeyStore`] found.
pub struct StoredKey {
    /// The name by which requests of the owner are known, in place of the PSK identity: for an owner with another identity in each
    /// session, which all of them together are one owner.
    pub name: Option<String>,
    /// The pre-shared key, 1 to 64 bytes.
    pub key: Zeroizing<Vec<u8>>,
    /// The key before it, with which the owner is still accepted while the key is replaced.
    pub previous: Option<Zeroizing<Vec<u8>>>,
    /// The rights of the owner, as in the credentials file: `"GET /sensors/*"`. `None` allows everything. A rule that
    /// does not parse allows nothing.
    pub allow: Option<Vec<String>>,
}

/// A source of keys other than a file: a database, or another server.
pub trait KeyStore: Send + Sync + 'static {
    /// Looks for the key of an identity. It must return at once; the answer goes to the ticket, from any thread. If there
    /// never is one, the handshake is given up in time.
    fn find(&self, identity: &str, ticket: KeyTicket);
}

/// The right to answer one question for a key, once.
pub struct KeyTicket {
    answer: Box<dyn FnOnce(Option<StoredKey>) + Send>,
}

impl KeyTicket {
    /// Returns a ticket that passes its answer to `answer`, on the thread that answers.
    pub fn new(answer: impl FnOnce(Option<StoredKey>) + Send + 'static) -> Self {
        Self { answer: Box::new(answer) }
    }

    /// Answers: the key, or that there is none for this identity. The peer sees no difference between the two, nor how
    /// long it took to find out: answers are acted upon at fixed times.
    pub fn answer(self, found: Option<StoredKey>) {
        (self.answer)(found);
    }
}
