//! Measures DTLS 1.2 with certificates of the client and of the server. Compares Tegmen with every other stack, and
//! with the cryptographic operations alone.
//!
//! The client and the server each have a chain of two certificates below a trust anchor that the other endpoint knows.
//! Each endpoint proves that it has the private key of the first certificate in its chain. In a handshake each endpoint
//! makes a key pair, a key agreement and a signature. It also verifies the signature of its peer, and the signatures of
//! the peer's two certificates. An endpoint that remembers the peer's chain verifies one signature instead of three.

use crate::{
    failure::failure,
    limit::nanoseconds,
    program::{CERTIFICATES, Candidate, Program, target},
    proof::read,
    report::{Limit, Row, Samples, median},
};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, RsaKeySize,
};
use std::{fs, hint::black_box, path::Path};
use tegmen::crypto::{Crypto, MAX_SHARE, NamedGroup, SCALAR_LEN};
use tegmen_bench_line::{Certificates, Command, Failure, Reply};
use tegmen_host::{
    provider::HostCrypto,
    x509::signer::{Signer, SoftwareKey},
};

const KINDS: [Certificates; 2] =
    [Certificates { rsa: false, remembered: false }, Certificates { rsa: true, remembered: false }];

/// Measures handshakes with ECDSA and with RSA. Compares them with the handshakes of every other DTLS stack, and with
/// the same cryptographic operations without a protocol. Also measures the memory of an established session.
pub(crate) fn rows(
    candidates: &[&'static Candidate],
    passes: usize,
    notes: &mut Vec<String>,
) -> Result<Vec<Row>, Failure> {
    let directory = target()?.join(CERTIFICATES);
    fs::create_dir_all(&directory).map_err(|error| Failure::new(format!("{}: {error}", directory.display())))?;
    let mut rows = Vec::new();
    for of in KINDS {
        let name = format!("mutual {} handshake, chains of two certificates", of.kind().to_uppercase());
        eprintln!("{name}");
        draw(of, &directory)?;
        let mut programs = Vec::new();
        for candidate in candidates {
            let able = candidate.start().and_then(|mut program| {
                program.nanoseconds(Command::Certified(of, 1))?;
                Ok(program)
            });
            match able {
                Ok(program) => programs.push(program),
                Err(reason) => notes.push(format!("{name}: {}: {reason}", candidate.name)),
            }
        }
        rows.extend(beside_peers(of, &name, &mut programs, passes)?);
        rows.push(beside_bare(of, &name, &mut programs, passes, &directory)?);
        let held = candidates.iter().find(|candidate| candidate.name == "ours");
        if let Some(Reply::Heap { server, .. }) = held.map(|ours| ours.ask_once(Command::Held(of, HELD))).transpose()? {
            let name = format!("heap of an established session with {} certificates, server", of.kind().to_uppercase());
            let judged = Limit::AtMost(SESSION_MAX).judge("ours", Some(server as f64));
            rows.push(Row { ours: Some(server as f64), ..Row::new(name, "", "B", Some(judged)) });
        }
    }
    notes.push(NOTE.into());
    Ok(rows)
}

/// Returns two rows for each peer. In the first row the client and the server verify every signature in each handshake.
/// In the second row Tegmen remembers the chains that it has verified.
fn beside_peers(of: Certificates, name: &str, programs: &mut [Program], passes: usize) -> Result<Vec<Row>, Failure> {
    let mut every = Samples::new(name, "1/CPU s", true);
    every.demanded = (Some(1.0), None);
    let remembered = format!("{name}, ours remembers verified chains");
    let mut cached = Samples::new(&remembered, "1/CPU s", true);
    cached.demanded = (Some(1.8), None);
    let count = programs.len();
    for pass in 0..passes {
        for turn in 0..count {
            let program = &mut programs[(pass + turn) % count];
            let rate = rate(program, of)?;
            every.push(program.candidate.name, rate);
            if program.candidate.name != "ours" {
                cached.push(program.candidate.name, rate);
            } else {
                cached.push("ours", self::rate(program, Certificates { remembered: true, ..of })?);
            }
        }
    }
    Ok(every.rows().into_iter().chain(cached.rows()).collect())
}

/// Returns the number of handshakes for each second of the program's CPU time.
fn rate(program: &mut Program, of: Certificates) -> Result<f64, Failure> {
    let spent = program.nanoseconds(Command::Certified(of, HANDSHAKES))?;
    Ok(f64::from(HANDSHAKES) * 1e9 / spent as f64)
}

/// Compares Tegmen's handshakes with the cryptographic operations alone.
fn beside_bare(
    of: Certificates,
    name: &str,
    programs: &mut [Program],
    passes: usize,
    directory: &Path,
) -> Result<Row, Failure> {
    let mut bare = Bare::new(of, directory)?;
    let ours = programs.iter_mut().find(|program| program.candidate.name == "ours");
    let ours = ours.ok_or_else(|| Failure::new("nothing of ours was measured"))?;
    let (mut of_ours, mut of_bare, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    bare.handshake()?; // warm
    for _ in 0..passes {
        let spent = nanoseconds(|| (0..HANDSHAKES).try_for_each(|_| bare.handshake()))?;
        let (possible, done) = (f64::from(HANDSHAKES) * 1e9 / spent, rate(ours, of)?);
        of_ours.push(done);
        of_bare.push(possible);
        ratios.push(done / possible);
    }
    let ratio = median(&ratios);
    Ok(Row {
        ours: median(&of_ours),
        peer: median(&of_bare),
        ratio,
        more_is_better: true,
        ..Row::new(name, "bare operations", "1/CPU s", Some(Limit::AtLeast(0.85).judge("ratio", ratio)))
    })
}

/// The cryptographic operations of a handshake, without the protocol.
pub(crate) struct Bare {
    crypto: HostCrypto,
    group: NamedGroup,
    signer: SoftwareKey,
    /// The digests that are signed and verified in turn, each with its signature. The time of a verification depends on
    /// its inputs: with few inputs, the processor would predict the branches of the whole computation.
    signed: Vec<([u8; 32], Vec<u8>)>,
    /// The index in `signed` of the entry that is used next.
    next: usize,
    /// The number of signatures that one endpoint verifies: the signature of the peer itself, and the signatures of the
    /// certificates of the peer.
    verified: usize,
}

impl Bare {
    fn new(of: Certificates, directory: &Path) -> Result<Self, Failure> {
        let pem = read(&directory.join(format!("{}-key.pem", of.kind())))?;
        let group = *HostCrypto::GROUPS.first().ok_or_else(|| Failure::new("no groups"))?;
        Self::with(&pem, group, 2)
    }

    /// Prepares the operations. The client and the server use the private key in `pem`, key shares in `group`, and
    /// chains with `certificates` certificates.
    pub(crate) fn with(pem: &[u8], group: NamedGroup, certificates: usize) -> Result<Self, Failure> {
        let mut crypto = HostCrypto::from_os().map_err(failure)?;
        // The keys of all signers have the same length, so one signer is enough.
        let signer = SoftwareKey::from_pem(pem).map_err(Failure::new)?;
        let sign = |_| {
            let mut digest = [0; 32];
            crypto.random(&mut digest);
            let signature = signer.sign_digest(&digest).map_err(|error| Failure::new(error.to_string()))?;
            Ok((digest, signature))
        };
        let signed = (0..SIGNED).map(sign).collect::<Result<_, Failure>>()?;
        Ok(Self { crypto, group, signer, signed, next: 0, verified: certificates + 1 })
    }

    fn handshake(&mut self) -> Result<(), Failure> {
        let (client, client_share) = self.key_pair()?;
        let (server, server_share) = self.key_pair()?;
        self.agree_and_prove(&client, &server_share)?;
        self.agree_and_prove(&server, &client_share)
    }

    /// Performs the operations of one endpoint in a handshake. `share` is the key share of its peer.
    pub(crate) fn end(&mut self, share: &[u8]) -> Result<(), Failure> {
        let (private, _) = self.key_pair()?;
        self.agree_and_prove(&private, share)
    }

    fn agree_and_prove(&mut self, private: &[u8; SCALAR_LEN], share: &[u8]) -> Result<(), Failure> {
        let mut secret = [0; SCALAR_LEN];
        self.crypto.agree(self.group, private, share, &mut secret).map_err(failure)?;
        black_box(secret);
        for turn in 0..self.verified {
            let (digest, signature) = &self.signed[self.next];
            self.next = (self.next + 1) % self.signed.len();
            if turn == 0 {
                black_box(self.signer.sign_digest(digest)).map_err(|error| Failure::new(error.to_string()))?;
            }
            let (scheme, public_key) = (self.signer.scheme(), black_box(self.signer.public_key()));
            self.crypto.verify(scheme, public_key, digest, signature).map_err(failure)?;
        }
        Ok(())
    }

    /// Makes an ephemeral private key, and the key share that belongs to it.
    pub(crate) fn key_pair(&mut self) -> Result<([u8; SCALAR_LEN], Vec<u8>), Failure> {
        let (mut private, mut share) = ([0; SCALAR_LEN], [0; MAX_SHARE]);
        let len = self.crypto.key_pair(self.group, &mut private, &mut share).map_err(failure)?;
        Ok((private, share[..len].to_vec()))
    }
}

/// Makes a certificate chain with RSA keys. Writes it into the files `rsa-chain.pem` and `rsa-key.pem`.
pub(crate) fn draw_rsa(directory: &Path) -> Result<(), Failure> {
    draw(KINDS[1], directory)
}

/// Makes a trust anchor, an authority below it, and a certificate with its key that a client and a server can use.
/// Writes them into files.
fn draw(of: Certificates, directory: &Path) -> Result<(), Failure> {
    let error = |error: rcgen::Error| Failure::new(error.to_string());
    let key = || match of.rsa {
        true => KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048),
        false => KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256),
    };
    let authority = |name: &str| -> Result<CertificateParams, Failure> {
        let mut params = CertificateParams::new(Vec::new()).map_err(error)?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Ok(params)
    };
    let (root_key, between_key, own_key) = (key().map_err(error)?, key().map_err(error)?, key().map_err(error)?);
    let root = authority("trust anchor")?;
    let anchor = root.self_signed(&root_key).map_err(error)?;
    let root = Issuer::new(root, root_key);
    let between = authority("authority")?;
    let issuing = between.signed_by(&between_key, &root).map_err(error)?;
    let between = Issuer::new(between, between_key);
    let mut own = CertificateParams::new(vec!["peer.example".to_owned()]).map_err(error)?;
    own.distinguished_name.push(DnType::CommonName, "peer");
    own.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    own.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let own = own.signed_by(&own_key, &between).map_err(error)?;
    let chain = format!("{}{}", own.pem(), issuing.pem());
    for (name, text) in [("ca.pem", anchor.pem()), ("chain.pem", chain), ("key.pem", own_key.serialize_pem())] {
        let file = directory.join(format!("{}-{name}", of.kind()));
        fs::write(&file, text).map_err(|error| Failure::new(format!("{}: {error}", file.display())))?;
    }
    Ok(())
}

/// The note in the report about the handshakes that this module measures, and about the bare cryptographic operations
/// with which it compares them.
const NOTE: &str = "mutual handshakes: keys of secp256r1 or of RSA with 2048 bits, an agreement on the group that a stack likes \
                    best, AES-128-GCM, both ends in the time; bare operations are those of both of our ends: two key pairs \
                    and two agreements of x25519, two signatures made and six verified, without any message";
/// The number of digests that [`Bare`] signs and verifies in turn.
const SIGNED: usize = 512;
/// Number of handshakes in a pass. They take about a tenth of a second with ECDSA.
const HANDSHAKES: u32 = 150;
/// Number of sessions that are open at the same time when the memory of one session is measured.
const HELD: u32 = 1_000;
/// Maximum memory that a session may need at a server, in bytes.
const SESSION_MAX: f64 = 400.0;
