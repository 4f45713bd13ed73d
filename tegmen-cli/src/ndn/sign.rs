//! `tegmen ndn sign` and `tegmen ndn verify` for packets in files, and the options that name keys and anchors.

use super::name_of;
use super::pem::{self, Pair, crypto};
use crate::files::{self, Readers};
use crate::output::{Failure, Output, printable};
use clap::Args;
use serde_json::json;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use tegmen_base::buf::Frame;
use tegmen_base::crypto::{MAX_SIGNATURE, RustCrypto, Unsupported};
use tegmen_ndn::certificate::Certificate;
use tegmen_ndn::signature::{DigestSha256, SignatureInfo, Signer};
use tegmen_ndn::{Data, MAX_HEAD, Name, ReceivedData};
use tegmen_ndn_host::schema::Schema;
use tegmen_ndn_host::trust::{Trust, TrustError, Verdict, now};

/// The option for the key of a producer.
#[derive(Args)]
pub(super) struct Signing {
    /// Sign with this key pair of `tegmen ndn key`. Without a key pair, packets carry a digest, which
    /// proves no origin.
    #[arg(long, value_name = "FOLDER/NAME")]
    key: Option<PathBuf>,
}

impl Signing {
    pub(super) fn pair(&self) -> Result<PacketSigner, Failure> {
        Ok(PacketSigner(self.key.as_deref().map(Pair::read).transpose()?))
    }
}

/// A signer of packets with a key pair. Without a key pair, the signer adds a digest in place of a signature.
pub(super) struct PacketSigner(pub(super) Option<Pair>);

impl PacketSigner {
    /// Returns the certificates of the key. The producer publishes these certificates for consumers.
    pub(super) fn certificates(&self) -> &[Vec<u8>] {
        self.0.as_ref().map_or(&[], |pair| &pair.certificates)
    }

    /// Returns the names of the keys in the [certificates](Self::certificates). A producer registers these names,
    /// so that Interests for the certificates reach the producer.
    pub(super) fn prefixes(&self) -> Vec<Vec<u8>> {
        let parsed = self.certificates().iter().filter_map(|wire| Certificate::parse(wire).ok());
        let mut prefixes: Vec<Vec<u8>> = parsed.map(|parsed| parsed.key_name().as_bytes().to_vec()).collect();
        prefixes.dedup();
        prefixes
    }
}

impl Signer<RustCrypto> for PacketSigner {
    fn info(&self) -> SignatureInfo<'_> {
        match &self.0 {
            Some(pair) => SignatureInfo::new(pair.key.signer(pair.locator()).info().kind, Some(locator(pair))),
            None => Signer::<RustCrypto>::info(&DigestSha256),
        }
    }

    fn sign(
        &self,
        crypto: &mut RustCrypto,
        message: &[&[u8]],
        out: &mut [u8; MAX_SIGNATURE],
    ) -> Result<usize, Unsupported> {
        match &self.0 {
            Some(pair) => pair.key.signer(pair.locator()).sign(crypto, message, out),
            None => DigestSha256.sign(crypto, message, out),
        }
    }
}

fn locator(pair: &Pair) -> tegmen_ndn::signature::KeyLocator<'_> {
    tegmen_ndn::signature::KeyLocator::Name(pair.locator())
}

/// The options that name the anchors and the schema of a consumer.
#[derive(Args)]
pub(super) struct Trusted {
    /// An anchor: a certificate that you trust. A packet is accepted only if a chain of certificates leads from the key
    /// that signed the packet to an anchor. May be given several times.
    #[arg(long, value_name = "CERT")]
    anchor: Vec<PathBuf>,
    /// Trust schema in LVS, which defines the keys that may sign a name: a compiled model, or the text of the schema.
    /// Without a schema, a key may sign names that begin with its identity.
    #[arg(long, value_name = "FILE", requires = "anchor")]
    schema: Option<PathBuf>,
}

impl Trusted {
    /// Returns the anchors and the schema; `None` if no anchor is given.
    pub(super) fn trust(&self) -> Result<Option<Trust>, Failure> {
        if self.anchor.is_empty() {
            return Ok(None);
        }
        let schema = self.schema.as_deref().map(super::trust::read_schema).transpose()?;
        self.with_schema(schema).map(Some)
    }

    fn with_schema(&self, schema: Option<Schema>) -> Result<Trust, Failure> {
        let anchors = self.anchor.iter().map(|file| pem::certificate(file)).collect::<Result<_, _>>()?;
        Trust::new(&mut crypto()?, anchors, schema, now()).map_err(|error| Failure::usage(format!("--anchor: {error}")))
    }
}

