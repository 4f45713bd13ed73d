use super::*;
use crate::counters::Counters;
use crate::crypto::RustCrypto;
use crate::cx::Cx;
use crate::dtls::association::Association;
use crate::dtls::context::HandshakeContext;
use crate::dtls::need::Answer;
use crate::dtls::record::Record;
use crate::dtls::roles::{Both, Credential, Keys, PublicKeys};
use crate::dtls::state::{Buffers, Handshake};
use crate::dtls::{AlertDescription, Config, Settings, record};
use crate::identity::Principal;
use crate::time::Instant;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use std::vec;
use std::vec::Vec;

struct InParts;

impl Keys for InParts {
    const CERTIFICATES_IN_PARTS: bool = true;

    fn credential(&self, _: u32, _: u8) -> Option<Credential<'_>> {
        None
    }
}

/// A client that waits for the Certificate message of the server.
struct Client {
    crypto: RustCrypto,
    counters: Counters,
    state: HandshakeState,
    association: Association,
    incoming: Vec<u8>,
    outgoing: [u8; 300],
    /// The certificates that the client asked its owner to verify. The next field is true if the last of these
    /// certificates was also the last of the list.
    lent: Vec<Vec<u8>>,
    is_complete: bool,
}

/// The message_seq of the Certificate message.
const SEQ: u16 = 2;

impl Client {
    fn new(room: usize) -> Self {
        let mut state = HandshakeState::idle();
        state.transcript.restart();
        (state.step, state.receive_seq, state.answered_seq) = (Step::AwaitServerCertificate, SEQ, 1);
        Self {
            crypto: RustCrypto::new([1; 32]),
            counters: Counters::default(),
            state,
            association: Association::none(),
            incoming: vec![0; room],
            outgoing: [0; 300],
            lent: Vec::new(),
            is_complete: false,
        }
    }

