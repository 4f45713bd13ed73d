//! Two DTLS endpoints in one image with raw public keys (RFC 7250) on both sides. The handshake has a key agreement,
//! which both endpoints sign with ECDSA over secp256r1. A record in each direction follows. Each endpoint trusts only
//! one public key.
#![no_std]
#![no_main]

use tegmen::crypto::{SCALAR_LEN, SignatureScheme};
use tegmen::cx::Cx;
use tegmen::dtls::{
    AlertDescription, Answer, CertificateType, CipherSuite, ClientAuthentication, Config, Credential, HandshakeState,
    Keys, Need, PublicKeys, Suites,
};
use tegmen::endpoint::{Endpoint, Peer, PeerArray};
use tegmen_firmware::Provider;
use tegmen_firmware::measure::{Note, exit, stack_of};
use tegmen_firmware::pair::{self, ANSWER_LEN, Either, HANDSHAKE_NOTES, Pair, Proves, WHO};

#[used]
#[unsafe(link_section = ".footprint")]
static HANDSHAKE: [Note; HANDSHAKE_NOTES.len()] = HANDSHAKE_NOTES;
#[used]
#[unsafe(link_section = ".footprint")]
static SIZES: [Note; 3] = [
    Note::size("Peer", size_of::<Peer>()),
    Note::size("HandshakeState", size_of::<HandshakeState>()),
    Note::size("peer table of one", size_of::<Table>()),
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

/// Makes an endpoint. Client and server have the same key pair, and each trusts the public key of this pair.
fn endpoint(cx: &mut Cx<'_, Provider>, table: &'static mut Table) -> Endpoint<&'static mut Table, Role> {
    Endpoint::with_roles(cx, table, Config::default(), PublicKeys { role: Either, keys: Pinned })
}

/// A key pair, and the only public key that is trusted.
struct Pinned;

impl Keys for Pinned {
    fn credential(&self, _: u32, number: u8) -> Option<Credential<'_>> {
        let credential = Credential {
            certificate_type: CertificateType::RAW_PUBLIC_KEY,
            scheme: SignatureScheme::ECDSA_SECP256R1_SHA256,
            content: &PUBLIC,
        };
        (number == 0).then_some(credential)
    }

    fn client_authentication(&self) -> ClientAuthentication {
        ClientAuthentication::Required
    }

    fn peer_types(&self) -> &[CertificateType] {
        &[CertificateType::RAW_PUBLIC_KEY]
    }

    fn suites(&self, _: u32) -> Suites {
        Suites(&[CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8])
    }
}

impl Proves for Pinned {
    type Kept = ();

    fn answer<'a>(
        crypto: &mut Provider,
        need: Need<'_>,
        (): &mut Self::Kept,
        room: &'a mut [u8; ANSWER_LEN],
    ) -> Answer<'a> {
        match need {
            Need::VerifyPeer { content, .. } if *content == PUBLIC => {
                Answer::Peer { public_key: &PUBLIC, principal: WHO }
            }
            Need::Sign { digest, .. } => pair::sign(crypto, &PRIVATE, &digest, room),
            _ => Answer::Refused(AlertDescription::CERTIFICATE_UNKNOWN),
        }
    }
}

type Role = PublicKeys<Either, Pinned>;

/// A table for one peer, with the memory that a handshake with public keys needs.
type Table = PeerArray<(), 1, 1, 400, 400>;

static PAIR: Pair<Table, Role, DATAGRAM_LEN> = Pair::new(Table::new(), Table::new());
/// The private key that client and server both use. It is used only for this measurement.
const PRIVATE: [u8; SCALAR_LEN] = [1; SCALAR_LEN];
/// The SubjectPublicKeyInfo of the public key that belongs to `PRIVATE`.
static PUBLIC: [u8; 91] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86, 0x48, 0xce,
    0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04, 0x6f, 0xf0, 0x3b, 0x94, 0x92, 0x41, 0xce, 0x1d, 0xad, 0xd4, 0x35,
    0x19, 0xe6, 0x96, 0x0e, 0x0a, 0x85, 0xb4, 0x1a, 0x69, 0xa0, 0x5c, 0x32, 0x81, 0x03, 0xaa, 0x2b, 0xce, 0x15, 0x94,
    0xca, 0x16, 0x3c, 0x4f, 0x75, 0x3a, 0x55, 0xbf, 0x01, 0xdc, 0x53, 0xf6, 0xc0, 0xb0, 0xc7, 0xee, 0xe7, 0x8b, 0x40,
    0xc6, 0xff, 0x7d, 0x25, 0xa9, 0x6e, 0x22, 0x82, 0xb9, 0x89, 0xce, 0xf7, 0x1c, 0x14, 0x4a,
];

/// Length of a datagram buffer in bytes. The flight of the server is the longest.
const DATAGRAM_LEN: usize = 600;
