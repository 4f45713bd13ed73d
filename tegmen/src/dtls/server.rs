//! Server side of the PSK handshake (RFC 4279 over RFC 6347).
//!
//! ClientHello(cookie) -> ServerHello, ServerHelloDone -> ClientKeyExchange, ChangeCipherSpec, Finished
//! -> ChangeCipherSpec, Finished. The hello without cookie is answered by the endpoint, without state.

use super::flight::Element;
use super::handshake::client_hello::ClientHello;
use super::handshake::{Fragment, MessageType, key_exchange};
use super::record::{Aead, RecordNumber};
use super::state::{Answer, HandshakeState, MAX_PSK, Ongoing, Step, Stop};
use super::{Fatal, Profile, Settings, Suites, VERSION};
use crate::crypto::Crypto;
use crate::endpoint::{Cx, Principal};
use crate::secret::Secret;

impl HandshakeState {
    /// Begins a handshake as server, with a hello whose cookie was valid; the answer is due at once.
    pub(crate) fn accept<C: Crypto>(
        &mut self,
        cx: &mut Cx<'_, C>,
        settings: &Settings,
        number: RecordNumber,
        fragment: &Fragment<'_>,
        hello: &ClientHello<'_>,
        aead: Aead,
    ) {
        self.begin(Step::AwaitClientKeyExchange, Element::ServerHello, cx.now, settings);
        self.aead = aead;
        self.client_random = *hello.random;
        cx.crypto.random(&mut self.server_random);
        self.extended_master_secret = !self.minimal && hello.extensions.extended_master_secret;
        self.renegotiation_info = !self.minimal && hello.signals_renegotiation_info();
        // The numbers go on from the client's, which the stateless answer used too (RFC 6347, section 4.2.1).
        self.next_sequence = number.sequence();
        self.flight_seq = fragment.message_seq();
        self.receive_seq = fragment.message_seq().wrapping_add(1);
        self.answered_seq = self.receive_seq;
        self.hash_message::<C>(fragment.message_type(), fragment.message_seq(), fragment.body);
    }

    /// Checks what a hello offers, and chooses the cipher.
    pub(crate) fn acceptable<C: Crypto>(hello: &ClientHello<'_>, settings: &Settings) -> Result<Aead, Fatal> {
        // DTLS counts its versions down: 1.2 is {254, 253}.
        let [major, minor] = hello.version;
        if major != VERSION[0] || minor > VERSION[1] {
            return Err(Fatal::Version);
        }
        let suites = if C::GCM && settings.profile == Profile::Default { settings.suites } else { Suites::Ccm8 };
        let chosen = suites.in_order().iter().find(|aead| hello.offers(aead.cipher_suite()));
        chosen.copied().filter(|_| hello.offers_null_compression()).ok_or(Fatal::NoCommonSuite)
    }
}

impl Ongoing<'_> {
    pub(crate) fn on_client_message(&mut self, kind: MessageType, body: &[u8]) -> Result<(), Stop> {
        match (self.state.step, kind) {
            (Step::AwaitClientKeyExchange, MessageType::CLIENT_KEY_EXCHANGE) => {
                let identity = key_exchange::read(body).map_err(|_| Fatal::Decode)?;
                // An identity that fits nowhere is one that nobody has.
                if self.keep(identity).is_err() {
                    self.state.outgoing_len = 0;
                }
                self.state.step = Step::ServerNeedsPsk;
                self.state.deadline = self.state.give_up;
                Err(Stop::Need)
            }
            (Step::AwaitClientFinished, MessageType::FINISHED) => {
                self.state.start_flight(Element::ChangeCipherSpec);
                self.state.step = Step::Lingering;
                self.state.inbox.clear();
                Err(Stop::Established)
            }
            (_, unexpected) => Err(Fatal::UnexpectedMessage(unexpected).into()),
        }
    }

    pub(crate) fn resume_server<C: Crypto>(&mut self, cx: &mut Cx<'_, C>, answer: Answer<'_>) {
        // Drawn in either case, so that a known identity takes no less time than an unknown one.
        let mut random = Secret::<16>::zeroed();
        cx.crypto.random(random.expose_mut());
        let (key, principal): (&[u8], _) = match answer {
            Answer::Psk { key, principal, .. } if !key.is_empty() && key.len() <= MAX_PSK => (key, principal),
            _ => {
                self.state.identity_unknown = true;
                (random.expose(), Principal::NOBODY)
            }
        };
        self.peer.principal = principal;
        self.derive_keys(cx, key, false);
        self.state.step = match self.state.change_cipher_spec {
            true => Step::AwaitClientFinished,
            false => Step::AwaitClientChangeCipherSpec,
        };
    }
}