    fn with<T>(
        &mut self,
        call: impl FnOnce(&mut Handshake<'_>, &mut Cx<'_, RustCrypto>, HandshakeContext<'_, PublicKeys<Both, InParts>>) -> T,
    ) -> T {
        let settings = Settings::from(Config::default());
        let roles = PublicKeys { role: Both, keys: InParts };
        let buffers = Buffers { outgoing: &mut self.outgoing, incoming: &mut self.incoming };
        let mut handshake =
            Handshake { state: &mut self.state, association: &mut self.association, ids: None, buffers };
        let mut cx = Cx { now: Instant::from_micros(0), crypto: &mut self.crypto, counters: &mut self.counters };
        call(&mut handshake, &mut cx, HandshakeContext { settings: &settings, roles: &roles })
    }

    /// Passes a fragment to the client. After each question to the owner, the owner answers at once, and the client
    /// gets the same record again, as an endpoint would pass it.
    fn receive(&mut self, total: usize, offset: usize, body: &[u8]) -> Result<(), Outcome> {
        loop {
            let header =
                handshake::header(MessageType::CERTIFICATE, total as u32, SEQ, offset as u32, body.len() as u32);
            let mut bytes = [&header[..], body].concat();
            let header = [22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0];
            let record = Record { header: &header, body: &mut bytes };
            match self.with(|handshake, cx, context| handshake.receive(cx, context, record)) {
                Err(Outcome::Need) => self.answer()?,
                over => return over,
            }
        }
    }

    fn answer(&mut self) -> Result<(), Outcome> {
        loop {
            let need = self.with(|handshake, _, _| {
                let reborrowed = Handshake {
                    state: &mut *handshake.state,
                    association: &mut *handshake.association,
                    ids: None,
                    buffers: Buffers {
                        outgoing: &mut *handshake.buffers.outgoing,
                        incoming: &mut *handshake.buffers.incoming,
                    },
                };
                match reborrowed.need::<PublicKeys<Both, InParts>>() {
                    Some(Need::VerifyCertificate { certificate, is_first, is_last }) => {
                        (certificate.to_vec(), is_first, is_last)
                    }
                    other => panic!("{other:?}"),
                }
            });
            let (certificate, is_first, is_last) = need;
            assert!(!self.is_complete, "none is asked for behind the last");
            assert_eq!(is_first, self.lent.is_empty());
            self.lent.push(certificate);
            self.is_complete = is_last;
            let answer = match is_last {
                true => Answer::Peer { public_key: &[1; 91], principal: Principal(1) },
                false => Answer::Continue,
            };
            match self.resume(answer) {
                Err(Outcome::Need) => {}
                over => return over,
            }
        }
    }

    fn resume(&mut self, answer: Answer<'_>) -> Result<(), Outcome> {
        self.with(|handshake, cx, context| handshake.resume(cx, context, answer))
    }

    /// Asserts that the bytes in the transcript are the bytes of the certificates that the owner of the endpoint
    /// verified.
    fn assert_hashed(&self) {
        let list: Vec<u8> = self.lent.iter().flat_map(|certificate| entry(certificate)).collect();
        let mut expected = HandshakeState::idle();
        expected.transcript.restart();
        expected.hash_message::<RustCrypto>(MessageType::CERTIFICATE, SEQ, &entry(&list));
        let digests = [&expected, &self.state].map(|state| state.transcript.digest_so_far::<RustCrypto>());
        assert_eq!(digests[0], digests[1]);
        assert_eq!((self.state.step, self.state.receive_seq), (Step::AwaitServerKeyExchange, SEQ + 1));
    }
}

fn entry(bytes: &[u8]) -> Vec<u8> {
    [&(bytes.len() as u32).to_be_bytes()[1..], bytes].concat()
}

/// Returns three certificates, and the body of a Certificate message with them.
fn three() -> (Vec<Vec<u8>>, Vec<u8>) {
    let certificates: Vec<Vec<u8>> =
        [33, 50, 21].iter().map(|len| (0..*len).map(|n| (n * len) as u8).collect()).collect();
    let list: Vec<u8> = certificates.iter().flat_map(|certificate| entry(certificate)).collect();
    (certificates, entry(&list))
}

#[test]
fn three_certificates_come_in_fragments_of_every_size() {
    let (certificates, body) = three();
    // The longest of them just fits, and all of the list.
    for room in [56, 57, 200] {
        for size in 1..=body.len() {
            let mut client = Client::new(room);
            for (at, piece) in body.chunks(size).enumerate() {
                assert_eq!(client.receive(body.len(), at * size, piece), Ok(()), "{size}");
            }
            assert!(client.is_complete, "{size}");
            assert_eq!(client.lent, certificates, "{size}");
            client.assert_hashed();
        }
    }
}

#[test]
fn a_certificate_one_byte_longer_than_the_room_is_too_large() {
    let (_, body) = three();
    for size in 1..=body.len() {
        let mut client = Client::new(55);
        let outcome = body.chunks(size).enumerate().map(|(at, piece)| client.receive(body.len(), at * size, piece));
        let outcome = outcome.into_iter().find(Result::is_err);
        assert_eq!(outcome, Some(Err(Outcome::Fatal(Fatal::TooLarge))), "{size}");
        assert_eq!(client.lent.len(), 1, "{size}");
    }
}

#[test]
fn only_the_last_certificate_ends_the_list_and_no_other() {
    let (_, body) = three();
    let peer = || Answer::Peer { public_key: &[1; 91], principal: Principal(1) };
    let refused = Err(Outcome::Fatal(Fatal::Refused(AlertDescription::CERTIFICATE_UNKNOWN)));
    let mut header = [22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0];
    header[12] = body.len() as u8;
    let ask = |client: &mut Client| {
        let start = handshake::header(MessageType::CERTIFICATE, body.len() as u32, SEQ, 0, body.len() as u32);
        let mut bytes = [&start[..], &body].concat();
        let record = Record { header: &header, body: &mut bytes };
        client.with(|handshake, cx, context| handshake.receive(cx, context, record))
    };
    for early in 0..3 {
        let mut client = Client::new(200);
        assert_eq!(ask(&mut client), Err(Outcome::Need));
        for _ in 0..early {
            assert_eq!(client.resume(Answer::Continue), Err(Outcome::Need));
        }
        match early {
            2 => assert_eq!(client.resume(Answer::Continue), refused),
            _ => assert_eq!(client.resume(peer()), refused),
        }
    }
    let mut client = Client::new(200);
    assert_eq!(ask(&mut client), Err(Outcome::Need));
    assert_eq!(client.resume(Answer::Refused(AlertDescription(1))), Err(Fatal::Refused(AlertDescription(1)).into()));
}

proptest! {
    /// The fragments arrive in any order, with overlaps, repetitions and losses, mixed with forged fragments and
    /// early messages.
    #[test]
    fn what_is_lent_is_what_was_hashed(
        certificates in vec(vec(any::<u8>(), 0..60), 1..5),
        pieces in vec((any::<Index>(), any::<Index>(), 0u8..20), 0..60),
        room in 66usize..200,
        forges: bool,
    ) {
        let list: Vec<u8> = certificates.iter().flat_map(|certificate| entry(certificate)).collect();
        let body = entry(&list);
        let mut client = Client::new(room);
        let mut over = false;
        // At the end the peer sends all fragments again, while one of them does not fit.
        let again = (0..100).flat_map(|_| body.chunks(40).enumerate().map(|(at, piece)| (40 * at, piece.to_vec(), 0)));
        let pieces = pieces.into_iter().map(|(start, end, what)| {
            let start = start.index(body.len());
            let end = start + end.index(body.len() - start + 1);
            (start, body[start..end].to_vec(), what)
        });
        for (start, mut piece, what) in pieces.chain(again) {
            let mut total = body.len();
            match what {
                1 if forges => piece.iter_mut().for_each(|byte| *byte ^= 0x55),
                2 if forges => total += 1,
                // The next message, whole.
                3 => {
                    let header = handshake::header(MessageType::SERVER_KEY_EXCHANGE, 9, SEQ + 1, 0, 9);
                    let mut bytes = [&header[..], &[start as u8; 9]].concat();
                    let header = [22, 254, 253, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0];
                    let record = Record { header: &header, body: &mut bytes };
                    if !client.is_complete {
                        let _ = client.with(|handshake, cx, context| handshake.receive(cx, context, record));
                    }
                    continue;
                }
                _ => {}
            }
            if client.is_complete {
                break;
            }
            if let Err(Outcome::Fatal(fatal)) = client.receive(total.max(start + piece.len()), start, &piece) {
                // What waited is not a ServerKeyExchange that parses.
                prop_assert!(forges || client.is_complete, "{fatal:?}");
                over = true;
                break;
            }
        }
        if !forges {
            prop_assert!(client.is_complete);
            prop_assert_eq!(&client.lent, &certificates);
        }
        if client.is_complete && !over {
            client.assert_hashed();
        }
        if !forges || client.is_complete {
            prop_assert!(client.lent.iter().all(|certificate| certificate.len() + 6 <= room));
        }
    }

    #[test]
    fn any_fragments_are_total(
        room in 0usize..80,
        steps in vec((0usize..200, 0usize..100, vec(any::<u8>(), 0..50), any::<u8>()), 0..50),
    ) {
        let mut client = Client::new(room);
        for (total, offset, mut body, small) in steps {
            // Lengths that lead somewhere.
            if small < 200 {
                body.iter_mut().take(6).for_each(|byte| *byte &= 0x1f * u8::from(small % 3 == 0));
            }
            if client.is_complete || client.receive(total.max(offset + body.len()), offset, &body).is_err() {
                break;
            }
        }
        let _ = record::MAX_SEALED;
    }
}
