//! Messages between a group member and its controller (RFC 9594), with the keying material of Axiom.
//!
//! The numbers of the key type, the profile and the rekeying scheme are in the range for private use. The parameter
//! `key` is a CBOR map, and the parameter `mgt_key_material` is a byte string that contains another CBOR map:
//!
//! ```text
//! key:  1 GroupID   2 SenderID   3 cipher suite   4 secret of the epoch   5, 6 random bytes of client and server
//!       7 the number of SenderIDs that the group can have   8 SenderIDs of other members whose sequence numbers
//!       begin with 0 in this epoch   9 identity of the group   10 address of the member   11 address of the group
//!       12 port of the group   13 the algorithm of signatures in COSE, in a group with signatures
//! mgt_key_material:  1 element of the hash chain   2 leaf   3 secrets from the leaf to the root   4 public key of the controller
//! ```

mod creds;
pub mod oscore;

pub use creds::{Challenge, Cred, Creds, CredsFilter, Possession};

use crate::cbor::{
    Malformed, MapWriter, Out, Sink, Written, bytes, integer, number, read_array, read_map, read_message,
    read_message_of, text,
};
use creds::{CLIENT_CRED, CLIENT_CRED_VERIFY, CNONCE, GET_CREDS, MAX_WITH_CREDS, ReadCreds, algorithm_of, scheme_of};
use minicbor::data::Type;
use minicbor::{Decoder, Encoder};
use std::net::{IpAddr, Ipv6Addr};
use tegmen::address::Address;
use tegmen::axiom::{Admission, Association, Suite};
use tegmen::crypto::{DIGEST_LEN, KEY_LEN, SignatureScheme};
use tegmen::secret::Secret;
use zeroize::Zeroizing;

/// The path of the groups at the controller, without a leading slash.
pub const GROUPS: &str = "ace-group";
/// CoAP Content-Format of `application/ace-groupcomm+cbor` (RFC 9594, section 11.2).
pub const GROUPCOMM_CBOR: u16 = 261;
/// The role of a member that sends requests to the group.
pub const REQUESTER: &str = "requester";
/// The role of a member that answers requests to the group.
pub const RESPONDER: &str = "responder";
/// The role of a signature verifier. It is no member, and verifies the signatures of messages in a Group OSCORE group.
pub const VERIFIER: &str = "verifier";

/// The number that means Axiom: as a key type, as a profile, and as a rekeying scheme. It is in the range for private
/// use.
const AXIOM: i64 = -65537;
/// The label of a parameter in a join request. The value of the parameter is false if the member does not check the
/// signatures of rekey messages.
const SIGNATURES: i64 = -65537;
const SCOPE: i64 = 3;
const GKTY: i64 = 7;
const KEY: i64 = 8;
const NUM: i64 = 9;
const PROFILE: i64 = 10;
const REKEYING_SCHEME: i64 = 20;
const CONTROL_URI: i64 = 26;
const MGT_KEY_MATERIAL: i64 = 27;

/// Initial capacity in bytes of the buffers for a response to a join request, which is enough for a tree of 15 levels and
/// a response without public keys.
const ENCODED: usize = 640;

/// The suites of a group, each with the number of the DTLS cipher suite that has the same record protection.
const SUITES: [(Suite, u64); 4] =
    [(Suite::Ccm, 0xc0a4), (Suite::Ccm8, 0xc0a8), (Suite::Gcm, 0x00a8), (Suite::MacOnly, 0x00b0)];

/// The label of the entry `ace-groupcomm-error` in concise problem details (RFC 9594, section 4.1.2). `ERROR_ID` is the
/// label of `error-id` in this entry.
const PROBLEM_ENTRY: i64 = 0;
const ERROR_ID: i64 = 0;

