//! The crypto provider of hosts.

use std::io::{self, Write};
use tegmen::crypto::rustcrypto::RustCrypto;
use tegmen::crypto::{Crypto, NotAuthentic, Unsupported};

/// The default provider with a seed from the operating system, and a key log if one is asked for.
pub struct HostCrypto {
    inner: RustCrypto,
    key_log: Option<Box<dyn Write + Send>>,
}

impl HostCrypto {
    /// Seeds the generator from the operating system.
    ///
    /// # Errors
    /// What the system says, if it gives no randomness.
    pub fn from_os() -> io::Result<Self> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Self { inner: RustCrypto::new(seed), key_log: None })
    }

    /// Writes secrets to a key log (RFC 9850).
    pub fn set_key_log(&mut self, log: Box<dyn Write + Send>) {
        self.key_log = Some(log);
    }
}

impl Crypto for HostCrypto {
    fn ccm_seal(
        &mut self,
        key: &[u8; 16],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Unsupported> {
        self.inner.ccm_seal(key, nonce, aad, body, tag)
    }

    fn ccm_open(
        &mut self,
        key: &[u8; 16],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), NotAuthentic> {
        self.inner.ccm_open(key, nonce, aad, body, tag)
    }

    fn sha256_compress(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
        RustCrypto::sha256_compress(state, blocks);
    }

    fn random(&mut self, out: &mut [u8]) {
        self.inner.random(out);
    }

    fn key_log(&mut self, client_random: &[u8; 32], master_secret: &[u8; 48]) {
        if let Some(log) = &mut self.key_log {
            let hex = crate::credentials::to_hex;
            let _ = writeln!(log, "CLIENT_RANDOM {} {}", hex(client_random), hex(master_secret));
        }
    }
}
