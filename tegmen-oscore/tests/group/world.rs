//! The members of a group, and their messages.

use std::collections::HashSet;
use tegmen_base::buf::Frame;
use tegmen_base::crypto::ecdsa::SIGNATURE_LEN;
use tegmen_base::crypto::{
    Algorithm, Crypto, Curve, GroupCrypto, MemberKey, NamedGroup, NotAuthentic, RustCrypto, SignatureScheme,
    Unsupported,
};
use tegmen_base::secret::Secret;
use tegmen_coap::{Builder, Code, MessageRef, MessageType, OptionNumber};
use tegmen_oscore::group::{
    Algorithms, GroupContext, GroupNonce, GroupParameters, GroupPending, GroupRequest, Mode, Ourselves, Recipient,
    Replies,
};
use tegmen_oscore::{Id, ProtectError, ReplayWindow, UnprotectError, Unprotected};

pub(crate) type Context = GroupContext<Vec<u8>, 512>;
pub(crate) type Pending = GroupPending<Vec<Replies>>;

/// A provider that fails if a nonce is used twice under one key.
pub(crate) struct Recorder {
    crypto: RustCrypto,
    seen: HashSet<(Vec<u8>, Vec<u8>)>,
    /// The additional authenticated data and the nonce of the last message that was encrypted.
    pub(crate) last: Option<(Vec<u8>, Vec<u8>)>,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self { crypto: RustCrypto::new([9; 32]), seen: HashSet::new(), last: None }
    }
}

impl Crypto for Recorder {
    type Aead = Algorithm;
    const AES_128_CCM: Algorithm = RustCrypto::AES_128_CCM;
    const AES_128_GCM: Option<Algorithm> = RustCrypto::AES_128_GCM;

    fn seal(
        &mut self,
        aead: Algorithm,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &mut [u8],
    ) -> Result<(), Unsupported> {
        assert!(self.seen.insert((key.to_vec(), nonce.to_vec())), "a nonce was used twice: {nonce:02x?}");
        self.last = Some((aad.to_vec(), nonce.to_vec()));
        self.crypto.seal(aead, key, nonce, aad, body, tag)
    }

    fn open(
        &mut self,
        aead: Algorithm,
        key: &[u8],
        nonce: &[u8],
        aad: &[u8],
        body: &mut [u8],
        tag: &[u8],
    ) -> Result<(), NotAuthentic> {
        self.crypto.open(aead, key, nonce, aad, body, tag)
    }

    fn agree(
        &mut self,
        group: NamedGroup,
        private: &[u8; 32],
        share: &[u8],
        secret: &mut [u8; 32],
    ) -> Result<(), NotAuthentic> {
        self.crypto.agree(group, private, share, secret)
    }

    fn verify(
        &mut self,
        scheme: SignatureScheme,
        public_key: &[u8],
        digest: &[u8; 32],
        signature: &[u8],
    ) -> Result<(), NotAuthentic> {
        self.crypto.verify(scheme, public_key, digest, signature)
    }

    fn sign(&mut self, private: &[u8; 32], digest: &[u8; 32], out: &mut [u8; 72]) -> Result<usize, Unsupported> {
        self.crypto.sign(private, digest, out)
    }

    fn sha256_compress(state: &mut [u32; 8], blocks: &[[u8; 64]]) {
        RustCrypto::sha256_compress(state, blocks);
    }

    fn random(&mut self, out: &mut [u8]) {
        self.crypto.random(out);
    }
}

impl GroupCrypto for Recorder {
    fn sign_message(
        &mut self,
        curve: Curve,
        private: &[u8; 32],
        message: &[&[u8]],
    ) -> Result<[u8; SIGNATURE_LEN], Unsupported> {
        self.crypto.sign_message(curve, private, message)
    }

    fn verify_message(
        &mut self,
        key: &MemberKey,
        message: &[&[u8]],
        signature: &[u8; SIGNATURE_LEN],
    ) -> Result<(), NotAuthentic> {
        self.crypto.verify_message(key, message, signature)
    }

    fn agree_static(&mut self, private: &[u8; 32], key: &MemberKey, secret: &mut [u8; 32]) -> Result<(), NotAuthentic> {
        self.crypto.agree_static(private, key, secret)
    }
}