/// The reason of a refusal (RFC 9594, section 9), from the problem details of a response (RFC 9290).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupcommError {
    /// The requested operation is only for members.
    NotAMember = 0,
    /// The roles of the member do not allow the operation.
    OtherRoles = 1,
    /// The public key does not match the signature scheme of the group.
    OtherCredential = 2,
    /// The device did not prove that it has the private key.
    NoPossession = 3,
    /// No SenderID is free, no leaf of the key tree is free, or no epoch is left.
    NoNodeIdentifier = 4,
    /// The group was deleted. An observer of the group gets this reason.
    GroupDeleted = 6,
    /// The requested operation is only for signature verifiers that are no members. The draft
    /// draft-ietf-ace-key-groupcomm-oscore suggests this number (section 13).
    NotAVerifier = 8,
}

impl GroupcommError {
    /// Reads the reason from concise problem details. Returns `None` if they contain no reason, or a reason that is no
    /// variant of this type.
    pub fn parse(message: &[u8]) -> Option<Self> {
        let mut reason = None;
        let read = read_message(message, |label, decoder| {
            let is_it = label == PROBLEM_ENTRY;
            if is_it {
                read_map(decoder, |label, decoder| {
                    let is_id = label == ERROR_ID;
                    if is_id {
                        reason = Some(decoder.u8()?);
                    }
                    Ok(is_id)
                })?;
            }
            Ok(is_it)
        });
        read.ok()?;
        let all = [
            Self::NotAMember,
            Self::OtherRoles,
            Self::OtherCredential,
            Self::NoPossession,
            Self::NoNodeIdentifier,
            Self::GroupDeleted,
            Self::NotAVerifier,
        ];
        all.into_iter().find(|known| Some(*known as u8) == reason)
    }

    /// Writes the concise problem details with the entry `ace-groupcomm-error` (RFC 9594, section 4.1.2).
    pub fn encode(self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut encoder = Encoder::new(Sink::new(&mut out));
        let written: Written = (|| {
            encoder.map(1)?.i64(PROBLEM_ENTRY)?.map(1)?.i64(ERROR_ID)?.u8(self as u8)?;
            Ok(())
        })();
        debug_assert!(written.is_ok(), "a write to memory does not fail");
        out
    }
}

/// A request to join a group (RFC 9594, section 4.3.1).
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct JoinRequest {
    /// The name of the group.
    pub group: String,
    /// True if the member wants to send requests. The controller then gives the member a SenderID.
    pub sends: bool,
    /// The URI at which the member receives messages of the controller. The host of this URI is the source address of
    /// the member's responses.
    pub control_uri: Option<String>,
    /// True if the member checks the signatures of rekey messages. To a member that does not check them, the controller
    /// sends separate rekey messages.
    pub checks_signatures: bool,
    /// The filter for the public keys in the response; `None` for no public keys.
    pub creds: Option<CredsFilter>,
    /// The public key of the member, and the proof that the member has the private key. `None` in a group without
    /// signatures.
    pub possession: Option<Possession>,
}

