//! Credentials of the members of a Group OSCORE group (RFC 9594, section 4.4).

use super::super::creds::{GET_CREDS, MAX_WITH_CREDS, each};
use super::Roles;
use crate::cbor::{Malformed, MapWriter, Out, Sink, Written, bytes, number, read_array, read_message, read_message_of};
use minicbor::data::Type;
use minicbor::{Decoder, Encoder};

pub(super) const NUM: i64 = 9;
const CREDS: i64 = 13;
const PEER_ROLES: i64 = 14;
const PEER_IDENTIFIERS: i64 = 15;
/// The numbers of the roles requester and responder, as [`Roles::number`] returns them.
const REQUESTERS: u64 = 2;
const RESPONDERS: u64 = 4;
/// The label of the CWT claim for the subject.
const SUB: i64 = 2;

/// The credential of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OscoreCred {
    /// The Sender ID of the member.
    pub id: Vec<u8>,
    /// The roles of the member.
    pub roles: Roles,
    /// The credential: a CWT Claims Set.
    pub credential: Vec<u8>,
}

impl OscoreCred {
    /// Writes the credentials of members into a map.
    pub(super) fn write_all(creds: &[Self], map: &mut MapWriter) {
        map.entry(CREDS, |encoder| each(encoder, creds, |encoder, cred| bytes(encoder, &cred.credential)));
        map.entry(PEER_ROLES, |encoder| each(encoder, creds, |encoder, cred| number(encoder, cred.roles.number())));
        map.entry(PEER_IDENTIFIERS, |encoder| each(encoder, creds, |encoder, cred| bytes(encoder, &cred.id)));
    }
}

/// Returns the subject of a CWT Claims Set, which is the name of its owner; `None` if it has no subject.
pub fn subject_of(credential: &[u8]) -> Option<String> {
    let mut subject = None;
    let read = read_message(credential, |label, decoder| {
        let is_it = label == SUB;
        if is_it {
            subject = Some(decoder.str()?.to_owned());
        }
        Ok(is_it)
    });
    read.ok().and(subject)
}

/// The credentials of members from a map that is being read.
#[derive(Default)]
pub(super) struct ReadOscoreCreds {
    credentials: Option<Vec<Vec<u8>>>,
    roles: Vec<Roles>,
    ids: Vec<Vec<u8>>,
}

impl ReadOscoreCreds {
    /// Reads the value of a label. Returns false if the label does not belong to credentials of members.
    pub(super) fn take(&mut self, label: i64, decoder: &mut Decoder<'_>) -> Result<bool, Malformed> {
        match label {
            CREDS => {
                let credentials = self.credentials.get_or_insert_default();
                read_array(decoder, |decoder| {
                    credentials.push(decoder.bytes()?.to_vec());
                    Ok(())
                })?;
            }
            PEER_IDENTIFIERS => read_array(decoder, |decoder| {
                self.ids.push(decoder.bytes()?.to_vec());
                Ok(())
            })?,
            PEER_ROLES => read_array(decoder, |decoder| {
                self.roles.push(Roles::of_number(decoder.u64()?).ok_or(Malformed::Value(PEER_ROLES))?);
                Ok(())
            })?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Returns the credentials as [`Self::finish`] does; `None` if the map has no parameter `creds`.
    pub(super) fn finish_if_any(self) -> Result<Option<Vec<OscoreCred>>, Malformed> {
        let has_creds = self.credentials.is_some();
        self.finish().map(|creds| has_creds.then_some(creds))
    }

    /// Returns the credentials, each with the Sender ID and the roles of its member.
    fn finish(self) -> Result<Vec<OscoreCred>, Malformed> {
        let Self { credentials, roles, ids } = self;
        let credentials = credentials.unwrap_or_default();
        if credentials.len() != ids.len() || credentials.len() != roles.len() {
            return Err(Malformed::Value(PEER_IDENTIFIERS));
        }
        let members = ids.into_iter().zip(roles).zip(credentials);
        Ok(members.map(|((id, roles), credential)| OscoreCred { id, roles, credential }).collect())
    }
}

/// The credentials of members, from the response to a request for them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct OscoreCreds {
    /// The version of the keying material.
    pub number: u16,
    /// The credentials.
    pub creds: Vec<OscoreCred>,
}

impl OscoreCreds {
    /// Writes the payload of the response.
    pub fn encode(&self) -> Out {
        let mut map = MapWriter::default();
        map.entry(NUM, |encoder| number(encoder, self.number.into()));
        OscoreCred::write_all(&self.creds, &mut map);
        map.finish()
    }