/// Returns the private key of a member.
pub(crate) fn private_key(name: &str) -> [u8; 32] {
    core::array::from_fn(|at| name.as_bytes()[at % name.len()].wrapping_add(at as u8))
}

/// Returns the credential of a member: a CWT Claims Set with the name and the key of the member.
pub(crate) fn credential(curve: Curve, name: &str) -> Vec<u8> {
    let private = private_key(name);
    let mut ccs = vec![0xa2, 0x02, 0x60 | name.len() as u8];
    ccs.extend_from_slice(name.as_bytes());
    ccs.extend_from_slice(&[0x08, 0xa1, 0x01]);
    match curve {
        Curve::P256 => {
            let spki = tegmen_base::crypto::curves::public_key_of(&private).unwrap();
            let (x, y) = spki[spki.len() - 64..].split_at(32);
            ccs.extend_from_slice(&[0xa4, 0x01, 0x02, 0x20, 0x01, 0x21, 0x58, 0x20]);
            ccs.extend_from_slice(x);
            ccs.extend_from_slice(&[0x22, 0x58, 0x20]);
            ccs.extend_from_slice(y);
        }
        _ => {
            ccs.extend_from_slice(&[0xa3, 0x01, 0x01, 0x20, 0x06, 0x21, 0x58, 0x20]);
            ccs.extend_from_slice(&tegmen_base::crypto::ed25519::public_key_of(&private));
        }
    }
    ccs
}

pub(crate) const MEMBERS: [&str; 3] = ["client", "lamp", "bell"];

pub(crate) struct Member {
    pub(crate) context: Context,
    pub(crate) others: Vec<Recipient<Vec<u8>>>,
    pub(crate) crypto: Recorder,
}

/// The parameters of all members.
#[derive(Clone, Copy)]
pub(crate) struct Group {
    pub(crate) gid: &'static [u8],
    pub(crate) secret: [u8; 16],
    pub(crate) manager: &'static str,
    pub(crate) algorithms: Algorithms,
}

impl Group {
    pub(crate) fn of(curve: Curve) -> Self {
        Self { gid: b"floor 7", secret: [7; 16], manager: "manager", algorithms: Algorithms::both(curve) }
    }

    pub(crate) fn context(&self, name: &str, kept: u64) -> Context {
        let curve = self.algorithms.signature.or(self.algorithms.key_agreement).unwrap();
        let parameters = GroupParameters {
            master_secret: &self.secret,
            master_salt: b"salt",
            gid: self.gid,
            algorithms: self.algorithms,
        };
        let ourselves = Ourselves {
            id: id_of(name),
            private_key: Secret::new(private_key(name)),
            credential: credential(curve, name),
            kept,
        };
        let mut made = Context::new::<Recorder>(&parameters, ourselves, credential(curve, self.manager)).unwrap();
        made.lease_mut().extend(kept + 1000);
        made
    }

    pub(crate) fn member(&self, name: &str) -> Member {
        let context = self.context(name, 0);
        let curve = self.algorithms.signature.or(self.algorithms.key_agreement).unwrap();
        let others = MEMBERS.iter().filter(|other| **other != name).map(|other| {
            context
                .recipient(&mut Recorder::new(), id_of(other), credential(curve, other), Some(ReplayWindow::default()))
                .unwrap()
        });
        Member { others: others.collect(), context, crypto: Recorder::new() }
    }
}

/// Returns the ID of a member: the first letter of its name.
pub(crate) fn id_of(name: &str) -> Id {
    Id::new(&name.as_bytes()[..1]).unwrap()
}

impl Member {
    fn protect<T>(
        &mut self,
        plain: &[u8],
        to: Option<&str>,
        with: impl FnOnce(&mut Context, &mut Recorder, Mode<'_, Vec<u8>>, &mut Frame<'_>) -> Result<T, ProtectError>,
    ) -> Result<(T, Vec<u8>), ProtectError> {
        let Self { context, others, crypto } = self;
        let mode = match to {
            None => Mode::Group,
            Some(name) => Mode::Pairwise(others.iter_mut().find(|other| *other.id() == id_of(name)).unwrap()),
        };
        let mut storage = [0; 700];
        let mut frame = Frame::new(&mut storage, 100);
        frame.append(plain).unwrap();
        let made = with(context, crypto, mode, &mut frame)?;
        Ok((made, frame.bytes().to_vec()))
    }

