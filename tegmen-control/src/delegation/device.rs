//! A device with the content of its row: the configuration, and the keys of its epochs.

use super::config::DeviceConfig;
use super::rows::{self, Tag};
use crate::access::policy::OwnedParty;
use serde::{Deserialize, Serialize};
use tegmen_base::crypto::Crypto;
use tegmen_base::secret::Secret;
use tegmen_delegation::{DeviceKey, Epoch, Issuer, PSK_LEN};
use tegmen_store::store::Entry;
use tegmen_store::{Revision, Value};
use tegmen_tickets::{TICKET_KEY_LEN, TicketKey};
use zeroize::Zeroizing;

/// Number of bytes of the secrets of one epoch: the device key and the key of the tickets.
const EPOCH_LEN: usize = PSK_LEN + TICKET_KEY_LEN;

/// A device with the content of its row in the store.
pub(super) struct Known {
    pub(super) party: OwnedParty,
    pub(super) config: DeviceConfig,
    pub(super) disabled: bool,
    /// The time at which the device key was generated, in seconds since 1970.
    pub(super) imprinted: u64,
    /// The reason why the next epoch must begin: an operator's request or another cause. `None` if no epoch is due.
    pub(super) reset: Option<String>,
    /// True if no connection of the present epoch may continue in the next epoch.
    pub(super) forget: bool,
    pub(super) present: Epoch,
    /// The next epoch, if the server has asked the device to begin it; otherwise `None`. The device may have begun it
    /// already.
    pub(super) pending: Option<Epoch>,
    /// The previous epoch without its device key; `None` if its connections do not continue in the present epoch.
    pub(super) before: Option<Epoch>,
    /// The revision that changed the row last.
    pub(super) changed: Revision,
}

/// The JSON text at the beginning of the value of a device's row in the store.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Record {
    config: DeviceConfig,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    disabled: bool,
    imprinted: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reset: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    forget: bool,
    /// The number of the present epoch.
    present: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pending: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<u16>,
}

impl Known {
    /// Makes a device with a new device key.
    pub(super) const fn new(party: OwnedParty, config: DeviceConfig, key: DeviceKey, now: u64) -> Self {
        let present = Epoch::first(key);
        Self {
            party,
            config,
            disabled: false,
            imprinted: now,
            reset: None,
            forget: false,
            present,
            pending: None,
            before: None,
            changed: Revision::ABSENT,
        }
    }

    pub(super) fn name(&self) -> &str {
        self.party.party().name
    }

    pub(super) fn copy(&self) -> Self {
        Self {
            party: self.party.clone(),
            config: self.config.clone(),
            reset: self.reset.clone(),
            present: copy(&self.present),
            pending: self.pending.as_ref().map(copy),
            before: self.before.as_ref().map(copy),
            ..*self
        }
    }

    /// Returns the issuer of tickets, with the keys of the present and the previous epoch.
    pub(super) fn issuer(&self) -> Issuer {
        // The numbers bound the tickets: each stands for one.
        Issuer::new(copy(&self.present), self.before.as_ref().map(copy), 0)
    }

    /// Returns the tags of three epochs: the present one, the pending one, and the previous one. A tag is `None` if
    /// there is no such epoch, or if its tickets are not valid.
    pub(super) fn tags<C: Crypto>(&self) -> [Option<Tag>; 3] {
        let of = |epoch: &Epoch| epoch.has_tickets().then(|| epoch.check::<C>());
        [of(&self.present), self.pending.as_ref().and_then(of), self.before.as_ref().and_then(of)]
    }

    /// Returns true if the device must begin the next epoch, or may have begun it.
    pub(super) const fn is_next_due(&self) -> bool {
        !self.present.has_tickets() || self.reset.is_some() || self.pending.is_some()
    }

    /// Reads the device `name` from its row. Returns the fault as text if the row is not valid.
    pub(super) fn read(name: &str, entry: &Entry) -> Result<Self, String> {
        let Value::Secret(bytes) = &entry.value else { return Err("it is not sealed".to_owned()) };
        let at = bytes.iter().position(|byte| *byte == 0).ok_or("it has no secrets")?;
        let (text, secrets) = bytes.split_at_checked(at).ok_or("it has no secrets")?;
        let record: Record = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let Record { config, disabled, imprinted, reset, forget, present, pending, before } = record;
        let (epochs, rest) = secrets.get(1..).unwrap_or_default().as_chunks::<EPOCH_LEN>();
        let mut epochs = epochs.iter();
        let mut next =
            |number: u16| epochs.next().map(|secrets| epoch(number, secrets)).ok_or("it has too few secrets");
        let present = next(present)?;
        let pending = pending.map(&mut next).transpose()?;
        let before = before.map(&mut next).transpose()?;
        if !rest.is_empty() || epochs.next().is_some() {
            return Err("it has too many secrets".to_owned());
        }
        let party = config.party(name)?;
        let changed = entry.changed;
        Ok(Self { party, config, disabled, imprinted, reset, forget, present, pending, before, changed })
    }

    /// Returns the value of the row: JSON, a zero byte, and the secrets of each epoch.
    pub(super) fn value(&self) -> Value {
        let number = |epoch: &Option<Epoch>| epoch.as_ref().map(|epoch| epoch.number);
        let record = Record {
            config: self.config.clone(),
            disabled: self.disabled,
            imprinted: self.imprinted,
            reset: self.reset.clone(),
            forget: self.forget,
            present: self.present.number,
            pending: number(&self.pending),
            before: number(&self.before),
        };
        let text = serde_json::to_vec(&record).unwrap_or_default();
        // JSON has no zero byte. The bytes never outgrow this, so that no copy of a key remains.
        let mut bytes = Zeroizing::new(Vec::with_capacity(text.len().saturating_add(1 + 3 * EPOCH_LEN)));
        bytes.extend_from_slice(&text);
        bytes.push(0);
        for epoch in [Some(&self.present), self.pending.as_ref(), self.before.as_ref()].into_iter().flatten() {
            bytes.extend_from_slice(epoch.key.0.expose());
            bytes.extend_from_slice(epoch.tickets.0.expose());
        }
        Value::Secret(bytes)
    }

    pub(super) fn row(&self) -> String {
        rows::device(self.name())
    }
}

/// Returns a copy of the epoch without its device key. The server keeps the previous epoch in this form, because it
/// uses only the device key of the present epoch.
pub(super) fn without_key(epoch: &Epoch) -> Epoch {
    Epoch { key: DeviceKey(Secret::zeroed()), ..copy(epoch) }
}

pub(super) const fn copy_key(key: &DeviceKey) -> DeviceKey {
    DeviceKey(Secret::new(*key.0.expose()))
}

pub(super) fn copy(epoch: &Epoch) -> Epoch {
    Epoch {
        number: epoch.number,
        key: copy_key(&epoch.key),
        tickets: TicketKey(Secret::new(*epoch.tickets.0.expose())),
    }
}

fn epoch(number: u16, secrets: &[u8; EPOCH_LEN]) -> Epoch {
    let (mut key, mut tickets) = (Secret::zeroed(), Secret::zeroed());
    if let Some((first, rest)) = secrets.split_first_chunk::<PSK_LEN>() {
        *key.expose_mut() = *first;
        rest.iter().zip(tickets.expose_mut()).for_each(|(from, to)| *to = *from);
    }
    Epoch { number, key: DeviceKey(key), tickets: TicketKey(tickets) }
}
