//! The handshakes of the paper, which use TLS_RSA_WITH_AES_128_CBC_SHA. They are datagrams with the lengths of the real
//! messages, because no simulated mote supports this cipher suite, and Tegmen accepts no RSA key below 2048 bits.

use super::{Flow, INTERNET, Paper, Step};
use crate::sim::Micros;
use tegmen::time::Duration;

/// The names of the handshakes. There are RSA keys of 1024 and of 2048 bits. In a mutual handshake client and server
/// authenticate themselves, and in the other handshakes only the server does.
pub(super) const NAMES: [&str; 4] = [
    "handshake_rsa_1024_mutual",
    "handshake_rsa_1024_server",
    "handshake_rsa_2048_mutual",
    "handshake_rsa_2048_server",
];

/// The first byte of a datagram that represents records of a handshake with RSA keys. No content type of DTLS has this
/// value. The second byte of the datagram is the number of records.
const MARK: u8 = 0xff;

/// Returns the number of DTLS records in a datagram. A simulated datagram of an RSA handshake contains no real records,
/// but the number of records in its second byte.
pub(super) fn records(datagram: &[u8]) -> usize {
    match datagram {
        [MARK, records, ..] => (*records).into(),
        _ => crate::papers::records(datagram),
    }
}

pub(super) fn handshakes(paper: &Paper) -> impl Iterator<Item = Flow> {
    let handshakes = [(128, true), (128, false), (256, true), (256, false)];
    NAMES.into_iter().zip(handshakes).map(|(name, (modulus, mutual))| {
        // The first timeout is five seconds, and each retransmission doubles it (section V-A of the paper).
        Flow::new(name, &steps(paper, modulus, mutual), Duration::from_secs(5))
    })
}

/// Returns the flights of a handshake with RSA keys (RFC 5246, section 7.4; RFC 6347, section 4.2). `modulus` is the
/// length of the RSA modulus in bytes.
fn steps(paper: &Paper, modulus: usize, mutual: bool) -> Vec<Step> {
    let hello = 2 + 32 + 1 + 2 + 2 + 1 + 1;
    let certificate = 3 + 3 + modulus + modulus + CERTIFICATE;
    let finished = IV + (MESSAGE + 12 + HMAC + 1).next_multiple_of(IV);
    let mut server = vec![2 + 32 + 1 + 32 + 2 + 1, certificate];
    let mut client = Vec::new();
    if mutual {
        server.push(1 + 1 + 2 + 2 + NAME);
        client.push(certificate);
    }
    server.push(0);
    client.push(2 + modulus);
    if mutual {
        client.push(2 + modulus);
    }
    let micros = |rows: &[&str]| -> Micros {
        let column = usize::from(!mutual);
        rows.iter().map(|row| (paper.table1.minimum[*row].ms[column] * 1e3) as Micros).sum()
    };
    // The mote computes before it sends the flight with the certificates. The TPM of the mote starts before the first
    // flight.
    let work = micros(&["computation", "tpm_twi", "tpm_verify", "tpm_encrypt", "tpm_sign"]);
    let flights = [
        (true, vec![handshake(hello + 1)], micros(&["tpm_start"])),
        (false, vec![handshake(2 + 1 + COOKIE)], INTERNET),
        (true, vec![handshake(hello + 1 + COOKIE)], 0),
        (false, server.into_iter().map(handshake).collect(), INTERNET),
        (true, client.into_iter().map(handshake).chain([CHANGE, RECORD + finished]).collect(), work),
        (false, vec![CHANGE, RECORD + finished], INTERNET),
    ];
    let mut steps: Vec<Step> = Vec::new();
    for (by_publisher, messages, pause) in flights {
        // A datagram has as many messages as fit the MTU of IPv6.
        let mut datagrams: Vec<(usize, usize)> = Vec::new();
        for len in messages {
            match datagrams.last_mut() {
                Some((bytes, records)) if *bytes + len <= MTU => (*bytes, *records) = (*bytes + len, *records + 1),
                _ => datagrams.push((len, 1)),
            }
        }
        for (len, records) in datagrams {
            let number = steps.len() as u8;
            let head = [MARK, records as u8, number];
            let bytes = head.into_iter().chain(std::iter::repeat(number)).take(len).collect();
            steps.push(Step { by_publisher, bytes, pause });
        }
    }
    steps
}

/// Returns the length of a record that contains a handshake message whose body has `body` bytes.
const fn handshake(body: usize) -> usize {
    RECORD + MESSAGE + body
}

/// Length of the header of a record, in bytes.
const RECORD: usize = 13;
const MESSAGE: usize = 12;
/// Length of a ChangeCipherSpec record, in bytes.
const CHANGE: usize = RECORD + 1;
/// Length of the initialization vector of AES-128 in CBC mode, in bytes.
const IV: usize = 16;
/// Length of an HMAC-SHA-1, in bytes.
const HMAC: usize = 20;
const COOKIE: usize = 20;
/// Length of a certificate in bytes, without its key and its signature. It consists of names, times and algorithms. The
/// length is assumed, because the paper does not print it.
const CERTIFICATE: usize = 250;
/// Length of the distinguished name of a CA, in bytes.
const NAME: usize = 50;
/// Maximum length of the UDP payload in an IPv6 packet of 1280 bytes.
const MTU: usize = 1232;
