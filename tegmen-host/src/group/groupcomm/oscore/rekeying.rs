//! The rekeying messages of a Group Manager (draft-ietf-ace-key-groupcomm-oscore, section 11.1).

use super::super::creds::{MAX_WITH_CREDS, each};
use super::super::{GKTY, KEY, PROFILE};
use super::creds::{NUM, ReadOscoreCreds};
use super::keys::{CONTEXT_ID, EXI, EXP, MS, ReadKey, SALT};
use super::{GROUP_OSCORE, OscoreCred};
use crate::cbor::{Malformed, MapWriter, Out, bytes, integer, number, read_array, read_map, read_message_of};
use tegmen_store::clock::now;
use zeroize::Zeroizing;

/// The label of the Sender IDs that became stale in the previous version of the keying material.
const STALE_NODE_IDS: i64 = 34;

/// A rekeying message: the notification that a Group Manager sends to each member that observes the group-membership
/// resource. It has what changes in the security context of the group. The secret is wiped on drop.
pub struct OscoreRekeying {
    /// The new Group Identifier.
    pub gid: Vec<u8>,
    /// The new Master Secret.
    pub master_secret: Zeroizing<Vec<u8>>,
    /// The new Master Salt, which may be empty.
    pub master_salt: Vec<u8>,
    /// The version of the new keying material, from 1.
    pub number: u16,
    /// The time after which the keying material must not be used, in seconds since 1970.
    pub expires: u64,
    /// The Sender IDs that became stale in the previous version of the keying material. `None` if the message is no
    /// rekeying message, but the response to the registration of the observation. That response has the keys of the
    /// current version (section 9.1.1), and does not show which members have left.
    pub stale: Option<Vec<Vec<u8>>>,
    /// The credentials of the members that joined with the new version; empty if no member joined.
    pub joined: Vec<OscoreCred>,
}

impl OscoreRekeying {
    /// Writes the payload of the message.
    pub fn encode(&self) -> Out {
        let mut map = MapWriter::default();
        map.entry(GKTY, |encoder| integer(encoder, GROUP_OSCORE));
        map.map(KEY, Some(self), |map, message| {
            let salt = Some(message.master_salt.as_slice()).filter(|salt| !salt.is_empty());
            map.entry(MS, |encoder| bytes(encoder, &message.master_secret));
            map.optional(SALT, salt, bytes);
            map.entry(CONTEXT_ID, |encoder| bytes(encoder, &message.gid));
        });
        map.entry(NUM, |encoder| number(encoder, self.number.into()));
        map.entry(PROFILE, |encoder| integer(encoder, GROUP_OSCORE));
        map.entry(EXP, |encoder| number(encoder, self.expires));
        map.entry(EXI, |encoder| number(encoder, self.expires.saturating_sub(now())));
        if !self.joined.is_empty() {
            OscoreCred::write_all(&self.joined, &mut map);
        }
        map.optional(STALE_NODE_IDS, self.stale.as_ref(), |encoder, stale| {
            each(encoder, stale, |encoder, id| bytes(encoder, id))
        });
        map.finish()
    }

    /// Reads the payload of a rekeying message, or of the response to the registration of an observation.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes have no keying material of Group OSCORE.
    pub fn parse(message: &[u8]) -> Result<Self, Malformed> {
        let (mut key, mut creds) = (ReadKey::default(), ReadOscoreCreds::default());
        let (mut kind, mut version, mut expires, mut stale) = (None, None, None, None);
        read_message_of(message, MAX_WITH_CREDS, |label, decoder| {
            match label {
                GKTY => kind = Some(decoder.i64()?),
                KEY => read_map(decoder, |label, decoder| key.take(label, decoder))?,
                NUM => version = Some(decoder.u16()?),
                EXP => expires = Some(decoder.u64()?),
                STALE_NODE_IDS => {
                    let ids = stale.insert(Vec::new());
                    read_array(decoder, |decoder| {
                        ids.push(decoder.bytes()?.to_vec());
                        Ok(())
                    })?;
                }
                _ => return creds.take(label, decoder),
            }
            Ok(true)
        })?;
        if kind != Some(GROUP_OSCORE) {
            return Err(Malformed::Value(GKTY));
        }
        let ReadKey { secret, salt, gid, .. } = key;
        let gid = gid.filter(|_| !secret.is_empty()).ok_or(Malformed::Missing(KEY))?;
        Ok(Self {
            gid,
            master_secret: secret,
            master_salt: salt,
            number: version.ok_or(Malformed::Missing(NUM))?,
            expires: expires.ok_or(Malformed::Missing(EXP))?,
            stale,
            joined: creds.finish_if_any()?.unwrap_or_default(),
        })
    }
}
