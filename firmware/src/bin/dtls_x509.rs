//! Two DTLS endpoints in one image with certificates on both sides. Each endpoint sends two certificates: the
//! certificate of a device, and that of the CA that issued it. The trust anchor has signed the certificate of the CA.
//! The handshake has a key agreement, which both endpoints sign with ECDSA over secp256r1. A record in each direction
//! follows. The endpoints have no clock.
#![no_std]
#![no_main]

use tegmen::crypto::{SCALAR_LEN, SignatureScheme};
use tegmen::cx::Cx;
use tegmen::dtls::{
    Answer, CertificateType, CipherSuite, ClientAuthentication, Config, Credential, HandshakeState, Keys, Need,
    PublicKeys, Suites,
};
use tegmen::endpoint::{Endpoint, Peer, PeerArray};
use tegmen_firmware::Provider;
use tegmen_firmware::measure::{Note, exit, stack_of};
use tegmen_firmware::pair::{self, ANSWER_LEN, Either, HANDSHAKE_NOTES, Pair, Proves, WHO};
use tegmen_x509::{self as x509, Anchor, KeyPurpose, Name, Refusal, Rules};

#[used]
#[unsafe(link_section = ".footprint")]
static HANDSHAKE: [Note; HANDSHAKE_NOTES.len()] = HANDSHAKE_NOTES;
#[used]
#[unsafe(link_section = ".footprint")]
static SIZES: [Note; 4] = [
    Note::size("Peer", size_of::<Peer>()),
    Note::size("HandshakeState", size_of::<HandshakeState>()),
    Note::size("peer table of one", size_of::<Table>()),
    Note::size("x509::Path", size_of::<x509::Path<'_>>()),
];

#[unsafe(no_mangle)]
extern "C" fn main() -> ! {
    exit(stack_of(run).is_some())
}

/// Runs the whole exchange. Returns `None` if a result is not the expected one.
fn run() -> Option<()> {
    let mut pair = PAIR.start(endpoint)?;
    pair.client.connect(&mut pair.cx)?;
    pair.meet(|_| Some(()))?;
    pair.speak()
}

/// Makes an endpoint. Client and server have the same certificates and the same trust anchor.
fn endpoint(cx: &mut Cx<'_, Provider>, table: &'static mut Table) -> Endpoint<&'static mut Table, Role> {
    Endpoint::with_roles(cx, table, Config::default(), PublicKeys { role: Either, keys: Certified })
}

/// The certificates and the private key that client and server both use, and the trust anchor.
struct Certified;

impl Keys for Certified {
    const CERTIFICATES_IN_PARTS: bool = true;

    fn credential(&self, _: u32, number: u8) -> Option<Credential<'_>> {
        let credential = Credential {
            certificate_type: CertificateType::X509,
            scheme: SignatureScheme::ECDSA_SECP256R1_SHA256,
            content: PATH,
        };
        (number == 0).then_some(credential)
    }

    fn client_authentication(&self) -> ClientAuthentication {
        ClientAuthentication::Required
    }

    fn suites(&self, _: u32) -> Suites {
        Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8])
    }
}

impl Proves for Certified {
    type Kept = Option<x509::Path<'static>>;

    fn answer<'a>(
        crypto: &mut Provider,
        need: Need<'_>,
        path: &mut Self::Kept,
        room: &'a mut [u8; ANSWER_LEN],
    ) -> Answer<'a> {
        match need {
            Need::VerifyCertificate { certificate, is_first, is_last } => {
                match path.get_or_insert(x509::Path::new(&RULES)).take(crypto, certificate, is_first, is_last) {
                    Ok(Some(end_entity)) => {
                        *room = end_entity.public_key;
                        Answer::Peer { public_key: room, principal: WHO }
                    }
                    Ok(None) => Answer::Continue,
                    Err(_) => Answer::Refused(Refusal::ALERT),
                }
            }
            Need::Sign { digest, .. } => pair::sign(crypto, &PRIVATE, &digest, room),
            _ => Answer::Refused(Refusal::ALERT),
        }
    }
}

type Role = PublicKeys<Either, Certified>;

/// A table for one peer, with 400 bytes that a handshake with public keys needs, and 432 bytes for received fragments.
/// The 432 bytes must suffice for a whole certificate and the bytes in front of it.
type Table = PeerArray<(), 1, 1, 400, 432>;

static PAIR: Pair<Table, Role, DATAGRAM_LEN> = Pair::new(Table::new(), Table::new());

/// The rules for a valid path. A valid path ends with the certificate of the device that has this EUI-64. The device
/// may be client or server.
static RULES: Rules<'_> = Rules {
    anchors: &[Anchor {
        name: include_bytes!("../../x509/anchor-name.der"),
        public_key: include_bytes!("../../x509/anchor-key.der"),
    }],
    purpose: KeyPurpose::Server,
    name: Name::Eui64([1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]),
    now: None,
};
/// The private key of the device. It is used only for this measurement. The script `x509/make.sh` makes the
/// certificates of this key.
const PRIVATE: [u8; SCALAR_LEN] = [1; SCALAR_LEN];
static PATH: &[u8] = include_bytes!("../../x509/path.bin");

/// Length of a datagram buffer in bytes. The longest message of a flight, which contains the certificates, must fit.
const DATAGRAM_LEN: usize = 800;
