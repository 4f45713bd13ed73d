//! The epochs of a device.

use super::connection::Carrier;
use super::device::without_key;
use super::error::DelegationError;
use super::numbers::{NextNumbers, Purpose, UNUSED, reserve};
use super::rows::{self, Tag};
use super::server::Delegations;
use std::collections::BTreeSet;
use tegmen_base::crypto::Crypto;
use tegmen_base::secret::{Secret, same};
use tegmen_delegation::{CHECK_LEN, DeviceKey, PSK_LEN};
use tegmen_store::{Revision, Store, Transaction, Value};

/// An epoch that the server asks the device to begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextEpoch {
    /// The number of the epoch.
    pub number: u16,
    /// The check value of the epoch: the device begins the epoch only if it computes the same value.
    pub check: [u8; CHECK_LEN],
}

/// The keys that a session with a device was opened with, and the epoch that was pending at that time.
pub(super) struct Opened {
    /// The device key that both endpoints use in the session.
    pub(super) key: DeviceKey,
    /// The tag of the epoch that was pending when the session was opened. The session proves that the device had not
    /// begun this epoch. `None` if no epoch was pending.
    pub(super) pending: Option<Tag>,
}

/// The effects that the next epoch of a device would have on those connections that have not expired.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ResetPreview {
    /// The number of the present epoch.
    pub epoch: u16,
    /// The number of connections that their peers opened with a ticket. These peers get another ticket when they return
    /// to the server, without a new authentication.
    pub return_by_ticket: usize,
    /// The number of connections that end with the present epoch, because the server sent their session to the device.
    /// The peer must then authenticate itself again, or the server opens the session again.
    pub end: usize,
    /// The number of connections of the previous epoch whose peers have not returned yet. These peers must authenticate
    /// themselves again.
    pub end_unreturned: usize,
    /// The number of connections that are revoked now. The next epoch removes them from the device's list of refused
    /// connections.
    pub revoked: usize,
}

impl<S: Store, C: Crypto> Delegations<S, C> {
    /// Requests the next epoch of a device. `by` is the name of the operator who requests the epoch. If the server
    /// itself requests the epoch, `by` is a text with the reason. The epoch begins when the server next contacts the
    /// device. All sessions and tickets of the present epoch then end at the device.
    ///
    /// # Errors
    /// [`DelegationError::NoDevice`], [`DelegationError::Changed`] or [`DelegationError::Store`].
    pub async fn reset(&self, name: &str, by: &str) -> Result<(), DelegationError> {
        let device = self.known(name)?;
        self.change(&device, |known| {
            known.reset.get_or_insert_with(|| by.to_owned());
            Ok(((), Transaction::default()))
        })
        .await?;
        self.write_or_note(true, by, "epoch-due", format!("the next epoch of the device {name} is due")).await
    }

    /// Returns the effects that the next epoch would have on the connections of a device.
    ///
    /// # Errors
    /// The errors of [`Self::connections`].
    pub async fn preview_reset(&self, name: &str) -> Result<ResetPreview, DelegationError> {
        let device = self.known(name)?;
        self.write_made().await?;
        let connections = self.all_connections(&device).await?;
        let now = self.now();
        let epoch = device.state().known.present.number;
        let mut preview = ResetPreview { epoch, ..ResetPreview::default() };
        let mut returned = BTreeSet::new();
        for connection in connections.iter().filter(|connection| u64::from(connection.expires) > now).rev() {
            returned.extend(connection.of.map(|of| of.number));
            let is_of_before = connection.id.epoch != epoch;
            let count = match connection.carrier {
                _ if connection.revoked && is_of_before => continue,
                _ if connection.revoked => &mut preview.revoked,
                Carrier::Ticket if is_of_before && returned.contains(&connection.id.number) => continue,
                Carrier::Ticket if is_of_before => &mut preview.end_unreturned,
                Carrier::Ticket => &mut preview.return_by_ticket,
                Carrier::Id | Carrier::Device if is_of_before => continue,
                Carrier::Id | Carrier::Device => &mut preview.end,
            };
            *count = count.saturating_add(1);
        }
        Ok(preview)
    }

