//! The client side of enrolment: a device registers its own credential at the access control server. The server side is
//! [`crate::access::enrolment`].

pub use crate::access::enrolment::OneTimeKey;

use crate::access::enrolment::{CBOR, ENROL, Request, identity};
use crate::state::NewDevice;
use tegmen_base::crypto::DIGEST_LEN;
use tegmen_coap::{Code, OptionNumber};
use tegmen_host::client::{ClientConfig, ClientError, Session};
use tegmen_host::provider::HostCrypto;

/// The reason why a device could not enrol.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// The server refuses the enrolment.
    #[error(
        "the access control server refuses the enrolment ({code}): its audit log has the reason, and an operator can create another \
         one-time key"
    )]
    Refused {
        /// The code of the response.
        code: Code,
    },
    /// The server does not confirm the registration. The device may be registered.
    #[error(
        "the access control server does not confirm the registration: try again in {seconds} s; if it refuses the one-time key then, \
         ask an operator whether the device is registered"
    )]
    Later {
        /// Seconds after which the device may try again.
        seconds: u32,
    },
    /// The session could not be opened, or no response arrived.
    #[error(
        "{0}; a one-time key is refused after its use, after its end, and if an operator replaced it: ask an operator whether the \
         device is registered, and for another key if it is not"
    )]
    NoResponse(#[from] ClientError),
}

/// Returns the configuration of the session in which a device enrols with this key.
pub fn client_config(key: &OneTimeKey) -> ClientConfig {
    ClientConfig::psk(identity(key.name()), key.session_key::<HostCrypto>().expose())
}

/// Registers a device over a session that was opened with [`client_config`]. The name of the device must be the name in
/// the one-time key.
///
/// # Errors
/// [`EnrolError`]. After [`EnrolError::NoResponse`] and [`EnrolError::Later`] the device may be registered.
pub async fn enrol(server: &Session, key: &OneTimeKey, device: &NewDevice) -> Result<(), EnrolError> {
    let credential = device.device().credential;
    let digest = credential.digest();
    let value = digest.as_ref().map(<[u8; DIGEST_LEN]>::as_slice).or(device.secret_bytes()).unwrap_or_default();
    let request = Request::encode::<HostCrypto>(key, credential.kind(), value);
    let response = server.post(ENROL, &request).content_format(CBOR).await?;
    match response.code {
        Code::CREATED => Ok(()),
        Code::SERVICE_UNAVAILABLE => {
            Err(EnrolError::Later { seconds: response.uint(OptionNumber::MAX_AGE).unwrap_or(60) })
        }
        code => Err(EnrolError::Refused { code }),
    }
}