    /// Protects a request to all members (`to` is `None`), or to one member.
    pub(crate) fn ask(&mut self, plain: &[u8], to: Option<&str>) -> Result<(Pending, Vec<u8>), ProtectError> {
        self.protect(plain, to, |context, crypto, mode, frame| {
            context.protect_request(crypto, mode, vec![Replies::default(); 2], frame)
        })
    }

    /// Protects a response: in the group mode if `to` is `None`, and otherwise in the pairwise mode for one member.
    pub(crate) fn answer(
        &mut self,
        plain: &[u8],
        to: Option<&str>,
        request: &GroupRequest,
        nonce: Option<GroupNonce>,
    ) -> Result<Vec<u8>, ProtectError> {
        let done = self.protect(plain, to, |context, crypto, mode, frame| {
            context.protect_response(crypto, mode, request, nonce, frame)
        });
        done.map(|((), bytes)| bytes)
    }

    /// Decrypts a request. Returns the decrypted message, and the right to answer the request. If the request may be a
    /// replay, returns only the identity of the request in place of the right.
    pub(crate) fn hear(&mut self, datagram: &[u8]) -> Result<(Said, Heard), UnprotectError> {
        let mut datagram = datagram.to_vec();
        let Self { context, others, crypto } = self;
        match context.unprotect_request(crypto, others.as_mut_slice(), &mut datagram)? {
            Unprotected::Fresh(message, nonce) => Ok((said(&message), Heard::Fresh(nonce))),
            Unprotected::Unverified(message, request) => Ok((said(&message), Heard::Unverified(request))),
        }
    }

    /// Decrypts a request that must be authentic and new.
    pub(crate) fn hear_fresh(&mut self, datagram: &[u8]) -> (Said, GroupNonce) {
        match self.hear(datagram).unwrap() {
            (said, Heard::Fresh(nonce)) => (said, nonce),
            (_, Heard::Unverified(_)) => panic!("it may be a replay"),
        }
    }

    /// Decrypts a response. Returns the decrypted message, and the ID of the member that sent it.
    pub(crate) fn learn(&mut self, pending: &mut Pending, datagram: &[u8]) -> Result<(Said, Id), UnprotectError> {
        let mut datagram = datagram.to_vec();
        let Self { context, others, crypto } = self;
        let (message, id) = context.unprotect_response(crypto, others.as_mut_slice(), pending, &mut datagram)?;
        Ok((said(&message), id))
    }
}

#[derive(Debug)]
pub(crate) enum Heard {
    Fresh(GroupNonce),
    Unverified(GroupRequest),
}

/// Code, options and payload of a message.
pub(crate) type Said = (Code, Vec<(OptionNumber, Vec<u8>)>, Vec<u8>);

pub(crate) fn said(message: &MessageRef<'_>) -> Said {
    let options = message.options().map(|(number, value)| (number, value.to_vec())).collect();
    (message.code(), options, message.payload().to_vec())
}

pub(crate) fn message(code: Code, options: &[(OptionNumber, &[u8])], payload: &[u8]) -> Vec<u8> {
    let mut storage = [0; 256];
    let mut frame = Frame::new(&mut storage, 0);
    let mut builder = Builder::new(&mut frame, MessageType::NonConfirmable, code, 7, b"tk").unwrap();
    for (number, value) in options {
        builder.option(*number, value).unwrap();
    }
    builder.payload(payload).unwrap();
    frame.bytes().to_vec()
}

/// Returns the positions of all bytes that the protection or the signature covers: the value of the OSCORE option, and
/// the payload.
pub(crate) fn covered(datagram: &[u8]) -> Vec<usize> {
    let message = MessageRef::parse(datagram).unwrap();
    let within = |part: &[u8]| {
        let start = part.as_ptr() as usize - datagram.as_ptr() as usize;
        start..start + part.len()
    };
    within(message.option(OptionNumber::OSCORE).unwrap()).chain(within(message.payload())).collect()
}

pub(crate) fn request() -> Vec<u8> {
    message(Code::PUT, &[(OptionNumber::URI_PATH, b"light")], b"on")
}

pub(crate) fn response() -> Vec<u8> {
    message(Code::CHANGED, &[], b"it is on")
}
