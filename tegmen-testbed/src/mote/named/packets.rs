//! Makes Data packets of NDN that contain readings, either without protection or encrypted and signed.
//!
//! The name of a reading is the prefix of its producer, followed by the number of the reading as a version component.
//! So a consumer knows the name of each reading in advance, and no name has two contents.

use super::super::Protection;
use std::collections::VecDeque;
use tegmen::buf::{Frame, Writer};
use tegmen::crypto::hash::HmacKey;
use tegmen::crypto::{Crypto, KEY_LEN, MAX_SIGNATURE, Unsupported};
use tegmen::secret::Secret;
use tegmen_ndn::publisher::{ContentKey, Publisher};
use tegmen_ndn::signature::{HmacWithSha256, KeyLocator, SignatureInfo, SignatureType, Signer, Verifier as _};
use tegmen_ndn::tlv::{self, Type};
use tegmen_ndn::{Component, Data, Interest, MAX_HEAD, Name, ReceivedData};

/// A producer of readings. Its number determines its keys.
pub struct Producer {
    number: u16,
    prefix: Vec<u8>,
    publisher: Publisher,
    /// The first version (reading number) that the producer has not reserved. The producer uses only lower versions
    /// until it reserves more versions. This value is stored in flash memory.
    kept: u64,
    signature: HmacKey,
    is_protected: bool,
    /// The number of the reading that the producer makes next.
    next: u64,
    /// The newest packets, each with the number of its reading.
    made: VecDeque<(u64, Vec<u8>)>,
    /// Number of requests that led to a new packet and whose cost is not yet counted.
    pub created: u64,
}

impl Producer {
    /// Makes the producer with this number. The names of its readings begin with `prefix`. With
    /// [`Protection::NdnProtected`] it encrypts and signs its readings.
    pub fn new<C: Crypto>(number: u16, prefix: Vec<u8>, protection: Protection) -> Self {
        Self {
            number,
            prefix,
            publisher: Publisher::resume(content_key(number), 0),
            kept: 0,
            signature: signature_key::<C>(number),
            is_protected: protection == Protection::NdnProtected,
            next: 0,
            made: VecDeque::new(),
            created: 0,
        }
    }

    /// Returns the prefix with which the names of the producer's readings begin.
    pub fn prefix(&self) -> Name<'_> {
        Name::of_checked(&self.prefix)
    }

    /// Returns the packet with the reading of this number. The producer makes readings in the order of their numbers,
    /// and stores the last [`READINGS`] packets. Returns `None` for an older reading.
    pub fn packet<C: Crypto>(&mut self, crypto: &mut C, reading: u64, content: &[u8]) -> Option<&[u8]> {
        if self.next <= reading {
            self.created += 1;
        }
        // The packets of the oldest readings are deleted, even if no node has asked for them.
        while self.next <= reading {
            let packet = self.create(crypto, content);
            self.made.push_back((self.next, packet));
            self.next += 1;
            if self.made.len() > READINGS {
                self.made.pop_front();
            }
        }
        self.made.iter().find(|(made, _)| *made == reading).map(|(_, packet)| &packet[..])
    }

    fn create<C: Crypto>(&mut self, crypto: &mut C, content: &[u8]) -> Vec<u8> {
        let mut storage = [0; LONGEST];
        let mut frame = Frame::new(&mut storage, MAX_HEAD);
        if !self.is_protected {
            let name = name_of(&self.prefix, self.next);
            let data = Data { name: Name::of_checked(&name), content: Some(content), ..Data::default() };
            data.write(crypto, &NoSignature, &mut frame).expect("a reading fits a packet");
            return frame.bytes().to_vec();
        }
        if self.publisher.left() == 0 {
            self.kept += LEASE;
            self.publisher.extend(self.kept);
        }
        let (mut name, mut body) = ([0; LONGEST], [0; LONGEST]);
        let (mut name, mut body) = (Writer::new(&mut name), Writer::new(&mut body));
        body.put(content).expect("a reading fits a packet");
        let prefix = Name::of_checked(&self.prefix);
        self.publisher.publish(crypto, &prefix, &mut name, &mut body).expect("a version is left");
        let key = [self.number as u8];
        let signer = HmacWithSha256 { key: &self.signature, locator: KeyLocator::Digest(&key) };
        let (name, content) = (Name::of_checked(name.written()), Some(body.written()));
        let data = Data { name, content, ..Data::default() };
        data.write(crypto, &signer, &mut frame).expect("a reading fits a packet");
        frame.bytes().to_vec()
    }
}

