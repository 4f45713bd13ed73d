//! The credentials of a node, and the keys that it trusts.

use tegmen::crypto::{
    Compact, DIGEST_LEN, MAX_SHARE, MAX_SIGNATURE, P256_PREFIX, SCALAR_LEN, SignatureScheme, curves, hmac,
};
use tegmen::dtls::{
    CertificateType, ClientAuthentication, Credential, Keys, PREMASTER_LEN, Suites, certificates, premaster_secret,
};
use tegmen::secret::Secret;
use tegmen_x509::{Anchor, KeyPurpose, Name, PublicKey, Rules};

/// The credentials of a node: a private key, and its raw public key or a list of "certificates". A "certificate" is the
/// key itself, followed by bytes without meaning that make the message as long as the test needs.
#[derive(Clone, Default)]
pub struct Badge {
    pub suites: Suites,
    pub private: Option<[u8; SCALAR_LEN]>,
    /// The content of the node's Certificate message: the raw public key, or the list of "certificates".
    pub content: Vec<u8>,
    pub raw: bool,
    pub client_authentication: ClientAuthentication,
    pub peer_types: Vec<CertificateType>,
    pub trusted: Vec<Vec<u8>>,
    /// A trust anchor, in the form that a mote stores: a Name and a public key. If it is `Some`, the node trusts only
    /// peers with a certificate that this anchor issued, and ignores `trusted`.
    pub anchor: Option<(Vec<u8>, PublicKey)>,
    /// True if the node signs with a key that does not belong to the public key that it sends.
    pub impostor: bool,
    /// True if the node announces its key as an RSA key. The tests do not compute RSA. Instead they combine each block
    /// with a stream of bytes that is derived from the public key, so anyone could remove the stream. The block has the
    /// padding of real RSA.
    pub rsa: bool,
    /// The name of the server that a client requests.
    pub server_name: Vec<u8>,
    /// The servers with names, whose numbers begin with 1.
    pub named: Vec<(Vec<u8>, Badge)>,
    /// True if the server refuses clients that request a name other than the names in `named`.
    pub refuses_names: bool,
}

impl Badge {
    pub fn raw(seed: u8) -> Self {
        let private = [seed; SCALAR_LEN];
        let content = curves::public_key_of(&private).unwrap().to_vec();
        let peer_types = vec![CertificateType::RAW_PUBLIC_KEY];
        Self { private: Some(private), content, raw: true, peer_types, ..Self::default() }
    }

    pub fn chain(seed: u8, chaff: usize) -> Self {
        let Self { private, content: key, .. } = Self::raw(seed);
        let len = |bytes: &[u8]| (bytes.len() as u32).to_be_bytes()[1..].to_vec();
        let mut content = [len(&key), key].concat();
        if chaff > 0 {
            let chaff: Vec<u8> = (0..chaff).map(|n| (n * 7) as u8).collect();
            content.extend([len(&chaff), chaff].concat());
        }
        let peer_types = vec![CertificateType::X509];
        Self { private, content, peer_types, ..Self::default() }
    }

    /// Returns the credentials of the device in the image `dtls_x509`, with the certificate of this device. A node with
    /// these credentials trusts the CA that issued the certificate.
    pub fn certified() -> Self {
        let path = include_bytes!("../../../firmware/x509/path.bin");
        let [device, ca] = certificates(path).collect::<Vec<_>>()[..] else { panic!("a device and its CA") };
        let key = ca.windows(P256_PREFIX.len()).position(|bytes| bytes == P256_PREFIX).unwrap();
        let name = b"\x30\x13\x31\x11\x30\x0f\x06\x03\x55\x04\x03\x0c\x08Works CA".to_vec();
        let anchor = Some((name, *ca[key..].first_chunk().unwrap()));
        Self { anchor, content: path[..3 + device.len()].to_vec(), ..Self::chain(1, 0) }
    }

    /// Returns credentials without a key.
    pub fn blank(peer_type: CertificateType) -> Self {
        Self { peer_types: vec![peer_type], ..Self::default() }
    }

    pub fn trusting(mut self, other: &Self) -> Self {
        self.trusted.push(curves::public_key_of(&other.private.unwrap()).unwrap().to_vec());
        self
    }

    pub fn asking(mut self, how: ClientAuthentication) -> Self {
        self.client_authentication = how;
        self
    }

