//! Reads and writes files of keys and certificates, as PEM in the format of `ndnd sec`, or as packets.

use crate::files::{self, Readers, read_secret};
use crate::output::Failure;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::path::{Path, PathBuf};
use tegmen_base::crypto::RustCrypto;
use tegmen_ndn::certificate::{Certificate, Validity, time_bytes};
use tegmen_ndn::signature::{KeyLocator, SignatureType};
use tegmen_ndn::{ContentType, ReceivedData};
use tegmen_ndn_host::keys::Key;
use zeroize::Zeroizing;

/// The first byte of a packet. PEM never begins with this byte.
const DATA: u8 = 6;

const CERTIFICATE: &str = "NDN CERT";
const PRIVATE_KEY: &str = "NDN KEY";

/// Encodes a certificate or a private key in PEM.
pub(super) fn encode(packet: &[u8]) -> Result<Zeroizing<String>, Failure> {
    let received = ReceivedData::parse(packet).map_err(Failure::new)?;
    let label = match received.data.content_type {
        Some(ContentType::SIGNING_KEY) => PRIVATE_KEY,
        _ => CERTIFICATE,
    };
    let info = &received.signed.info;
    let kind = match info.kind {
        SignatureType::SHA256_WITH_ECDSA => "Sha256WithEcdsa",
        SignatureType::ED25519 => "Ed25519",
        SignatureType::HMAC_WITH_SHA256 => "HmacWithSha256",
        _ => "Unknown",
    };
    let mut text = format!("-----BEGIN {label}-----\nName: {}\nSigType: {kind}\n", received.data.name);
    if let (Some(KeyLocator::Name(name)), CERTIFICATE) = (info.key, label) {
        text += &format!("SignerKey: {name}\n");
    }
    if let Some(Ok(validity)) = info.validity.map(Validity::parse) {
        text += &format!("Validity: {} - {}\n", date(validity.not_before), date(validity.not_after));
    }
    text.push('\n');
    let base64 = Zeroizing::new(STANDARD.encode(packet));
    // A growing string would leave copies of the key behind.
    let mut whole = Zeroizing::new(String::with_capacity(text.len() + 2 * base64.len() + 100));
    whole.push_str(&text);
    for line in base64.as_bytes().chunks(64) {
        whole.push_str(std::str::from_utf8(line).map_err(Failure::new)?);
        whole.push('\n');
    }
    whole.push_str(&format!("-----END {label}-----\n"));
    Ok(whole)
}

/// Formats a time as text, such as 2026-11-29 06:13:36 UTC.
pub(super) fn date(time: u64) -> String {
    let text = String::from_utf8_lossy(&time_bytes(time)).into_owned();
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default().to_owned();
    format!("{}-{}-{} {}:{}:{} UTC", part(0, 4), part(4, 6), part(6, 8), part(9, 11), part(11, 13), part(13, 15))
}

/// Returns the packets in a file: the only packet of a binary file, or the packets in all blocks of a PEM file.
fn decode(bytes: &[u8]) -> Result<Vec<Zeroizing<Vec<u8>>>, String> {
    if bytes.first() == Some(&DATA) {
        return Ok(vec![Zeroizing::new(bytes.to_vec())]);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "it is neither a packet nor PEM")?;
    let mut packets = Vec::new();
    for label in [PRIVATE_KEY, CERTIFICATE] {
        let (begin, end) = (format!("-----BEGIN {label}-----"), format!("-----END {label}-----"));
        for block in text.split(begin.as_str()).skip(1) {
            let (block, _) = block.split_once(end.as_str()).ok_or_else(|| format!("{end} is missing"))?;
            // Headers have a colon, and end with an empty line.
            let lines = block.lines().filter(|line| !line.contains(':')).map(str::trim);
            let base64 = Zeroizing::new(lines.collect::<String>());
            let packet = STANDARD.decode(base64.as_bytes()).map_err(|error| format!("its base64 is wrong: {error}"))?;
            packets.push(Zeroizing::new(packet));
        }
    }
    if packets.is_empty() {
        Err(format!("it has no block {CERTIFICATE} or {PRIVATE_KEY}: name a file of `tegmen ndn key` or `ndnd sec`"))
    } else {
        Ok(packets)
    }
}

/// The keys and the certificates that a file contains.
pub(super) struct Contents {
    pub(super) keys: Vec<Key>,
    pub(super) certificates: Vec<Vec<u8>>,
}

