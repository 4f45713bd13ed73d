//! Scopes: rights as text, as bytes, or in the Authorization Information Format (AIF, RFC 9237).

use minicbor::data::Type;
use minicbor::{Decoder, Encoder};
use tegmen_coap::Methods;
use tegmen_host::cbor::{Malformed, Sink, Written, read_array};
use tegmen_host::group::groupcomm::{GROUPS, REQUESTER, RESPONDER, VERIFIER};

/// Maximum number of rights of a scope.
pub const MAX_RIGHTS: usize = 64;

/// The label of a scope in every message.
pub(super) const SCOPE: i64 = 9;

/// A path, and the methods that may be used on the resource with this path (RFC 9237, section 3).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Right {
    /// The path as the local part of a URI.
    pub path: String,
    /// The set of methods. Bit 0 is GET, and the following bits are in the order of [`Methods`]. The bits from 32 on
    /// allow the same methods on each resource that a request to `path` creates.
    pub permissions: u64,
}

impl Right {
    /// The bits of the methods of CoAP.
    const METHODS: u64 = 0x7f;

    /// Returns the methods; `None` if a bit is set that does not belong to a method of CoAP.
    pub fn methods(&self) -> Option<Methods> {
        (self.permissions & !Self::METHODS == 0).then_some(Methods((self.permissions & Self::METHODS) as u8))
    }
}

/// Rights on REST resources, or roles in groups.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Aif(pub Vec<Right>);

impl Aif {
    /// Returns the rights on REST resources. An entry whose path has no slash is the name of a group with roles in this
    /// group (AIF-OSCORE-GROUPCOMM; draft-ietf-ace-key-groupcomm-oscore, section 3). The result has the rights on the
    /// resources of the controller in place of this entry: `POST /ace-group/GROUP` for each role of a member, and
    /// `POST /ace-group/GROUP/ROLE` for a requester, a responder and a signature verifier. Returns `None` if an entry
    /// has no role or an unknown role, or if the rights are more than [`MAX_RIGHTS`].
    pub fn on_resources(self) -> Option<Self> {
        if self.0.iter().all(|entry| entry.path.contains('/')) {
            return (self.0.len() <= MAX_RIGHTS).then_some(self);
        }
        let mut rights = Vec::new();
        for entry in self.0 {
            match entry.path.contains('/') {
                true => rights.push(entry),
                false => rights.extend(rights_of_roles(&entry)?),
            }
        }
        (rights.len() <= MAX_RIGHTS).then_some(Self(rights))
    }

    /// Reads the CBOR array of rights from a scope that is a byte string.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are no such array, or contain more than [`MAX_RIGHTS`] rights.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut decoder = Decoder::new(bytes);
        let aif = Self::read(&mut decoder)?;
        if decoder.position() == bytes.len() { Ok(aif) } else { Err(Malformed::Syntax) }
    }

    /// Encodes the rights as a CBOR array.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let written = self.write(&mut Encoder::new(Sink::new(&mut out)));
        debug_assert!(written.is_ok(), "a write to memory does not fail");
        out
    }

    fn read(decoder: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let mut rights = Vec::new();
        read_array(decoder, |decoder| {
            if rights.len() >= MAX_RIGHTS {
                return Err(Malformed::TooLong);
            }
            if decoder.array()? != Some(2) {
                return Err(Malformed::Syntax);
            }
            rights.push(Right { path: decoder.str()?.to_owned(), permissions: decoder.u64()? });
            Ok(())
        })?;
        Ok(Self(rights))
    }

    fn write(&self, encoder: &mut Encoder<Sink<'_>>) -> Written {
        encoder.array(self.0.len() as u64)?;
        for right in &self.0 {
            encoder.array(2)?.str(&right.path)?.u64(right.permissions)?;
        }
        Ok(())
    }
}

/// The numbers of the roles in a Group OSCORE group: requester, responder, monitor and signature verifier.
const REQUESTS: u64 = 1 << 1;
const RESPONDS: u64 = 1 << 2;
const MONITORS: u64 = 1 << 3;
const VERIFIES: u64 = 1 << 4;
/// The bit for POST in the permissions of a right on a REST resource.
const POST: u64 = 1 << 1;

/// Returns the rights on the resources of the controller for an entry with the name of a group and roles.
fn rights_of_roles(Right { path: group, permissions: roles }: &Right) -> Option<Vec<Right>> {
    let is_known = *roles != 0 && roles & !(REQUESTS | RESPONDS | MONITORS | VERIFIES) == 0;
    if !is_known || group.is_empty() {
        return None;
    }
    let of = format!("/{GROUPS}/{group}");
    let paths = [
        (REQUESTS | RESPONDS | MONITORS, of.clone()),
        (REQUESTS, format!("{of}/{REQUESTER}")),
        (RESPONDS, format!("{of}/{RESPONDER}")),
        (VERIFIES, format!("{of}/{VERIFIER}")),
    ];
    let right = |(needed, path): (u64, String)| (roles & needed != 0).then_some(Right { path, permissions: POST });
    Some(paths.into_iter().filter_map(right).collect())
}

/// A scope in the form in which it was received.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Words whose meaning both endpoints know.
    Text(String),
    /// Bytes (RFC 9200, section 5.8.1). They may contain an AIF scope.
    Bytes(Vec<u8>),
    /// An AIF scope that is not wrapped in a byte string, as some implementations send it.
    Aif(Aif),
}

impl Scope {
    /// Returns an AIF scope as a byte string, which is the form of RFC 9200.
    pub fn of(aif: &Aif) -> Self {
        Self::Bytes(aif.encode())
    }

    /// Returns the rights, if the scope has the form of RFC 9237.
    pub fn rights(&self) -> Option<Aif> {
        match self {
            Self::Text(_) => None,
            Self::Bytes(bytes) => Aif::parse(bytes).ok(),
            Self::Aif(aif) => Some(aif.clone()),
        }
    }

    pub(super) fn read(decoder: &mut Decoder<'_>) -> Result<Self, Malformed> {
        match decoder.datatype()? {
            Type::String => Ok(Self::Text(decoder.str()?.to_owned())),
            Type::Bytes => Ok(Self::Bytes(decoder.bytes()?.to_owned())),
            Type::Array | Type::ArrayIndef => Aif::read(decoder).map(Self::Aif),
            _ => Err(Malformed::Syntax),
        }
    }

    /// Writes the scope as a value in a message.
    pub(super) fn write(&self, encoder: &mut Encoder<Sink<'_>>) -> Written {
        match self {
            Self::Text(text) => encoder.str(text).map(|_| ()),
            Self::Bytes(bytes) => encoder.bytes(bytes).map(|_| ()),
            Self::Aif(aif) => aif.write(encoder),
        }
    }
}
