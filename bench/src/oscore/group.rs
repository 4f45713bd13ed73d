//! Measures Group OSCORE in the group mode and in the pairwise mode, with the same GET and the same response as in the
//! benchmark of OSCORE. Each mode is compared with the cryptographic work that it cannot avoid.

use super::{COUNT, Pair, READING};
use crate::{
    Options,
    report::{Limit, Report, Row, median},
};
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageType, OptionNumber};
use tegmen::crypto::ecdsa::SIGNATURE_LEN;
use tegmen::crypto::{Algorithm, Crypto as _, Curve, GroupCrypto as _, MemberKey, ed25519};
use tegmen::oscore::group::{
    Algorithms, GroupContext, GroupParameters, Mode, Ourselves, Recipient, Replies, key_of_ccs,
};
use tegmen::oscore::{Id, ReplayWindow, Unprotected};
use tegmen::secret::Secret;
use tegmen_bench_line::{Failure, cpu_time};
use tegmen_host::provider::HostCrypto;
use tegmen_host::provider::public::{Group, MAX_PUBLIC_LEN};

type Context = GroupContext<Vec<u8>, 320>;
const OVERHEAD: usize = Context::OVERHEAD;
const GID: &[u8] = b"g";
/// Number of pairs (a GET and its response) in one pass of the group mode, in which messages are signed.
const SIGNED: u32 = 4_000;
/// Lengths of the encrypted text in the request and in the response of [`Members::exchange`], in bytes.
const TEXTS: [usize; 2] = [21, 20];
/// Length of the additional authenticated data of OSCORE (RFC 8613, section 5.4) in bytes. It contains an ID of one
/// byte and a sequence number of three bytes.
const OSCORE_AAD: usize = 12 + 3 + 1 + 2 + 4 + 1;
const TAG_LEN: usize = 8;

/// Adds the rows of the group mode and of the pairwise mode to the report.
pub(super) fn rows(options: &Options, report: &mut Report) -> Result<(), Failure> {
    report.header.notes.push(
        "Group OSCORE: the peer `bare work` is, in the pairwise mode, the pair of OSCORE in this run with the cipher's time for the \
         longer additional data in place of its own; in the group mode it is two signatures and two verifications of messages of \
         that length with the same provider"
            .into(),
    );
    let mut oscore = Pair::new()?;
    oscore.run(COUNT)?;
    let mut pairwise = Members::new(Curve::Ed25519, true)?;
    let mut cipher = Cipher::new()?;
    let (long, short) = (pairwise.aad_len(), OSCORE_AAD);
    let sides = (0..options.passes).map(|_| {
        let per_pair = |nanoseconds: f64| nanoseconds / f64::from(COUNT);
        let base = per_pair(oscore.run(COUNT)?);
        let more = per_pair(cipher.run(COUNT, long)?) - per_pair(cipher.run(COUNT, short)?);
        Ok((1e9 / per_pair(pairwise.run(COUNT)?), 1e9 / (base + more)))
    });
    report.rows.push(row("Group OSCORE, pairwise mode", sides.collect::<Result<_, Failure>>()?));
    for curve in [Curve::Ed25519, Curve::P256] {
        let mut members = Members::new(curve, false)?;
        let len = members.aad_len();
        let sides = (0..options.passes).map(|_| {
            let per_pair = |nanoseconds: f64| nanoseconds / f64::from(SIGNED);
            let alone = per_pair(members.signatures(SIGNED, len)?);
            Ok((1e9 / per_pair(members.run(SIGNED)?), 1e9 / alone))
        });
        let name = format!("Group OSCORE, group mode, {curve:?}");
        report.rows.push(row(&name, sides.collect::<Result<_, Failure>>()?));
    }
    Ok(())
}

/// Makes a row of the report for one mode of Group OSCORE. Each entry of `sides` has two rates of one pass: of Tegmen,
/// and of a loop that executes only the cryptographic operations that the mode requires.
fn row(name: &str, sides: Vec<(f64, f64)>) -> Row {
    let of = |side: fn(&(f64, f64)) -> f64| median(&sides.iter().map(side).collect::<Vec<_>>());
    let ratio = of(|(ours, bare)| ours / bare);
    Row {
        ours: of(|(ours, _)| *ours),
        peer: of(|(_, bare)| *bare),
        ratio,
        more_is_better: true,
        ..Row::new(name, "bare work", "1/CPU s", Some(Limit::AtLeast(0.85).judge("ratio", ratio)))
    }
}

