//! The files of EDHOC: the private key of this endpoint, and the credentials of its peers.

use crate::hex::{from_hex, to_hex};
use crate::private;
use crate::provider::public::{Group, MAX_PUBLIC_LEN};
use serde::Deserialize;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use tegmen::crypto::{Crypto, MAX_SHARE, NamedGroup};
use tegmen::secret::Secret;
use tegmen_edhoc::{BadCredential, Credential, Identity, MAX_CREDENTIAL, Transfer};
use toml::Spanned;
use zeroize::{Zeroize as _, Zeroizing};

/// The reason why a file of EDHOC cannot be used. The text of most errors proposes a remedy.
#[derive(Debug, thiserror::Error)]
pub enum EdhocError {
    /// A file cannot be read or written.
    #[error("{file}: {source}; {}", next_step(source))]
    File {
        /// The path of the file.
        file: String,
        /// The error of the system.
        source: io::Error,
    },
    /// Other users of this machine can read the private key.
    #[error("{file}: others may read it (mode {mode:03o}), and it holds a private key: chmod 600 {file}")]
    Exposed {
        /// The path of the file.
        file: String,
        /// The permission bits of the file.
        mode: u32,
    },
    /// The file is not valid.
    #[error("{file}:{line}: {message}")]
    Syntax {
        /// The path of the file.
        file: String,
        /// The number of the line with the mistake. The first line has number 1.
        line: usize,
        /// The mistake, and the correct form.
        message: String,
    },
    /// The text is not a credential.
    #[error("{0}")]
    Credential(String),
    /// The name of a key is too long for a credential.
    #[error("the name and the kid of a key have at most 37 bytes together")]
    NameTooLong,
    /// The system gives no randomness.
    #[error("{0}")]
    System(io::Error),
}

fn next_step(refusal: &io::Error) -> &'static str {
    match refusal.kind() {
        io::ErrorKind::AlreadyExists => "nothing is written over: choose another path, or remove what is there",
        _ => "correct the path, or the permissions there",
    }
}