    /// Returns the credentials of a named server.
    pub fn of(&self, server: u32) -> &Self {
        let named = (server as usize).checked_sub(1).map(|index| &self.named[index].1);
        named.unwrap_or(self)
    }

    pub fn trusts(&self, kind: CertificateType, content: &[u8]) -> Option<Vec<u8>> {
        assert!(self.peer_types.contains(&kind));
        if let Some((name, public_key)) = &self.anchor {
            let id = Name::Eui64([1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef]);
            let anchors = [Anchor { name, public_key }];
            // The certificate is for servers and clients.
            let rules = Rules { anchors: &anchors, purpose: KeyPurpose::Client, name: id, now: None };
            return Some(rules.verify(&mut Compact::new([0; 32]), content).ok()?.public_key.to_vec());
        }
        let key = if kind == CertificateType::X509 { certificates(content).next()? } else { content };
        assert!(key.len() >= MAX_SHARE);
        self.trusted.iter().find(|trusted| *trusted == key).cloned()
    }

    /// Encrypts a block with padding and the premaster secret to the server that has this public key.
    pub fn encrypt(public_key: &[u8], premaster: &[u8; PREMASTER_LEN]) -> Vec<u8> {
        let mut block = vec![0x5a; MODULUS_LEN];
        block[..2].copy_from_slice(&[0, 2]);
        block[MODULUS_LEN - 49] = 0;
        block[MODULUS_LEN - 48..].copy_from_slice(premaster);
        add_stream(public_key, &mut block);
        block
    }

    pub fn decrypt(&self, encrypted: &[u8], version: [u8; 2], random: &Secret<PREMASTER_LEN>) -> Secret<PREMASTER_LEN> {
        let mut block = encrypted.to_vec();
        add_stream(&curves::public_key_of(&self.private.unwrap()).unwrap(), &mut block);
        premaster_secret(&block, MODULUS_LEN, version, random)
    }

    pub fn sign<'s>(&self, digest: &[u8; DIGEST_LEN], out: &'s mut [u8; MAX_SIGNATURE]) -> &'s [u8] {
        let mut private = self.private.unwrap();
        private[0] ^= u8::from(self.impostor);
        let len = curves::sign(&private, digest, out).unwrap();
        &out[..len]
    }
}

/// Number of bytes of the substitute for an RSA modulus.
pub const MODULUS_LEN: usize = 256;

fn add_stream(key: &[u8], block: &mut [u8]) {
    for (chunk, number) in block.chunks_mut(32).zip(0u8..) {
        let stream = hmac::<Compact, DIGEST_LEN>(&[key], &[&[number]]);
        chunk.iter_mut().zip(stream).for_each(|(byte, mask)| *byte ^= mask);
    }
}

/// The credentials of an endpoint, as a type that implements [`Keys`].
pub struct Worn<const IN_PARTS: bool>(pub Badge);

impl<const IN_PARTS: bool> Keys for Worn<IN_PARTS> {
    const ON_HOST: bool = true;

    const CERTIFICATES_IN_PARTS: bool = IN_PARTS;

    const NAMES: bool = true;

    fn server(&self, name: &[u8]) -> Option<u32> {
        let at = self.0.named.iter().position(|(named, _)| named.eq_ignore_ascii_case(name));
        let unnamed = (name.is_empty() || !self.0.refuses_names).then_some(0);
        at.map(|at| at as u32 + 1).or(unnamed)
    }

    fn credential(&self, server: u32, number: u8) -> Option<Credential<'_>> {
        let shown = self.0.of(server);
        shown.private.filter(|_| number == 0)?;
        Some(Credential {
            certificate_type: if shown.raw { CertificateType::RAW_PUBLIC_KEY } else { CertificateType::X509 },
            scheme: if shown.rsa { SignatureScheme::RSA_PKCS1_SHA256 } else { SignatureScheme::ECDSA_SECP256R1_SHA256 },
            content: &shown.content,
        })
    }

    fn server_name(&self) -> &[u8] {
        &self.0.server_name
    }

    fn client_authentication(&self) -> ClientAuthentication {
        self.0.client_authentication
    }

    fn peer_types(&self) -> &[CertificateType] {
        &self.0.peer_types
    }

    fn suites(&self, server: u32) -> Suites {
        self.0.of(server).suites
    }
}