/// Returns true if the packet contains a reading from the producer `number`, and the reading has `len` bytes. With
/// [`Protection::NdnProtected`] this function also verifies the signature and decrypts the content.
pub fn is_reading<C: Crypto>(
    crypto: &mut C,
    number: u16,
    protection: Protection,
    data: &ReceivedData<'_>,
    len: usize,
) -> bool {
    let content = data.data.content.unwrap_or_default();
    if protection != Protection::NdnProtected {
        return content.len() == len;
    }
    let signed = &data.signed;
    let is_its = signed.info.key == Some(KeyLocator::Digest(&[number as u8]));
    let key = signature_key::<C>(number);
    let is_signed = is_its && key.verify(crypto, &signed.info, &signed.portion, signed.value).is_ok();
    is_signed && content_key(number).open(crypto, &data.data.name, &mut content.to_vec()) == Ok(len)
}

/// Makes the Interest for a name. During the lifetime of the Interest each node sends it again [`RETRANSMISSIONS`]
/// times.
pub fn interest<C: Crypto>(name: &Name<'_>, nonce: [u8; 4]) -> Vec<u8> {
    let mut storage = [0; LONGEST];
    let mut frame = Frame::new(&mut storage, MAX_HEAD);
    let interest = Interest { name: *name, nonce: Some(nonce), lifetime: Some(LIFETIME_MS), ..Interest::default() };
    interest.write::<C>(&mut frame).expect("a name fits a packet");
    frame.bytes().to_vec()
}

/// Encodes the prefix that consists of these components.
pub fn prefix(components: &[&[u8]]) -> Vec<u8> {
    let mut bytes = [0; LONGEST];
    let mut out = Writer::new(&mut bytes);
    for component in components {
        Component::generic(component).write(&mut out).expect("short components");
    }
    out.written().to_vec()
}

/// Returns the encoded name of the reading with this number.
pub fn name_of(prefix: &[u8], reading: u64) -> Vec<u8> {
    let mut bytes = [0; LONGEST];
    let mut out = Writer::new(&mut bytes);
    let mut number = [0; 8];
    let version = Component { kind: Type::VERSION, value: tlv::integer_bytes(reading, &mut number) };
    out.put(prefix).and_then(|()| version.write(&mut out)).expect("a short name");
    out.written().to_vec()
}

/// Returns the length in bytes of the key name that the signature of the packet refers to; 0 if there is none.
pub fn key_len(data: &ReceivedData<'_>) -> usize {
    match data.signed.info.key {
        Some(KeyLocator::Digest(digest)) => digest.len(),
        Some(KeyLocator::Name(name)) => name.as_bytes().len(),
        None => 0,
    }
}

/// The signature of a packet without protection. It is a digest with a length of 0 bytes, as in CCN-lite, the program
/// of the paper. The packet format requires a signature, but a verifier refuses this signature.
struct NoSignature;

impl<C: Crypto> Signer<C> for NoSignature {
    fn info(&self) -> SignatureInfo<'_> {
        SignatureInfo::new(SignatureType::DIGEST_SHA256, None)
    }

    fn sign(&self, _: &mut C, _: &[&[u8]], _: &mut [u8; MAX_SIGNATURE]) -> Result<usize, Unsupported> {
        Ok(0)
    }
}

fn content_key(number: u16) -> ContentKey {
    let mut key = [0x4e; KEY_LEN];
    key[..2].copy_from_slice(&number.to_be_bytes());
    ContentKey::new(Secret::new(key))
}

fn signature_key<C: Crypto>(number: u16) -> HmacKey {
    HmacKey::new::<C>(&[&[0x5d; 30], &number.to_be_bytes()])
}

/// Maximum number of packets that a producer stores.
pub const READINGS: usize = 16;
/// The number of times that a node sends an Interest again, as in the paper on content object security.
pub const RETRANSMISSIONS: u8 = 4;
/// The time after which a node sends an Interest again, in milliseconds.
pub const RETRANSMISSION_MS: u64 = 2000;
/// The lifetime of an Interest in milliseconds. During this time a node sends the Interest again.
pub const LIFETIME_MS: u64 = RETRANSMISSION_MS * (RETRANSMISSIONS as u64 + 1);
/// Number of versions that a producer reserves at once. The producer may use these versions before it writes to flash
/// memory again.
const LEASE: u64 = 64;
/// Maximum length of a packet, in bytes.
const LONGEST: usize = 1280;