    /// Makes the next epoch. Its keys come from keying material that a session with the device exported under
    /// [`EXPORTER`](tegmen_delegation::EXPORTER). When this function returns, the epoch is durable and pending. The
    /// caller must then ask the device at once to begin the epoch. If another epoch was pending before, it is
    /// discarded. So the caller must open the session under the key of the present epoch, and after the earlier epoch
    /// became pending. The device then had not begun the earlier epoch when the session was opened.
    ///
    /// # Errors
    /// [`DelegationError::NoDevice`], [`DelegationError::NoMoreEpochs`], [`DelegationError::Changed`] or
    /// [`DelegationError::Store`].
    pub async fn begin_epoch(&self, name: &str, exported: &Secret<PSK_LEN>) -> Result<NextEpoch, DelegationError> {
        self.begin_epoch_under(name, exported, None).await
    }

    /// Makes the next epoch as [`Self::begin_epoch`] does, but only if two conditions have held since the session was
    /// opened: the present epoch is the same, and no other epoch became pending. Otherwise another server may be asking
    /// the device to begin an epoch at this time, and the device may begin it.
    ///
    /// # Errors
    /// [`DelegationError::Outdated`] if one of the conditions does not hold, and the errors of [`Self::begin_epoch`].
    pub(super) async fn begin_epoch_under(
        &self,
        name: &str,
        exported: &Secret<PSK_LEN>,
        opened: Option<&Opened>,
    ) -> Result<NextEpoch, DelegationError> {
        let device = self.known(name)?;
        let (next, numbers) = self
            .change(&device, |known| {
                let [_, pending, _] = known.tags::<C>();
                let has_changed = |opened: &Opened| {
                    !same(opened.key.0.expose(), known.present.key.0.expose()) || opened.pending != pending
                };
                if opened.is_some_and(has_changed) {
                    return Err(DelegationError::Outdated(name.to_owned()));
                }
                let next = known.present.next::<C>(exported);
                let next = next.ok_or_else(|| DelegationError::NoMoreEpochs(name.to_owned()))?;
                let (number, check) = (next.number, next.check::<C>());
                known.pending = Some(next);
                // They are in each backup that has the key, so that a restore moves them. The first blocks are reserved, so that
                // peers get numbers as soon as the epoch begins.
                let mut numbers = NextNumbers::default();
                let mut transaction = Transaction::default();
                for purpose in Purpose::ALL {
                    let (reserved, block) = reserve(UNUSED, purpose).unwrap_or((UNUSED, 0..0));
                    numbers.free(purpose).add(block);
                    let row = rows::numbers(name, &check, purpose);
                    transaction = transaction.require(row.as_str(), Revision::ABSENT).put(row, Value::Number(reserved));
                }
                Ok(((NextEpoch { number, check }, numbers), transaction))
            })
            .await?;
        let mut state = device.state();
        (state.next_numbers, state.is_littered) = (Some((next.check, numbers)), true);
        state.asks();
        drop(state);
        Ok(next)
    }

    /// Makes the pending epoch the present one. The caller knows that the device has begun the epoch: the device
    /// acknowledged the epoch, or opened a session under the device key of the epoch.
    ///
    /// # Errors
    /// [`DelegationError::NoDevice`], [`DelegationError::NoPending`], [`DelegationError::Changed`] or
    /// [`DelegationError::Store`].
    pub async fn epoch_begun(&self, name: &str, epoch: NextEpoch) -> Result<(), DelegationError> {
        let device = self.known(name)?;
        let restored = device.state().restored;
        self.change(&device, |known| {
            let is_it = |next: &tegmen_delegation::Epoch| next.check::<C>() == epoch.check;
            let next = known.pending.take_if(|next| is_it(next));
            let next = next.ok_or_else(|| DelegationError::NoPending(name.to_owned()))?;
            let goes_on = known.present.has_tickets() && !known.forget && !restored;
            known.before = goes_on.then(|| without_key(&known.present));
            (known.present, known.reset, known.forget) = (next, None, false);
            Ok(((), Transaction::default()))
        })
        .await?;
        self.count(|counts| &mut counts.epochs);
        let message = format!("the device {name} begins the epoch {}", epoch.number);
        self.write_or_note(true, "", "epoch-begun", message).await
    }
}