impl JoinRequest {
    /// Reads a join request.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not a join request, or have no scope.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let (mut scope, mut control_uri, mut checks_signatures) = (None, None, true);
        let (mut creds, mut public_key, mut nonce, mut signature) = (None, None, None, None);
        read_message(message, |label, decoder| {
            match label {
                SCOPE => {
                    let bytes = decoder.bytes()?;
                    scope = Some((read_scope(bytes)?, bytes));
                }
                GET_CREDS => creds = Some(CredsFilter::read(decoder)?),
                CLIENT_CRED => public_key = Some(decoder.bytes()?.to_vec()),
                CNONCE => nonce = Some(decoder.bytes()?.to_vec()),
                CLIENT_CRED_VERIFY => signature = Some(decoder.bytes()?.to_vec()),
                CONTROL_URI => control_uri = Some(decoder.str()?.to_owned()),
                SIGNATURES => checks_signatures = decoder.bool()?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        let ((group, sends), scope) = scope.ok_or(Malformed::Missing(SCOPE))?;
        let possession = match (public_key, nonce, signature) {
            (Some(public_key), Some(nonce), Some(signature)) => {
                Some(Possession { scope: scope.to_vec(), public_key, nonce, signature })
            }
            _ => None,
        };
        Ok(Self { group, sends, control_uri, checks_signatures, creds, possession })
    }

    /// Writes the join request.
    pub fn encode(&self) -> Vec<u8> {
        let scope = self.possession.as_ref().map_or_else(|| self.scope(), |proof| proof.scope.clone());
        let mut map = MapWriter::default();
        let unchecked = (!self.checks_signatures).then_some(false);
        map.optional(SIGNATURES, unchecked, |encoder, checks| encoder.bool(checks).map(|_| ()));
        map.entry(SCOPE, |encoder| bytes(encoder, &scope));
        map.optional(GET_CREDS, self.creds.as_ref(), |encoder, filter| filter.write(encoder));
        if let Some(Possession { public_key, nonce, signature, .. }) = &self.possession {
            map.entry(CLIENT_CRED, |encoder| bytes(encoder, public_key));
            map.entry(CNONCE, |encoder| bytes(encoder, nonce));
            map.entry(CLIENT_CRED_VERIFY, |encoder| bytes(encoder, signature));
        }
        map.optional(CONTROL_URI, self.control_uri.as_deref(), text);
        map.finish().to_vec()
    }

    /// Returns the bytes of the scope as [`Self::encode`] writes them.
    pub fn scope(&self) -> Vec<u8> {
        let mut scope = Vec::new();
        let mut encoder = Encoder::new(Sink::new(&mut scope));
        let written: Written = (|| {
            encoder.array(2)?.str(&self.group)?;
            match self.sends {
                true => encoder.array(2)?.str(REQUESTER)?.str(RESPONDER)?,
                false => encoder.str(RESPONDER)?,
            };
            Ok(())
        })();
        debug_assert!(written.is_ok(), "a write to memory does not fail");
        scope
    }
}

/// Reads a scope entry: the name of the group, and one or several roles. Returns the name, and true if the member sends
/// requests.
fn read_scope(entry: &[u8]) -> Result<(String, bool), Malformed> {
    let mut decoder = Decoder::new(entry);
    if decoder.array()? != Some(2) {
        return Err(Malformed::Value(SCOPE));
    }
    let group = decoder.str()?.to_owned();
    let mut sends = false;
    let mut role = |decoder: &mut Decoder<'_>| match decoder.str()? {
        REQUESTER => {
            sends = true;
            Ok(())
        }
        RESPONDER => Ok(()),
        _ => Err(Malformed::Value(SCOPE)),
    };
    match decoder.datatype()? {
        Type::String => role(&mut decoder)?,
        _ => read_array(&mut decoder, role)?,
    }
    if decoder.position() == entry.len() { Ok((group, sends)) } else { Err(Malformed::Syntax) }
}

/// The keys and parameters of one member, from the response to its join request. Secrets are wiped on drop.
pub struct GroupKeys {
    /// The identity of the group: 16 random bytes of its controller.
    pub group: [u8; 16],
    /// The GroupID, one byte. It identifies the group in the record header of a response.
    pub group_id: u8,
    /// The multicast address of the group in the form of [`address_bytes`], and its UDP port.
    pub address: ([u8; 16], u16),
    /// The suite that protects requests and responses.
    pub suite: Suite,
    /// Maximum number of SenderIDs at the same time, 1 to 256. One key may protect a limited number of records, and
    /// this limit is divided among all SenderIDs.
    pub senders: u16,
    /// The SenderID of the member, if it sends requests.
    pub sender_id: Option<u8>,
    /// The source address of the member's responses in the form of [`address_bytes`]; zeros for a member that does not
    /// listen.
    pub own_address: [u8; 16],
    /// SenderIDs of other members whose sequence numbers begin with 0 in this epoch, for
    /// [`know_sender`](tegmen::axiom::Member::know_sender). The list is empty if the epoch began before this member was
    /// admitted.
    pub late: Vec<u8>,
    /// The number of the current epoch. The first epoch is 1.
    pub epoch: u16,
    /// The element of the hash chain that belongs to the epoch, 32 bytes. It is not secret.
    pub chain: [u8; DIGEST_LEN],
    /// The secret of the epoch, 32 bytes.
    pub secret: Secret<DIGEST_LEN>,
    /// Random bytes of the controller, which are not secret: 32 bytes in place of the client random of a handshake, and
    /// 32 bytes in place of the server random.
    pub randoms: [[u8; DIGEST_LEN]; 2],
    /// The number of the leaf of the member in the key tree: 2^levels to 2^(levels + 1) - 1.
    pub leaf: u32,
    /// The secrets of the nodes from the leaf to the root, 16 bytes each. The number of secrets is one more than the
    /// number of levels below the root.
    pub path: Zeroizing<Vec<[u8; KEY_LEN]>>,
    /// The public key of the controller as SubjectPublicKeyInfo on secp256r1 in DER, if the controller signs rekey
    /// messages.
    pub controller: Option<Vec<u8>>,
    /// The scheme of the signatures of records, in a group with signatures.
    pub signature: Option<SignatureScheme>,
    /// Public keys of other members; `None` if the member has not asked for public keys.
    pub creds: Option<Vec<Cred>>,
}

impl GroupKeys {
    /// Returns the part of the keys from which a member makes its [`KeyPath`](tegmen::axiom::KeyPath).
    pub fn admission(&self) -> Admission<'_> {
        let Self { group, epoch, chain, secret, leaf, path, .. } = self;
        Admission { group, epoch: *epoch, chain, secret: secret.expose(), leaf: *leaf, path }
    }