/// The ciphers of the client and of the server, without OSCORE.
struct Cipher {
    cryptos: [HostCrypto; 2],
}

impl Cipher {
    fn new() -> Result<Self, Failure> {
        Ok(Self { cryptos: [provider()?, provider()?] })
    }

    /// Returns the CPU time in nanoseconds in which the cipher seals and opens the messages of `count` pairs. A pair is
    /// a request and its response.
    fn run(&mut self, count: u32, aad_len: usize) -> Result<f64, Failure> {
        let (aad, keys) = (vec![7; aad_len], [[1; 16], [2; 16]]);
        let start = cpu_time()?;
        for n in 0..count {
            let mut nonce = [3; 13];
            nonce[9..].copy_from_slice(&n.to_be_bytes());
            let [a, b] = &mut self.cryptos;
            for ((len, key), (from, to)) in TEXTS.into_iter().zip(&keys).zip([(0, 1), (1, 0)]) {
                let (mut text, mut tag) = ([5; 32], [0; TAG_LEN]);
                let text = &mut text[..len];
                let at = [&mut *a, &mut *b];
                let sealed = at[from].seal(Algorithm::Ccm, key, &nonce, &aad, text, &mut tag).is_ok();
                if !sealed || at[to].open(Algorithm::Ccm, key, &nonce, &aad, text, &tag).is_err() {
                    return Err(Failure::new("the cipher failed"));
                }
            }
        }
        Ok(cpu_time()?.saturating_sub(start).as_nanos() as f64)
    }
}

fn provider() -> Result<HostCrypto, Failure> {
    HostCrypto::from_os().map_err(|error| Failure::new(error.to_string()))
}

fn private_key(number: u8) -> [u8; 32] {
    [number + 1; 32]
}

/// Makes a CWT Claims Set that contains only a public key.
fn credential(curve: Curve, number: u8) -> Result<Vec<u8>, Failure> {
    let mut ccs = vec![0xa1, 0x08, 0xa1, 0x01];
    if curve == Curve::Ed25519 {
        ccs.extend_from_slice(&[0xa3, 0x01, 0x01, 0x20, 0x06, 0x21, 0x58, 0x20]);
        ccs.extend_from_slice(&ed25519::public_key_of(&private_key(number)));
        return Ok(ccs);
    }
    let mut point = [0; MAX_PUBLIC_LEN];
    let made = Group::Secp256r1.public_key(&Secret::new(private_key(number)), &mut point);
    made.map_err(|_| Failure::new("no key"))?;
    ccs.extend_from_slice(&[0xa4, 0x01, 0x02, 0x20, 0x01, 0x21, 0x58, 0x20]);
    ccs.extend_from_slice(&point[1..33]);
    ccs.extend_from_slice(&[0x22, 0x58, 0x20]);
    ccs.extend_from_slice(&point[33..]);
    Ok(ccs)
}

/// One of the two members of the group that exchange requests and responses.
struct Member {
    context: Context,
    other: [Recipient<Vec<u8>>; 1],
    crypto: HostCrypto,
}

/// The two members of the group that exchange requests and responses.
struct Members {
    client: Member,
    server: Member,
    curve: Curve,
    is_pairwise: bool,
}

impl Members {
    fn new(curve: Curve, is_pairwise: bool) -> Result<Self, Failure> {
        let failed = |what: &'static str| move |error| Failure::new(format!("{what}: {error:?}"));
        let id = |number: u8| Id::new(&[number]).ok_or_else(|| Failure::new("no ID"));
        let member = |us: u8, them: u8| -> Result<Member, Failure> {
            let algorithms = Algorithms::both(curve);
            let parameters = GroupParameters { master_secret: &[7; 16], master_salt: b"salt", gid: GID, algorithms };
            let ourselves = Ourselves {
                id: id(us)?,
                private_key: Secret::new(private_key(us)),
                credential: credential(curve, us)?,
                kept: 0,
            };
            let mut crypto = provider()?;
            let made = Context::new::<HostCrypto>(&parameters, ourselves, credential(curve, 9)?);
            let mut context = made.map_err(failed("context"))?;
            // Nothing is sent anywhere.
            context.lease_mut().extend(u64::MAX);
            let window = Some(ReplayWindow::default());
            let other = context.recipient(&mut crypto, id(them)?, credential(curve, them)?, window);
            Ok(Member { other: [other.map_err(failed("recipient"))?], context, crypto })
        };
        Ok(Self { client: member(1, 2)?, server: member(2, 1)?, curve, is_pairwise })
    }

