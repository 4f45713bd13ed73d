//! The settings and the roles of an endpoint, in the form in which each of its handshakes uses them.

use super::roles::Roles;
use super::suite::CipherSuite;
use super::{Profile, Settings};
use crate::crypto::Crypto;

/// The settings and the roles of an endpoint, which each of its handshakes uses.
pub(crate) struct HandshakeContext<'l, R> {
    pub(crate) settings: &'l Settings,
    pub(crate) roles: &'l R,
}

impl<R> Clone for HandshakeContext<'_, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R> Copy for HandshakeContext<'_, R> {}

impl<R: Roles> HandshakeContext<'_, R> {
    /// True if the settings and the roles offer the suite, and this endpoint can use it.
    pub(crate) fn offers<C: Crypto>(&self, suite: CipherSuite) -> bool {
        if C::AES_128_GCM.is_none() && !R::PUBLIC_KEYS || self.settings.profile == Profile::Minimal {
            return suite == CipherSuite::PSK_WITH_AES_128_CCM_8;
        }
        self.roles.suites(0).0.contains(&suite) && usable::<C, R>(suite)
    }

    /// True if this endpoint can resume sessions that have this suite.
    pub(crate) fn resumes<C: Crypto>(&self, suite: CipherSuite) -> bool {
        let has_cipher = || suite.parts().is_some_and(|(_, cipher)| cipher.is_in::<C>());
        self.offers::<C>(suite) || R::RESUMED.0.contains(&suite) && has_cipher()
    }
}

/// True if the crypto provider and the role support all algorithms of the suite.
pub(crate) fn usable<C: Crypto, R: Roles>(suite: CipherSuite) -> bool {
    suite.parts().is_some_and(|(exchange, cipher)| {
        cipher.is_in::<C>()
            && (R::KEEPS || !cipher.is_cbc::<C>())
            && (exchange.is_psk() || R::PUBLIC_KEYS && (exchange.is_rsa() || !C::GROUPS.is_empty()))
    })
}
