//! The derivation of new keys (RFC 8613, appendix B.2): the whole procedure, and everything that can disturb it.

use std::collections::HashSet;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageRef, MessageType, OptionNumber, Token};
use tegmen::crypto::{Ccm, Compact, Crypto, NotAuthentic, Unsupported};
use tegmen::oscore::{
    Aead, FirstRequest, Offers, OscoreOption, Parameters, Pending, RederivableContext, Rederived, RequestNonce,
    UnprotectError, Unprotected,
};

/// A crypto provider that fails if a nonce is used twice with one key.
struct Recorder(Compact, HashSet<(Vec<u8>, Vec<u8>)>);

impl Crypto for Recorder {
    type Aead = Ccm;
    const AES_128_CCM: Ccm = Ccm;

    fn seal(
        &mut self,
        aead: Ccm,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Unsupported> {
        assert!(self.1.insert((key.to_vec(), nonce.to_vec())), "a nonce was used twice: {nonce:02x?}");
        self.0.seal(aead, key, nonce, aad, body, tag)
    }

    fn open(
        &mut self,
        aead: Ccm,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), NotAuthentic> {
        self.0.open(aead, key, nonce, aad, body, tag)
    }

    fn sha256_compress(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
        Compact::sha256_compress(state, blocks);
    }

    fn random(&mut self, out: &mut [u8]) {
        self.0.random(out);
    }
}

fn parameters(client: bool, id_context: Option<&'static [u8]>) -> Parameters<'static> {
    let (sender_id, recipient_id): (&[u8], &[u8]) = if client { (b"c", b"s") } else { (b"s", b"c") };
    Parameters {
        master_secret: &[7; 16],
        master_salt: b"salt",
        sender_id,
        recipient_id,
        id_context,
        aead: Aead::default(),
    }
}

fn get(payload: &[u8]) -> Vec<u8> {
    built(Code::GET, payload)
}

fn built(code: Code, payload: &[u8]) -> Vec<u8> {
    let mut storage = [0; 200];
    let mut frame = Frame::new(&mut storage, 0);
    Builder::new(&mut frame, MessageType::Confirmable, code, 7, b"tok").unwrap().payload(payload).unwrap();
    frame.bytes().to_vec()
}

fn in_frame<T>(bytes: &[u8], protect: impl FnOnce(&mut Frame<'_>) -> T) -> (Vec<u8>, T) {
    let mut storage = [0; 600];
    let mut frame = Frame::new(&mut storage, 200);
    frame.append(bytes).unwrap();
    let kept = protect(&mut frame);
    (frame.bytes().to_vec(), kept)
}

/// Returns the kid context of a message.
fn kid_context(message: &[u8]) -> Option<Vec<u8>> {
    let message = MessageRef::parse(message).unwrap();
    OscoreOption::parse(message.option(OptionNumber::OSCORE).unwrap()).unwrap().kid_context.map(<[u8]>::to_vec)
}

/// Both endpoints of a context. They may have lost their state.
struct Ends {
    crypto: Recorder,
    /// The ID Context that is configured at both endpoints.
    id_context: Option<&'static [u8]>,
    client: RederivableContext,
    server: RederivableContext,
    offers: Offers,
}

impl Ends {
    /// Creates both endpoints with a context that was never used before.
    fn new(id_context: Option<&'static [u8]>) -> Self {
        let mut crypto = Recorder(Compact::new([1; 32]), HashSet::new());
        let mut client = RederivableContext::new::<Compact>(&parameters(true, id_context)).unwrap();
        let mut server = RederivableContext::new::<Compact>(&parameters(false, id_context)).unwrap();
        client.lease_mut().extend(1000);
        server.lease_mut().extend(1000);
        let offers = Offers::draw(&mut crypto);
        Self { crypto, id_context, client, server, offers }
    }

    fn client_parameters(&self) -> Parameters<'static> {
        parameters(true, self.id_context)
    }

    fn server_parameters(&self) -> Parameters<'static> {
        parameters(false, self.id_context)
    }

    fn client_loses_all(&mut self) {
        let parameters = self.client_parameters();
        self.client = RederivableContext::rederive(&mut self.crypto, &parameters).unwrap();
        self.client.lease_mut().extend(1000);
    }

    fn ask(&mut self, payload: &[u8]) -> (Vec<u8>, Pending) {
        let Self { client, crypto, .. } = self;
        let (request, pending) = in_frame(&get(payload), |frame| client.protect_request(crypto, frame));
        (request, pending.unwrap())
    }

    /// Opens a request under the context of the server. Returns its payload, and the nonce for the response.
    fn receive(&mut self, request: &[u8]) -> Result<(Vec<u8>, RequestNonce), UnprotectError> {
        let mut request = request.to_vec();
        match self.server.unprotect_request(&mut self.crypto, &mut request)? {
            Unprotected::Fresh(message, nonce) => Ok((message.payload().to_vec(), nonce)),
            Unprotected::Unverified(..) => panic!("the window is known"),
        }
    }

    fn respond(&mut self, nonce: RequestNonce) -> Vec<u8> {
        let Self { server, crypto, .. } = self;
        let (bytes, done) = in_frame(&built(Code::CONTENT, b"answer"), |frame| {
            let binding = nonce.binding();
            server.protect_response(crypto, &binding, Some(nonce), frame)
        });
        done.unwrap();
        bytes
    }

    /// Returns response #1 to a message that is a request #1.
    fn answer_first(&mut self, request: &[u8]) -> Vec<u8> {
        let mut request = request.to_vec();
        let parameters = self.server_parameters();
        let rederived = self.offers.open(&mut self.crypto, &parameters, &mut request).unwrap();
        let Rederived::First(first) = rederived else { panic!("{rederived:?}") };
        self.answer(&first)
    }

    fn answer(&mut self, first: &FirstRequest) -> Vec<u8> {
        let (parameters, head) = (self.server_parameters(), (MessageType::Acknowledgement, 7));
        let Self { offers, crypto, .. } = self;
        let (bytes, done) =
            in_frame(&[], |frame| offers.answer(crypto, &parameters, first, head, &Token::new(b"tok"), frame));
        done.unwrap();
        bytes
    }

    /// Delivers request #1 and the response to it. The client then has the context for request #2. Returns both
    /// messages.
    fn first_round(&mut self) -> (Vec<u8>, Vec<u8>) {
        let (request, mut pending) = self.ask(b"first");
        let response = self.answer_first(&request);
        self.take_first(&mut pending, &response).unwrap();
        (request, response)
    }

    fn take_first(&mut self, pending: &mut Pending, response: &[u8]) -> Result<(), UnprotectError> {
        let mut response = response.to_vec();
        let parameters = self.client_parameters();
        let (context, message) = self.client.rederived(&mut self.crypto, &parameters, pending, &mut response)?;
        assert_eq!((message.code(), message.payload()), (Code::UNAUTHORIZED, &b""[..]));
        self.client = context;
        self.client.lease_mut().extend(1000);
        Ok(())
    }

    /// Delivers request #2, from which the server gets its new context, and the response to this request. Returns the
    /// request.
    fn second_round(&mut self) -> Vec<u8> {
        let (request, mut pending) = self.ask(b"second");
        let mut bytes = request.clone();
        let parameters = self.server_parameters();
        let rederived = self.offers.open(&mut self.crypto, &parameters, &mut bytes).unwrap();
        let Rederived::Second(context, message, nonce) = rederived else { panic!("{rederived:?}") };
        assert_eq!(message.payload(), b"second");
        self.server = context;
        self.server.lease_mut().extend(1000);
        self.offers = Offers::draw(&mut self.crypto);
        let mut response = self.respond(nonce);
        let message = self.client.unprotect_response(&mut self.crypto, &mut pending, &mut response).unwrap();
        assert_eq!(message.payload(), b"answer");
        self.client.settle();
        request
    }

    /// Exchanges a request and its response under the common context. Neither message contains a kid context.
    fn usual(&mut self) {
        let (request, mut pending) = self.ask(b"usual");
        assert_eq!(kid_context(&request), None);
        let (said, nonce) = self.receive(&request).unwrap();
        assert_eq!(said, b"usual");
        let mut response = self.respond(nonce);
        assert_eq!(kid_context(&response), None);
        self.client.unprotect_response(&mut self.crypto, &mut pending, &mut response).unwrap();
    }
}

#[test]
fn a_client_that_lost_its_numbers_gets_new_keys_in_one_more_round_trip() {
    for id_context in [None, Some(&b"context"[..])] {
        let mut ends = Ends::new(id_context);
        for _ in 0..3 {
            ends.client_loses_all();
            let (request, response) = ends.first_round();
            let id1 = kid_context(&request).unwrap();
            assert_eq!((id1.len(), id1[0]), (9, 0x48));
            let r2 = kid_context(&response).unwrap();
            assert_eq!((r2.len(), r2[0]), (17, 0x50));
            let second = kid_context(&ends.second_round()).unwrap();
            assert_eq!((second.len(), &second[..2], &second[2..18]), (26, &[0x58, 24][..], &r2[1..]));
            assert_eq!(ends.client.id_context(), ends.server.id_context());
            ends.usual();
            ends.usual();
        }
    }
}

/// After the loss, the client's next request is treated as request #1, whatever ID Context the client has.
#[test]
fn a_server_that_lost_its_numbers_takes_any_request_for_the_first() {
    for id_context in [None, Some(&b"a context of 16 b"[..16])] {
        let mut ends = Ends::new(id_context);
        for _ in 0..3 {
            let known = ends.server.id_context().map(<[u8]>::to_vec);
            let again = Parameters { id_context: known.as_deref(), ..ends.server_parameters() };
            ends.server = match known == id_context.map(<[u8]>::to_vec) {
                true => RederivableContext::resume::<Compact>(&again, 1).unwrap(),
                false => RederivableContext::resume_rederived::<Compact>(&again, 1, None, true).unwrap(),
            };
            let (request, mut pending) = ends.ask(b"first");
            let mut bytes = request.clone();
            let unprotected = ends.server.unprotect_request(&mut ends.crypto, &mut bytes).unwrap();
            let Unprotected::Unverified(_, binding) = unprotected else { panic!("{unprotected:?}") };
            let first = FirstRequest::under(&ends.server, binding);
            let response = ends.answer(&first);
            ends.take_first(&mut pending, &response).unwrap();
            ends.second_round();
            ends.usual();
        }
    }
}

#[test]
fn what_is_sent_again_later_brings_nothing_back() {
    let mut ends = Ends::new(None);
    ends.client_loses_all();
    let (first, _) = ends.first_round();
    let second = ends.second_round();
    ends.usual();
    // Request #1 is answered, each time under other keys, and never delivered.
    let answers: HashSet<Vec<u8>> = (0..4).map(|_| ends.answer_first(&first)).collect();
    assert_eq!(answers.len(), 4);
    // Request #2 is one of the present context, which has seen it.
    assert_eq!(ends.receive(&second).unwrap_err(), UnprotectError::Replayed);
    // And once there is another context, it is of an R2 that is void.
    ends.client_loses_all();
    ends.first_round();
    ends.second_round();
    assert_eq!(ends.receive(&second).unwrap_err(), UnprotectError::UnknownContext);
    ends.answer_first(&second);
    ends.usual();
}

/// If an attacker sends copies of request #1 while the client is between the two rounds, the procedure succeeds.
#[test]
fn many_first_requests_at_once_do_not_disturb_each_other() {
    let mut ends = Ends::new(None);
    ends.client_loses_all();
    let (old, _) = ends.ask(b"old");
    ends.client_loses_all();
    ends.first_round();
    for _ in 0..100 {
        ends.answer_first(&old);
    }
    ends.second_round();
    ends.usual();
}

#[test]
fn an_r2_that_was_not_offered_is_none() {
    let mut ends = Ends::new(None);
    ends.client_loses_all();
    ends.first_round();
    let (request, _) = ends.ask(b"second");
    // The server forgot what it offered.
    ends.offers = Offers::draw(&mut ends.crypto);
    let (mut again, parameters) = (request.clone(), ends.server_parameters());
    let rederived = ends.offers.open(&mut ends.crypto, &parameters, &mut again).unwrap();
    assert!(matches!(rederived, Rederived::First(_)), "{rederived:?}");
    // The client learns by that that it has to begin again.
    let (third, mut pending) = ends.ask(b"third");
    let response = ends.answer_first(&third);
    ends.take_first(&mut pending, &response).unwrap();
    ends.second_round();
    ends.usual();
}

#[test]
fn no_bit_of_any_message_can_be_changed() {
    let mut ends = Ends::new(Some(b"context"));
    ends.client_loses_all();
    let (request, mut pending) = ends.ask(b"first");
    let (response, parameters) = (ends.answer_first(&request), ends.server_parameters());
    // What is not protected: version, type, Message ID and token are CoAP's own.
    let protected = |bytes: &[u8]| 7 * 8..bytes.len() * 8;
    let flipped = |bytes: &[u8], bit: usize| {
        let mut bytes = bytes.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        bytes
    };
    for bit in protected(&request) {
        assert!(ends.offers.open(&mut ends.crypto, &parameters, &mut flipped(&request, bit)).is_err(), "{bit}");
    }
    let client = ends.client_parameters();
    for bit in protected(&response) {
        let mut response = flipped(&response, bit);
        assert!(ends.client.rederived(&mut ends.crypto, &client, &mut pending, &mut response).is_err(), "{bit}");
    }
    ends.take_first(&mut pending, &response).unwrap();
    let (second, _) = ends.ask(b"second");
    for bit in protected(&second) {
        let mut second = flipped(&second, bit);
        let opened = ends.offers.open(&mut ends.crypto, &parameters, &mut second);
        assert!(opened.is_err(), "{bit}: {opened:?}");
    }
    ends.second_round();
}

/// A request whose kid context is not a CBOR byte string belongs to another context, so the server begins no
/// derivation. A plaintext response begins no derivation at the client.
#[test]
fn a_kid_context_that_is_no_byte_string_is_another_context() {
    let mut ends = Ends::new(Some(b"context"));
    let (mut request, _) = ends.ask(b"usual");
    let parameters = ends.server_parameters();
    let opened = ends.offers.open(&mut ends.crypto, &parameters, &mut request);
    assert_eq!(opened.unwrap_err(), UnprotectError::UnknownContext);
    let (mut response, mut pending) = (built(Code::CONTENT, b"in clear"), ends.ask(b"x").1);
    let client = ends.client_parameters();
    let taken = ends.client.rederived(&mut ends.crypto, &client, &mut pending, &mut response);
    assert_eq!(taken.err(), Some(UnprotectError::Unprotected));
}