    /// Returns the length of the additional authenticated data of a request (RFC 10021, section 3.4), in bytes. The
    /// sequence number of the request has three bytes.
    fn aad_len(&self) -> usize {
        let option = 1 + 3 + 1 + GID.len() + 1;
        let credential = 2 + self.client.other[0].credential().len();
        11 + 2 + 2 + 6 + 2 + 4 + 1 + (1 + GID.len()) + (1 + option) + 2 * credential
    }

    /// Exchanges `count` pairs of a GET and its response. Returns the CPU time of all pairs together, in nanoseconds.
    fn run(&mut self, count: u32) -> Result<f64, Failure> {
        let start = cpu_time()?;
        for n in 0..count {
            self.exchange(n as u16).ok_or_else(|| Failure::new("a message came out changed"))?;
        }
        Ok(cpu_time()?.saturating_sub(start).as_nanos() as f64)
    }

    /// Returns the CPU time in nanoseconds for the signatures of `count` pairs, and for their verification. A pair is a
    /// request and its response. Each signed message has `len` bytes.
    fn signatures(&mut self, count: u32, len: usize) -> Result<f64, Failure> {
        let (message, failed) = (vec![7; len], || Failure::new("a signature failed"));
        let keys: Vec<MemberKey> = [1, 2]
            .into_iter()
            .map(|n| key_of_ccs(&credential(self.curve, n)?, &Algorithms::both(self.curve)).ok_or_else(failed))
            .collect::<Result<_, _>>()?;
        let start = cpu_time()?;
        for _ in 0..count {
            let (a, b) = (&mut self.client.crypto, &mut self.server.crypto);
            for ((number, key), (from, to)) in [1, 2].into_iter().zip(&keys).zip([(0, 1), (1, 0)]) {
                let at = [&mut *a, &mut *b];
                let signature: [u8; SIGNATURE_LEN] =
                    at[from].sign_message(self.curve, &private_key(number), &[&message]).map_err(|_| failed())?;
                at[to].verify_message(key, &[&message], &signature).map_err(|_| failed())?;
            }
        }
        Ok(cpu_time()?.saturating_sub(start).as_nanos() as f64)
    }

    fn exchange(&mut self, message_id: u16) -> Option<()> {
        let Self { client, server, is_pairwise, .. } = self;
        let mut storage = [0; 128 + 2 * OVERHEAD];
        let mut request = Frame::new(&mut storage, OVERHEAD);
        let kind = MessageType::NonConfirmable;
        let mut builder = Builder::new(&mut request, kind, Code::GET, message_id, &[0xca, 0xfe]).ok()?;
        builder.option(OptionNumber::URI_PATH, b"sensors").ok()?;
        builder.option(OptionNumber::URI_PATH, b"temperature").ok()?;
        let Member { context, other: [other], crypto } = client;
        let to = if *is_pairwise { Mode::Pairwise(other) } else { Mode::Group };
        let mut pending = context.protect_request(crypto, to, [Replies::default()], &mut request).ok()?;

        let Member { context, other, crypto } = server;
        let opened = context.unprotect_request(crypto, other.as_mut_slice(), request.bytes_mut());
        let Ok(Unprotected::Fresh(asked, nonce)) = opened else { return None };
        if asked.code() != Code::GET || !asked.path_is("sensors/temperature") {
            return None;
        }
        let mut storage = [0; 128 + 2 * OVERHEAD];
        let mut response = Frame::new(&mut storage, OVERHEAD);
        let mut builder = Builder::new(&mut response, kind, Code::CONTENT, message_id, asked.token()).ok()?;
        builder.uint(OptionNumber::CONTENT_FORMAT, 42).ok()?;
        builder.payload(&READING).ok()?;
        let of = nonce.request();
        let [other] = other;
        let to = if *is_pairwise { Mode::Pairwise(other) } else { Mode::Group };
        context.protect_response(crypto, to, &of, Some(nonce), &mut response).ok()?;

        let Member { context, other, crypto } = client;
        let answer = context.unprotect_response(crypto, other.as_mut_slice(), &mut pending, response.bytes_mut());
        let (answer, _) = answer.ok()?;
        (answer.code() == Code::CONTENT && answer.payload() == READING).then_some(())
    }
}