    /// Returns the security association of an epoch. `master_secret` is the master secret of this epoch.
    pub fn association<'a>(&'a self, epoch: u16, master_secret: &'a Secret<48>) -> Association<'a> {
        let (ip, port) = self.address;
        let [client_random, server_random] = &self.randoms;
        Association {
            group_id: self.group_id,
            group: Address { ip, port, scope: 0 },
            suite: self.suite,
            epoch,
            senders: self.senders,
            sender_id: self.sender_id,
            address: self.own_address,
            master_secret: master_secret.expose(),
            client_random,
            server_random,
        }
    }

    /// Writes the payload of a response to a join request.
    pub fn encode(&self) -> Zeroizing<Vec<u8>> {
        let mut map = MapWriter::with_capacity(ENCODED);
        map.entry(GKTY, |encoder| integer(encoder, AXIOM));
        map.map(KEY, Some(self), |map, response| response.write_key(map));
        map.entry(NUM, |encoder| number(encoder, self.epoch.into()));
        map.entry(PROFILE, |encoder| integer(encoder, AXIOM));
        map.entry(REKEYING_SCHEME, |encoder| integer(encoder, AXIOM));
        let management = self.management();
        map.entry(MGT_KEY_MATERIAL, |encoder| bytes(encoder, &management));
        if let Some(creds) = &self.creds {
            Cred::write_all(creds, &mut map);
        }
        map.finish()
    }

    fn write_key(&self, map: &mut MapWriter) {
        let suite = SUITES.iter().find(|(suite, _)| *suite == self.suite).map_or(0, |(_, number)| *number);
        map.entry(1, |encoder| number(encoder, self.group_id.into()));
        map.optional(2, self.sender_id.map(u64::from), number);
        map.entry(3, |encoder| number(encoder, suite));
        map.entry(4, |encoder| bytes(encoder, self.secret.expose()));
        map.entry(5, |encoder| bytes(encoder, &self.randoms[0]));
        map.entry(6, |encoder| bytes(encoder, &self.randoms[1]));
        map.entry(7, |encoder| number(encoder, self.senders.into()));
        map.entry(8, |encoder| bytes(encoder, &self.late));
        map.entry(9, |encoder| bytes(encoder, &self.group));
        map.entry(10, |encoder| bytes(encoder, &self.own_address));
        map.entry(11, |encoder| bytes(encoder, &self.address.0));
        map.entry(12, |encoder| number(encoder, self.address.1.into()));
        map.optional(13, self.signature.map(algorithm_of), integer);
    }

