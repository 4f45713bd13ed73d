//! Requests for the keys of encrypted content, over a session with the access control server.

use super::{NotGranted, ask};
use crate::access::ace::{Aif, Confirmation, CoseKey, Hint, IntrospectionRequest, Material, Right, Scope};
use crate::access::introspection::{CONTENT_ALGORITHM, HINT_CONTENT};
use crate::access::protokey::SessionIdentity;
use tegmen_base::crypto::KEY_LEN;
use tegmen_base::secret::Secret;
use tegmen_coap::Code;
use tegmen_host::client::Session;

/// The key of a content, for AES-128-CCM. The key is wiped on drop.
#[derive(Debug)]
pub struct ContentKey {
    /// The key.
    pub key: Secret<KEY_LEN>,
    /// Seconds after which a consumer that still needs the key must request it again. `None` if the server gives no
    /// limit.
    pub expires_in: Option<u64>,
}

/// Asks for the key of the content `path`. `identity` is the identity of the key, which the producer chose at random.
/// `server` is a session with the access control server in which the consumer, or the producer itself, proved its
/// identity. Requests with the same values get the same key.
///
/// # Errors
/// [`NotGranted`].
pub async fn content_key(
    server: &Session,
    identity: SessionIdentity<'_>,
    path: &str,
) -> Result<ContentKey, NotGranted> {
    let request = IntrospectionRequest {
        scope: Some(Scope::of(&Aif(vec![Right { path: path.to_owned(), permissions: 1 }]))),
        token: identity.as_str().into(),
        hint: Some(Hint::Name(HINT_CONTENT.to_owned())),
    };
    let claims = ask(server, &request).await?;
    let unexpected = NotGranted::Unexpected { code: Code::CREATED };
    let Some(Confirmation::Key(CoseKey { algorithm, material: Material::Symmetric(bytes), .. })) = claims.cnf else {
        return Err(unexpected);
    };
    let mut key = Secret::zeroed();
    match <&[u8; KEY_LEN]>::try_from(bytes.as_slice()) {
        Ok(bytes) if algorithm.is_none_or(|algorithm| algorithm == CONTENT_ALGORITHM) => {
            key.expose_mut().copy_from_slice(bytes);
            Ok(ContentKey { key, expires_in: claims.expires_in })
        }
        _ => Err(unexpected),
    }
}
