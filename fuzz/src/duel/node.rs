//! The client or the server of a test: its endpoint, the messages that it sent and received, and a crypto provider that
//! records each nonce.

use super::ends::{Ends, Kept};
use std::collections::HashSet;
use tegmen::address::{Address, Path};
use tegmen::buf::Frame;
use tegmen::crypto::{Ccm, Crypto, NotAuthentic, RustCrypto, Unsupported};
use tegmen::cx::Environment;
use tegmen::dtls::{Answer, Config, Need, Records};
use tegmen::endpoint::{Endpoint, Event, MAX_HEADROOM, Peers as _};
use tegmen::identity::{PeerId, Principal};
use tegmen::time::Instant;

pub(super) struct Node<E: Ends> {
    pub(super) endpoint: Endpoint<E::Table, E::Role>,
    pub(super) environment: Environment<Recorder>,
    pub(super) number: u8,
    pub(super) is_client: bool,
    pub(super) key: [u8; 16],
    pub(super) session: Option<PeerId>,
    pub(super) kept: Option<Kept>,
    pub(super) established: u32,
    pub(super) said: HashSet<Vec<u8>>,
    pub(super) heard: Vec<Vec<u8>>,
    pub(super) heard_before: HashSet<Vec<u8>>,
}

impl<E: Ends> Node<E> {
    pub(super) fn new(number: u8, is_client: bool, config: Config, now: Instant) -> Self {
        let mut crypto = Recorder { inner: RustCrypto::new([number; 32]), spent: HashSet::new() };
        let role = E::role(&mut crypto, &config);
        let mut environment = Environment::new(crypto);
        let endpoint = Endpoint::with_roles(&mut environment.at(now), E::table(), config, role);
        Self {
            endpoint,
            environment,
            number,
            is_client,
            key: *b"0123456789abcdef",
            session: None,
            kept: None,
            established: 0,
            said: HashSet::new(),
            heard: Vec::new(),
            heard_before: HashSet::new(),
        }
    }

    pub(super) fn path(&self, remote: u8) -> Path {
        let address = |last: u8| Address { ip: [last; 16], port: last.into(), scope: 0 };
        Path { local: address(self.number), remote: address(remote) }
    }

    pub(super) fn connect(&mut self, now: Instant) {
        let path = self.path(3 - self.number);
        let _ = self.endpoint.connect(&mut self.environment.at(now), &path);
    }

    pub(super) fn close(&mut self) {
        if let Some(session) = self.session.take() {
            self.endpoint.close(session);
        }
    }

    pub(super) fn say(&mut self, now: Instant, text: &[u8]) -> Option<Vec<u8>> {
        let mut storage = [0; 200];
        let mut frame = Frame::new(&mut storage, MAX_HEADROOM);
        frame.append(text).expect("a short text");
        self.endpoint.seal(&mut self.environment.at(now), self.session?, &mut frame).ok()?;
        self.said.insert(text.to_vec());
        Some(frame.finish().to_vec())
    }

    pub(super) fn receive(&mut self, now: Instant, from: u8, mut datagram: Vec<u8>) -> Vec<(u8, Vec<u8>)> {
        let path = self.path(from);
        let mut records = Records::new(&mut datagram);
        let mut sent = Vec::new();
        loop {
            let mut out = [0; 1400];
            let cx = &mut self.environment.at(now);
            let Some(event) = self.endpoint.handle(cx, &path, &mut records, &mut out) else { return sent };
            match event {
                Event::Answer { len } => sent.push((from, out[..len.into()].to_vec())),
                Event::Message { bytes, .. } => self.heard.push(records.bytes(bytes).to_vec()),
                event => self.on(now, event, &out, &mut sent),
            }
        }
    }

    pub(super) fn poll(&mut self, now: Instant) -> Vec<(u8, Vec<u8>)> {
        let mut sent = Vec::new();
        for _ in 0..100 {
            let mut out = [0; 1400];
            let Some(event) = self.endpoint.poll(&mut self.environment.at(now), &mut out) else { return sent };
            self.on(now, event, &out, &mut sent);
        }
        panic!("poll never comes to an end");
    }

    fn on(&mut self, now: Instant, event: Event, out: &[u8], sent: &mut Vec<(u8, Vec<u8>)>) {
        match event {
            Event::Answer { .. } | Event::Message { .. } => panic!("nothing was received"),
            Event::Transmit { peer, len } => {
                assert!(len > 0, "an empty datagram");
                let to = self.endpoint.peers.peer(peer).expect("still there").path().remote.port as u8;
                sent.push((to, out[..len.into()].to_vec()));
            }
            Event::Need(id) => {
                let known = match self.endpoint.need(id) {
                    Some(Need::PskOfClient { identity }) => identity == b"me",
                    Some(Need::PskForServer { .. }) => true,
                    other => panic!("asked for {other:?}, which is not needed"),
                };
                let answer = match known {
                    true => Answer::Psk { identity: b"me", key: &self.key, principal: Principal(1) },
                    false => Answer::Unknown,
                };
                if let Some(event) = self.endpoint.resume(&mut self.environment.at(now), id, answer) {
                    self.on(now, event, out, sent);
                }
            }
            Event::Established(id) => {
                (self.session, self.established) = (Some(id), self.established + 1);
                if let Some(kept) = E::keep(&mut self.endpoint, id) {
                    self.kept = Some(kept);
                }
            }
            Event::Closed { peer, .. } => self.session = self.session.filter(|session| *session != peer),
            Event::Alarm(_) | Event::Moved(_) => {}
        }
    }
}

/// A cryptographic provider that panics if a nonce is used twice with one key.
pub(super) struct Recorder {
    pub(super) inner: RustCrypto,
    pub(super) spent: HashSet<(Vec<u8>, Vec<u8>)>,
}

impl Crypto for Recorder {
    type Aead = Ccm;
    const AES_128_CCM: Ccm = Ccm;

    fn seal(
        &mut self,
        _: Ccm,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Unsupported> {
        assert!(self.spent.insert((key.to_vec(), nonce.to_vec())), "a nonce twice under one key");
        self.inner.seal(RustCrypto::AES_128_CCM, key, nonce, aad, body, tag)
    }

    fn open(
        &mut self,
        _: Ccm,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), NotAuthentic> {
        self.inner.open(RustCrypto::AES_128_CCM, key, nonce, aad, body, tag)
    }

    fn sha256_compress(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
        RustCrypto::sha256_compress(state, blocks);
    }

    fn random(&mut self, out: &mut [u8]) {
        self.inner.random(out);
    }
}
