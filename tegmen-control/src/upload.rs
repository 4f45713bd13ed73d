//! The upload of a token to a publisher, over a session that the access control server opens for it.

use crate::access::ace::ACE_CBOR;
use std::net::SocketAddr;
use std::time::Duration;
use tegmen_coap::{Code, OptionNumber};
use tegmen_host::client::{ClientConfig, ClientError, Session};
use tegmen_host::uri::Scheme;

/// The path at a publisher for tokens, without a slash in front (RFC 9200, section 5.10.1).
pub const AUTHZ_INFO: &str = "authz-info";
/// The identity of the access control server in its sessions with publishers. It is no session identity.
pub const SERVER_IDENTITY: &str = "access control server";
/// Time for handshake and request together.
const PATIENCE: Duration = Duration::from_secs(20);
/// Seconds after which a subscriber asks again, if the publisher gives no number; as for a response without Max-Age (RFC 7252,
/// section 5.10.5).
const RETRY_AFTER: u32 = 60;

/// The reason why a publisher does not have a token.
#[derive(Debug)]
pub(crate) enum NotTaken {
    /// It has not the resources for another session.
    Busy {
        /// Seconds after which to ask again.
        seconds: u32,
    },
    /// It refuses the token.
    Refused(Code),
    /// There is no session with it, or no response.
    Unreachable(String),
}

impl NotTaken {
    /// The code of the publisher's response.
    pub(crate) const fn answer(&self) -> Code {
        match self {
            Self::Refused(code) => *code,
            Self::Busy { .. } | Self::Unreachable(_) => Code::SERVICE_UNAVAILABLE,
        }
    }

    /// The stable code.
    pub(crate) const fn code(&self) -> &'static str {
        match self {
            Self::Busy { .. } => "publisher-busy",
            Self::Refused(_) => "publisher-refused",
            Self::Unreachable(_) => "publisher-unreachable",
        }
    }
}

/// Sends the request of an upload to a publisher. It returns when the publisher has the token.
pub(crate) async fn upload(publisher: SocketAddr, key: &[u8], request: &[u8]) -> Result<(), NotTaken> {
    let response = tokio::time::timeout(PATIENCE, async {
        let config = ClientConfig::psk(SERVER_IDENTITY, key).with(|config| config.recovery.reconnect = false);
        let session = Session::connect_to(publisher, Scheme::Coaps, config).await?;
        let response = session.post(AUTHZ_INFO, request).content_format(ACE_CBOR).await?;
        session.close();
        Ok(response)
    });
    let response = response
        .await
        .map_err(|_| NotTaken::Unreachable(format!("no answer within {} s", PATIENCE.as_secs())))?
        .map_err(|error: ClientError| NotTaken::Unreachable(error.to_string()))?;
    match response.code {
        Code::CREATED | Code::CHANGED => Ok(()),
        Code::SERVICE_UNAVAILABLE => {
            Err(NotTaken::Busy { seconds: response.uint(OptionNumber::MAX_AGE).unwrap_or(RETRY_AFTER) })
        }
        code => Err(NotTaken::Refused(code)),
    }
}