/// Reads the keys and the certificates in `bytes`, the content of the file `name`.
pub(super) fn contents(name: &str, bytes: &[u8]) -> Result<Contents, Failure> {
    let wrong = |reason: String| Failure::usage(format!("{name}: {reason}"));
    let mut contents = Contents { keys: Vec::new(), certificates: Vec::new() };
    for packet in decode(bytes).map_err(wrong)? {
        let received = ReceivedData::parse(&packet).map_err(|error| wrong(error.to_string()))?;
        if received.data.content_type == Some(ContentType::SIGNING_KEY) {
            let key = Key::parse(&mut crypto()?, &packet).map_err(|error| wrong(error.to_string()))?;
            contents.keys.push(key);
        } else {
            Certificate::of(received).map_err(|error| wrong(error.to_string()))?;
            contents.certificates.push(packet.to_vec());
        }
    }
    Ok(contents)
}

/// Reads the first certificate of a file.
pub(super) fn certificate(file: &Path) -> Result<Vec<u8>, Failure> {
    let name = file.display().to_string();
    let bytes = read(file)?;
    let mut certificates = contents(&name, &bytes)?.certificates.into_iter();
    let missing =
        || Failure::usage(format!("{name} has no certificate: name a file of `tegmen ndn key`, as keys/root.cert"));
    certificates.next().ok_or_else(missing)
}

/// Reads a file that contains no secrets.
pub(super) fn read(file: &Path) -> Result<Vec<u8>, Failure> {
    let name = file.display();
    std::fs::read(file).map_err(|error| {
        Failure::usage(format!("{name} cannot be read: {error}; correct the path, or the permissions there"))
    })
}

/// Returns a crypto provider whose random numbers are seeded by the system.
pub(super) fn crypto() -> Result<RustCrypto, Failure> {
    Ok(RustCrypto::new(crate::random::bytes()?))
}

/// A key pair in a folder: FOLDER/NAME.key with the private key, and FOLDER/NAME.cert with its certificates. The first
/// certificate is in use.
pub(super) struct Pair {
    pub(super) key: Key,
    pub(super) certificates: Vec<Vec<u8>>,
}

/// Returns the path FOLDER/NAME with this extension. A dot in NAME does not begin an extension.
pub(super) fn place(at: &Path, extension: &str) -> PathBuf {
    tegmen_store::files::beside(at, extension)
}

impl Pair {
    /// Reads the key pair FOLDER/NAME.
    pub(super) fn read(at: &Path) -> Result<Self, Failure> {
        let (file, beside) = (place(at, "key"), place(at, "cert"));
        let text = read_secret(&file).map_err(Failure::usage)?;
        let name = file.display().to_string();
        let key = contents(&name, text.as_bytes())?.keys.pop();
        let key = key
            .ok_or_else(|| Failure::usage(format!("{name} has no private key: make one with `tegmen ndn key new`")))?;
        let name = beside.display().to_string();
        let certificates = contents(&name, &read(&beside)?)?.certificates;
        let pair = Self { key, certificates };
        pair.check(&name)?;
        Ok(pair)
    }

    /// Returns an error if the first certificate is not for the private key `self.key`.
    pub(super) fn check(&self, name: &str) -> Result<(), Failure> {
        let first = self.certificates.first().and_then(|first| Certificate::parse(first).ok());
        match first {
            Some(first) if self.key.is_of(&first) => Ok(()),
            Some(first) => Err(Failure::usage(format!(
                "{name}: the first certificate is for {}, but the key is {}: put a certificate of the key there",
                first.key_name(),
                self.key.name()
            ))),
            None => Err(Failure::usage(format!("{name} has no certificate of the key {}", self.key.name()))),
        }
    }

    /// Returns the name of the certificate in use. Packets contain this name as their key locator.
    pub(super) fn locator(&self) -> tegmen_ndn::Name<'_> {
        let first = self.certificates.first().and_then(|first| ReceivedData::parse(first).ok());
        first.map_or_else(|| self.key.name(), |first| first.data.name)
    }

    /// Writes the key pair FOLDER/NAME. Only the owner can read the key.
    pub(super) fn write(&self, at: &Path) -> Result<(), Failure> {
        let secret = encode(&self.key.to_packet(&mut crypto()?).map_err(Failure::new)?)?;
        let folder = tegmen_store::files::directory_of(at);
        std::fs::create_dir_all(folder).map_err(|error| {
            Failure::usage(format!("{} cannot be made: {error}; correct the path", folder.display()))
        })?;
        files::write(&place(at, "key"), secret.as_bytes(), Readers::Owner)?;
        let mut text = String::new();
        for certificate in &self.certificates {
            text += &encode(certificate)?;
        }
        files::write(&place(at, "cert"), text.as_bytes(), Readers::All)
    }
}
