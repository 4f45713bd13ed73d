//! Trust of Tegmen on an operating system, without sockets and without a runtime.
//!
//! * [`x509`] verifies certificates and raw public keys of peers, and has keys of our own, in files or in a TPM.
//! * [`public_keys`] are the keys of one endpoint and the peers that it trusts.
//! * [`credentials`] are identities, pre-shared keys and rights, from a file or from a key store.
//! * [`provider`] is the crypto provider of hosts, and [`provider::public`] its public-key arithmetic.
//! * [`path`] reads the path of a request, which rights and resources share.
//! * [`hex`], [`digest`], [`private`] and [`reading`] are small tools of these modules and of the crates above.

pub mod credentials;
pub mod digest;
pub mod hex;
pub mod path;
pub mod private;
pub mod provider;
pub mod public_keys;
pub mod reading;
pub mod x509;
