//! The keys of encrypted content. A producer derives them from its protokey, or requests them from the access control
//! server. A consumer requests them from the access control server.

use crate::admin::secret;
use crate::connect::{access_control, only_key};
use crate::output::Failure;
use crate::public_keys::Servers;
use clap::Args;
use std::path::{Path, PathBuf};
use tegmen_base::crypto::RustCrypto;
use tegmen_control::access::protokey::{MAX_IDENTITY, NONCE_LEN, Protokey, SessionIdentity};
use tegmen_control::subscriber::{NotGranted, content_key};
use tegmen_host::client::{ClientConfig, Session};
use tegmen_host::hex::from_hex;
use tegmen_host::public_keys::PublicKeys;
use tegmen_ndn::Name;
use tegmen_ndn::publisher::ContentKey;
use tegmen_ndn_host::object::Fetched;
use zeroize::Zeroizing;

/// The options that name an access control server, and the key that this device shares with it.
#[derive(Args)]
struct AccessServer {
    /// The access control server that gives the keys of encrypted content: coaps://host[:port].
    #[arg(long, value_name = "URI")]
    access_server: Option<String>,
    /// Credentials file with the key that this device shares with the access control server. The file has one identity,
    /// the name of the device.
    #[arg(long, value_name = "FILE", env = "TEGMEN_CREDENTIALS")]
    credentials: Option<PathBuf>,
}

impl AccessServer {
    /// Opens a session with the access control server; `None` if the options name no server. `public_keys` are the keys
    /// of this device and of the servers that it trusts.
    async fn connect(&self, public_keys: Option<PublicKeys>) -> Result<Option<Session>, Failure> {
        let Some(text) = &self.access_server else { return Ok(None) };
        let uri = access_control(text)?;
        let mut config = ClientConfig::default();
        let key = self.credentials.as_deref().map(only_key).transpose();
        config.trust.key = key.map_err(|error| Failure::usage(format!("--credentials: {error}")))?;
        config.trust.public_keys = public_keys;
        if config.trust.key.is_none() && config.trust.public_keys.is_none() {
            return Err(Failure::usage("--access-server: give --credentials FILE with the key of this device, too"));
        }
        Session::connect(&uri, config).await.map(Some).map_err(Failure::request)
    }
}

/// The options of a consumer that decrypts content.
#[derive(Args)]
pub(super) struct Decryption {
    /// Accept only content that this producer encrypted. NAME is the name of the producer at the access control server.
    #[arg(long, value_name = "NAME", requires = "access_server")]
    producer: Option<String>,
    #[command(flatten)]
    access: AccessServer,
    #[command(flatten)]
    servers: Servers,
}

impl Decryption {
    /// Decrypts an object with the key that the access control server gives for it. If the options name a server,
    /// content in clear is refused. If they name none, encrypted content is refused. If they name a producer, content
    /// under a key of another producer is refused, and its key is not requested.
    pub(super) async fn decrypted(&self, mut fetched: Fetched) -> Result<Fetched, Failure> {
        let whole = Name::of_checked(&fetched.name).to_string();
        let Some((name, identity)) = fetched.key().map(|(name, identity)| (name.to_string(), identity.to_vec())) else {
            return match self.access.access_server {
                None => Ok(fetched),
                Some(_) => Err(Failure::new(format!(
                    "{whole} is not encrypted: leave out --access-server if you accept content in clear"
                ))),
            };
        };
        let shown = String::from_utf8_lossy(&identity);
        let no_identity = || {
            Failure::new(format!(
                "{whole}: the identity of its key does not have the form that an access control server gives: no key can be requested"
            ))
        };
        let identity = SessionIdentity::parse(&identity).ok_or_else(no_identity)?;
        let other = self.producer.as_deref().filter(|expected| *expected != identity.publisher());
        if let Some(expected) = other {
            let producer = identity.publisher();
            return Err(Failure::new(format!("{whole}: {producer} encrypted this content, and not {expected}")));
        }
        let Some(server) = self.access.connect(self.servers.keys(None)?).await? else {
            return Err(Failure::usage(format!(
                "{name} is encrypted with the key {shown}: name the access control server of its producer by --access-server"
            )));
        };
        let key = granted(&server, identity, &name).await;
        server.close();
        fetched.decrypt(&key?).map_err(|_| {
            Failure::new(format!(
                "{whole}: the key from the access control server does not decrypt it: its producer and the server have \
                 different protokeys, or somebody changed the content"
            ))
        })?;
        Ok(fetched)
    }
}