#[derive(Args)]
#[command(after_help = "Example:\n  \
    tegmen ndn sign /house/temp/v=1 value.txt --key keys/temp --output packet.data")]
pub(super) struct Sign {
    /// The name of the packet.
    name: String,
    /// The file with the content.
    file: PathBuf,
    #[command(flatten)]
    signing: Signing,
    /// Milliseconds for which caches consider the packet fresh.
    #[arg(long, value_name = "MS")]
    freshness: Option<u64>,
    /// Write the packet to this file instead of the standard output.
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
}

impl Sign {
    pub(super) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let (name, content, signer) = (name_of(&self.name)?, pem::read(&self.file)?, self.signing.pair()?);
        let data = Data {
            name: Name::of_checked(&name),
            freshness: self.freshness,
            content: Some(&content),
            ..Data::default()
        };
        let mut storage = vec![0; name.len() + content.len() + 2000];
        let mut frame = Frame::new(&mut storage, MAX_HEAD);
        data.write(&mut crypto()?, &signer, &mut frame).map_err(Failure::new)?;
        if frame.len() > tegmen_ndn::MAX_PACKET {
            return Err(Failure::usage(format!(
                "the packet has {} bytes, and forwarders pass on at most {}: publish a long content with `tegmen ndn put`",
                frame.len(),
                tegmen_ndn::MAX_PACKET
            )));
        }
        let Some(output) = self.output else {
            std::io::stdout().write_all(frame.bytes()).map_err(Failure::io)?;
            return Ok(ExitCode::SUCCESS);
        };
        files::write(&output, frame.bytes(), Readers::All)?;
        out.line(
            || format!("{} is in {}: {} bytes", self.name, output.display(), frame.len()),
            || json!({ "name": self.name, "file": output.display().to_string(), "bytes": frame.len() }),
        );
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tegmen ndn verify packet.data --anchor keys/house.cert --certificate keys/temp.cert\n  \
    tegmen ndn verify packet.data --anchor keys/house.cert --schema house.tlv\n\n\
    Exit codes: 0 if the chain of certificates leads to an anchor, 1 if it does not, 2 if a file has a mistake.")]
pub(super) struct Verify {
    /// The file with the packet.
    file: PathBuf,
    #[command(flatten)]
    trusted: Trusted,
    /// Certificate in the chain between the packet and an anchor. May be given several times.
    #[arg(long, value_name = "CERT")]
    certificate: Vec<PathBuf>,
}

impl Verify {
    pub(super) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let trust = self.trusted.trust()?;
        let mut trust = trust.ok_or_else(|| Failure::usage("--anchor: name a certificate that you trust"))?;
        let certificates: Vec<Vec<u8>> =
            self.certificate.iter().map(|file| pem::certificate(file)).collect::<Result<_, _>>()?;
        let packet = pem::read(&self.file)?;
        let file = self.file.display();
        let received = ReceivedData::parse(&packet);
        let received = received.map_err(|error| Failure::usage(format!("{file} is no Data packet: {error}")))?;
        verify(&mut trust, &received, &certificates).map_err(|error| Failure::new(format!("{file}: {error}")))?;
        let name = received.data.name.to_string();
        out.line(
            || printable(&format!("{name} is verified")),
            || json!({ "name": name, "verified": true, "bytes": received.data.content.map_or(0, <[u8]>::len) }),
        );
        Ok(ExitCode::SUCCESS)
    }
}

/// Verifies a packet. A chain of certificates must lead from the key that signed the packet to an anchor. The chain may
/// contain the certificates in `certificates`.
fn verify(trust: &mut Trust, packet: &ReceivedData<'_>, certificates: &[Vec<u8>]) -> Result<(), TrustError> {
    let mut crypto = RustCrypto::new([0; 32]);
    loop {
        let Verdict::Needs(locator) = trust.verify(&mut crypto, packet, now())? else { return Ok(()) };
        let locator = Name::of_checked(&locator);
        let is_named =
            |wire: &&Vec<u8>| Certificate::parse(wire).is_ok_and(|found| locator.is_prefix_of(&found.name()));
        let found = certificates.iter().find(is_named);
        trust.offer(&locator, found.ok_or_else(|| TrustError::NotKnown(locator.to_string()))?.clone())?;
    }
}