    /// Reads the payload of a response.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes are not the payload of a response with credentials.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let (mut number, mut read) = (None, ReadOscoreCreds::default());
        read_message_of(message, MAX_WITH_CREDS, |label, decoder| match label {
            NUM => {
                number = Some(decoder.u16()?);
                Ok(true)
            }
            label => read.take(label, decoder),
        })?;
        Ok(Self { number: number.ok_or(Malformed::Missing(NUM))?, creds: read.finish()? })
    }
}

/// The filter of a request for credentials (`get_creds`). The default selects all members.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct OscoreFilter {
    /// Combinations of roles, each as a number with one bit for each role. A member is selected if it has all roles of
    /// one of these combinations (RFC 9594, section 4.3.1). An empty list selects all roles.
    pub roles: Vec<u64>,
    /// Sender IDs of members. An empty list selects all members.
    pub members: Vec<Vec<u8>>,
    /// True if the filter selects all members except `members`.
    pub excludes: bool,
}

impl OscoreFilter {
    /// True if the filter selects the member.
    pub fn selects(&self, cred: &OscoreCred) -> bool {
        let is_listed = self.members.contains(&cred.id);
        (self.roles.is_empty() || self.roles.iter().any(|roles| cred.roles.include(*roles)))
            && (self.members.is_empty() || is_listed != self.excludes)
    }

    /// Returns the filter for a member that joins with these roles (draft-ietf-ace-key-groupcomm-oscore, section 6.3). If
    /// this filter selects all members, the result selects only those with which the member exchanges messages: the
    /// responders for a requester, and the requesters for a responder or a monitor.
    #[must_use]
    pub fn relevant_to(self, Roles { requester, responder, monitor }: Roles) -> Self {
        if self != Self::default() {
            return self;
        }
        let relevant = [(responder || monitor, REQUESTERS), (requester, RESPONDERS)];
        let roles = relevant.into_iter().filter_map(|(is_relevant, role)| is_relevant.then_some(role)).collect();
        Self { roles, ..self }
    }

    /// Reads the value of `get_creds`. An array without roles and members is malformed (RFC 9594, section 4.4.1).
    pub(super) fn read(decoder: &mut Decoder<'_>) -> Result<Self, Malformed> {
        let mut filter = Self::default();
        if decoder.datatype()? == Type::Null {
            decoder.null()?;
            return Ok(filter);
        }
        if decoder.array()? != Some(3) {
            return Err(Malformed::Value(GET_CREDS));
        }
        filter.excludes = !decoder.bool()?;
        read_array(decoder, |decoder| {
            filter.roles.push(decoder.u64()?);
            Ok(())
        })?;
        read_array(decoder, |decoder| {
            filter.members.push(decoder.bytes()?.to_vec());
            Ok(())
        })?;
        if filter.roles.is_empty() && filter.members.is_empty() {
            return Err(Malformed::Value(GET_CREDS));
        }
        Ok(filter)
    }

    /// Writes the value of `get_creds`.
    pub(super) fn write(&self, encoder: &mut Encoder<Sink<'_>>) -> Written {
        if *self == Self::default() {
            encoder.null()?;
            return Ok(());
        }
        encoder.array(3)?.bool(!self.excludes)?;
        each(encoder, &self.roles, |encoder, roles| number(encoder, *roles))?;
        each(encoder, &self.members, |encoder, member| bytes(encoder, member))
    }

    /// Reads the payload of a FETCH request.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let mut filter = None;
        read_message(message, |label, decoder| {
            let is_it = label == GET_CREDS;
            if is_it {
                filter = Some(Self::read(decoder)?);
            }
            Ok(is_it)
        })?;
        filter.ok_or(Malformed::Missing(GET_CREDS))
    }

    /// Writes the payload of a FETCH request.
    pub fn encode(&self) -> Out {
        let mut map = MapWriter::default();
        map.entry(GET_CREDS, |encoder| self.write(encoder));
        map.finish()
    }
}