/// A peer in a file of peers, with its credential. A server has such a file of its clients, and a client has such a
/// file of its servers.
#[derive(Clone, PartialEq, Debug)]
pub struct EdhocPeer {
    /// The name of the peer in policies and in the log.
    pub name: String,
    /// The credential of the peer.
    pub credential: Credential,
    /// The rights of the peer, as in a credentials file; `None` allows everything.
    pub allow: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyText {
    private_key: Spanned<String>,
    credential: Spanned<String>,
    #[serde(default)]
    by_value: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PeersText {
    #[serde(default)]
    peer: Vec<PeerText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PeerText {
    name: String,
    credential: Spanned<String>,
    allow: Option<Vec<Spanned<String>>>,
}

/// Makes a private key, and writes it to a new file that only its owner can read. `name` is the subject of the
/// credential. `kid` is the short name with which messages refer to the credential. Returns the credential, which the
/// peers need.
///
/// # Errors
/// [`EdhocError`], also if the file already exists.
pub fn create_key<C: Crypto>(
    crypto: &mut C,
    file: &Path,
    name: &str,
    kid: &[u8],
    transfer: Transfer,
) -> Result<Credential, EdhocError> {
    let (mut private, mut share) = (Secret::zeroed(), [0; MAX_SHARE]);
    let drawn = crypto.key_pair(NamedGroup::SECP256R1, private.expose_mut(), &mut share);
    drawn.map_err(|_| EdhocError::System(io::Error::other("no P-256")))?;
    let mut storage = [0; MAX_CREDENTIAL];
    let bytes = Credential::write(Some(name), kid, &share, &mut storage).map_err(|_| EdhocError::NameTooLong)?;
    let credential = Credential::parse(bytes).map_err(|_| EdhocError::NameTooLong)?;
    let digits = Zeroizing::new(to_hex(private.expose()));
    let text = Zeroizing::new(format!(
        "# A key for EDHOC (RFC 9528). Anyone who reads this file can pose as its owner. Other ends need the credential alone.\n\
         private_key = \"{}\"\ncredential = \"{}\"\n{}",
        *digits,
        to_hex(bytes),
        if transfer == Transfer::ByValue { "by_value = true\n" } else { "" }
    ));
    let failed = |source| EdhocError::File { file: file.display().to_string(), source };
    let mut handle = private::open(File::options().write(true).create_new(true), file).map_err(failed)?;
    handle.write_all(text.as_bytes()).and_then(|()| handle.sync_all()).map_err(failed)?;
    Ok(credential)
}

/// Reads the key of a file that [`create_key`] wrote.
///
/// # Errors
/// [`EdhocError`].
pub fn read_key(path: &Path) -> Result<Identity, EdhocError> {
    let file = path.display().to_string();
    let failed = |source| EdhocError::File { file: file.clone(), source };
    let handle = File::open(path).map_err(failed)?;
    if let Some(mode) = private::exposed(&handle).map_err(failed)? {
        return Err(EdhocError::Exposed { file, mode });
    }
    let text = Zeroizing::new(io::read_to_string(handle).map_err(failed)?);
    let known = "a key has private_key, credential and, if wanted, by_value";
    let KeyText { private_key, credential, by_value } = parse(&file, &text, known)?;
    let wrong = |at: usize, message: String| syntax(&file, &text, at, message);
    let at = private_key.span().start;
    let mut digits = private_key.into_inner();
    let bytes = from_hex(&digits).map(Zeroizing::new);
    digits.zeroize();
    let bytes = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes.as_slice()).ok());
    let private = Secret::new(bytes.ok_or_else(|| wrong(at, "private_key: 64 hexadecimal digits".to_owned()))?);
    let credential_at = credential.span().start;
    let credential =
        parse_credential(credential.get_ref()).map_err(|error| wrong(credential_at, format!("credential: {error}")))?;
    let mut public = [0; MAX_PUBLIC_LEN];
    let derived = Group::Secp256r1.public_key(&private, &mut public);
    derived.map_err(|_| wrong(at, "private_key: no private key on P-256".to_owned()))?;
    if !credential.has_x(public.get(1..33).unwrap_or(&[])) {
        return Err(wrong(credential_at, "credential: it has the public key of another private key".to_owned()));
    }
    let transfer = if by_value { Transfer::ByValue } else { Transfer::ByReference };
    Ok(Identity::new(private, credential, transfer))
}

/// Reads a file of peers. The file has a table `[[peer]]` for each peer, with `name`, `credential` and optionally
/// `allow`.
///
/// # Errors
/// [`EdhocError`].
pub fn read_peers(path: &Path) -> Result<Vec<EdhocPeer>, EdhocError> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|source| EdhocError::File { file: file.clone(), source })?;
    let known = "a file of peers has tables [[peer]] with name, credential and, if wanted, allow";
    let PeersText { peer } = parse(&file, &text, known)?;
    let wrong = |at: usize, message: String| syntax(&file, &text, at, message);
    let mut peers: Vec<EdhocPeer> = Vec::new();
    for PeerText { name, credential, allow } in peer {
        let at = credential.span().start;
        let credential = parse_credential(credential.get_ref());
        let credential = credential.map_err(|error| wrong(at, format!("credential: {error}")))?;
        if peers.iter().any(|known| known.name == name) {
            return Err(wrong(at, format!("{name}: another peer has this name")));
        }
        if let Some(known) = peers.iter().find(|known| known.credential == credential) {
            return Err(wrong(at, format!("credential: {} has the same one", known.name)));
        }
        let rule = |rule: Spanned<String>| match crate::credentials::is_rule(rule.get_ref()) {
            true => Ok(rule.into_inner()),
            false => Err(wrong(rule.span().start, format!("allow: {}", tegmen::coap::Rule::EXPECTED))),
        };
        let allow = allow.map(|rules| rules.into_iter().map(rule).collect()).transpose()?;
        peers.push(EdhocPeer { name, credential, allow });
    }
    Ok(peers)
}

/// Reads a credential in hexadecimal.
///
/// # Errors
/// [`EdhocError::Credential`].
pub fn parse_credential(text: &str) -> Result<Credential, EdhocError> {
    let bytes = from_hex(text.trim());
    let bytes = bytes.ok_or_else(|| EdhocError::Credential("an even number of hexadecimal digits".to_owned()))?;
    Credential::parse(&bytes).map_err(|bad| {
        EdhocError::Credential(match bad {
            BadCredential::TooLong => format!("at most {MAX_CREDENTIAL} bytes, and 16 of its kid"),
            BadCredential::Malformed => {
                "a CWT Claims Set in CBOR, of a subject (2) and a confirmation (8) with a COSE_Key (1)".to_owned()
            }
            BadCredential::Key => "a key on P-256 (kty 2, crv 1)".to_owned(),
        })
    })
}

fn parse<'t, T: Deserialize<'t>>(file: &str, text: &'t str, known: &str) -> Result<T, EdhocError> {
    toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        syntax(file, text, at, format!("{}: {known}", error.message()))
    })
}

fn syntax(file: &str, text: &str, at: usize, message: String) -> EdhocError {
    let line = text.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1;
    EdhocError::Syntax { file: file.to_owned(), line, message }
}