/// The options of a producer that encrypts its content.
#[derive(Args)]
pub(super) struct Encryption {
    /// Encrypt the content. NAME is the name of this producer at the access control server, which gives the keys to
    /// consumers by its policy. Each start of the command uses new keys.
    #[arg(long, value_name = "NAME")]
    producer: Option<String>,
    /// Derive the keys from the protokey in this file, in hexadecimal. The file must be readable only by its owner.
    /// Without this option, the producer requests its keys from the access control server.
    #[arg(long, value_name = "FILE", requires = "producer", conflicts_with = "access_server")]
    protokey: Option<PathBuf>,
    #[command(flatten)]
    access: AccessServer,
}

/// The keys of a producer for one start: their identity, and a key for each name.
pub(super) struct Keys {
    pub(super) identity: String,
    pub(super) keys: Vec<ContentKey>,
}

impl Encryption {
    /// Chooses a new identity at random, and returns a key for each name. Returns `None` if the options ask for no
    /// encryption.
    pub(super) async fn keys(&self, names: &[Name<'_>]) -> Result<Option<Keys>, Failure> {
        let Some(producer) = &self.producer else {
            return match self.access.access_server {
                None => Ok(None),
                Some(_) => Err(Failure::usage("--access-server: give --producer NAME, too")),
            };
        };
        let (mut nonce, mut text) = ([0; NONCE_LEN], [0; MAX_IDENTITY]);
        getrandom::fill(&mut nonce)
            .map_err(|error| Failure::new(format!("the system gives no randomness: {error}")))?;
        let wrong = || Failure::usage(format!("--producer: {producer} cannot be the name of a producer"));
        let identity = SessionIdentity::write(producer, &nonce, &mut text).ok_or_else(wrong)?;
        let mut keys = Vec::with_capacity(names.len());
        if let Some(file) = &self.protokey {
            let protokey = protokey(file)?;
            let derived = |name: &Name<'_>| protokey.content_key::<RustCrypto>(identity, &name.to_string());
            keys.extend(names.iter().map(derived).map(ContentKey::new));
        } else {
            let no_source = || Failure::usage("--producer: give --protokey FILE or --access-server URI, too");
            let server = self.access.connect(None).await?.ok_or_else(no_source)?;
            for name in names {
                keys.push(granted(&server, identity, &name.to_string()).await?);
            }
            server.close();
        }
        Ok(Some(Keys { identity: identity.as_str().to_owned(), keys }))
    }
}

/// Requests the key of a content from the access control server.
async fn granted(server: &Session, identity: SessionIdentity<'_>, name: &str) -> Result<ContentKey, Failure> {
    match content_key(server, identity, name).await {
        Ok(granted) => Ok(ContentKey::new(granted.key)),
        Err(NotGranted::NoResponse(error)) => Err(Failure::request(error)),
        Err(NotGranted::Refused) => {
            let producer = identity.publisher();
            Err(Failure::new(format!(
                "the access control server gives no key for {name} of {producer}: its policy does not let this device read it, or \
                 {producer} is no enabled device with a protokey or a shared key; the audit log of the server has the reason"
            )))
        }
        Err(error) => Err(Failure::new(error)),
    }
}

fn protokey(file: &Path) -> Result<Protokey, Failure> {
    let digits = secret(file, "--protokey")?;
    let bytes = from_hex(&digits).map(Zeroizing::new);
    bytes.and_then(|bytes| Protokey::new(&bytes)).ok_or_else(|| {
        Failure::usage(format!("--protokey: {} does not contain 16 to 64 bytes in hexadecimal", file.display()))
    })
}