    fn management(&self) -> Out {
        let mut map = MapWriter::with_capacity(ENCODED);
        map.entry(1, |encoder| bytes(encoder, &self.chain));
        map.entry(2, |encoder| number(encoder, self.leaf.into()));
        map.entry(3, |encoder| bytes(encoder, self.path.as_flattened()));
        map.optional(4, self.controller.as_deref(), bytes);
        map.finish()
    }

    /// Reads the payload of a response.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not the payload of a response to a join request.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let mut keys = Self::empty();
        let (mut missing, mut of_axiom) = (vec![KEY, NUM, MGT_KEY_MATERIAL], false);
        let mut creds = ReadCreds::default();
        read_message_of(message, MAX_WITH_CREDS, |label, decoder| {
            match label {
                GKTY => of_axiom = decoder.i64()? == AXIOM,
                KEY => read_map(decoder, |label, decoder| keys.take_key(label, decoder))?,
                NUM => keys.epoch = decoder.u16()?,
                MGT_KEY_MATERIAL => read_message(decoder.bytes()?, |label, decoder| keys.take(label, decoder))?,
                _ => return creds.take(label, decoder),
            }
            missing.retain(|one| *one != label);
            Ok(true)
        })?;
        keys.creds = creds.finish_if_any()?;
        match missing.first() {
            _ if !of_axiom => Err(Malformed::Value(GKTY)),
            Some(label) => Err(Malformed::Missing(*label)),
            None if keys.path.is_empty() => Err(Malformed::Value(MGT_KEY_MATERIAL)),
            None => Ok(keys),
        }
    }

    fn empty() -> Self {
        Self {
            group: [0; 16],
            group_id: 0,
            address: ([0; 16], 0),
            suite: Suite::Ccm,
            senders: 0,
            sender_id: None,
            own_address: [0; 16],
            late: Vec::new(),
            epoch: 0,
            chain: [0; DIGEST_LEN],
            secret: Secret::zeroed(),
            randoms: [[0; DIGEST_LEN]; 2],
            leaf: 0,
            path: Zeroizing::default(),
            controller: None,
            signature: None,
            creds: None,
        }
    }

    fn take_key(&mut self, label: i64, decoder: &mut Decoder<'_>) -> Result<bool, Malformed> {
        match label {
            1 => self.group_id = decoder.u8()?,
            2 => self.sender_id = Some(decoder.u8()?),
            3 => {
                let found = decoder.u64()?;
                let suite = SUITES.iter().find(|(_, number)| *number == found).map(|(suite, _)| *suite);
                self.suite = suite.ok_or(Malformed::Value(KEY))?;
            }
            4 => *self.secret.expose_mut() = array(decoder)?,
            5 => self.randoms[0] = array(decoder)?,
            6 => self.randoms[1] = array(decoder)?,
            7 => self.senders = decoder.u16()?,
            8 => self.late = decoder.bytes()?.to_vec(),
            9 => self.group = array(decoder)?,
            10 => self.own_address = array(decoder)?,
            11 => self.address.0 = array(decoder)?,
            12 => self.address.1 = decoder.u16()?,
            13 => self.signature = Some(scheme_of(decoder.i64()?).ok_or(Malformed::Value(KEY))?),
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn take(&mut self, label: i64, decoder: &mut Decoder<'_>) -> Result<bool, Malformed> {
        match label {
            1 => self.chain = array(decoder)?,
            2 => self.leaf = decoder.u32()?,
            3 => {
                let (secrets, rest) = decoder.bytes()?.as_chunks();
                if !rest.is_empty() {
                    return Err(Malformed::Value(MGT_KEY_MATERIAL));
                }
                self.path = Zeroizing::new(secrets.to_vec());
            }
            4 => self.controller = Some(decoder.bytes()?.to_vec()),
            _ => return Ok(false),
        }
        Ok(true)
    }
}

fn array<const N: usize>(decoder: &mut Decoder<'_>) -> Result<[u8; N], Malformed> {
    decoder.bytes()?.try_into().map_err(|_| Malformed::Syntax)
}

/// Returns an address as the 16 bytes of an IPv6 address. An IPv4 address becomes an IPv4-mapped address.
pub fn address_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => Ipv6Addr::octets(&address),
    }
}
