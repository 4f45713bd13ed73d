//! The encoding of each [`Number`] in its row, and the two rules for a number. A number only increases, and it does not
//! increase faster than its pace, which is its maximum increase in a day.

use super::{Number, Put, StoreError, Value};
use crate::clock::{DAY, allowed};

/// Checks the row `put` before the store writes this row. `before` contains the current [`Number`] in the row, and the
/// time from which the highest allowed value of the number grows by its `pace` each day; `None` if the row has no
/// number. Returns this time for the number in `put`; 0 if `put` has no number. All times, also `now`, are in
/// milliseconds since 1970.
///
/// # Errors
/// [`StoreError::NotForward`] if the number does not increase, if its pace (its maximum increase in a day) changes, or
/// if another kind of value replaces the number. [`StoreError::TooFast`] if the number increases faster than its pace
/// allows.
pub(crate) fn since(put: &Put, before: Option<(Number, u64)>, now: u64) -> Result<u64, StoreError> {
    let not_forward = || StoreError::NotForward { key: put.key.clone() };
    match (&put.value, before) {
        (Value::Number(new), Some((old, _))) if new.next <= old.next || new.pace != old.pace => Err(not_forward()),
        (Value::Number(new), before) => {
            let since = before.map_or_else(|| made_at(new, now), |(_, since)| since);
            if new.next > allowed(new.pace, since, now) {
                return Err(StoreError::TooFast { key: put.key.clone() });
            }
            Ok(since)
        }
        (Value::Plain(_) | Value::Secret(_), Some(_)) => Err(not_forward()),
        (Value::Plain(_) | Value::Secret(_), None) => Ok(0),
    }
}

/// Encodes a [`Number`] as the value of a row. The value has three parts of 8 bytes: the fields `next` and `pace` of
/// the number, and the time `since` in milliseconds since 1970. From this time on, the highest allowed value of the
/// number grows by its `pace` each day.
pub(crate) fn encode(number: Number, since: u64) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes.as_chunks_mut().0.copy_from_slice(&[number.next, number.pace, since].map(u64::to_be_bytes));
    bytes
}

/// Decodes the bytes that [`encode`] returned. Returns `None` if the length is wrong.
pub(crate) fn decode(bytes: &[u8]) -> Option<(Number, u64)> {
    let ([next, pace, since], []) = bytes.as_chunks::<8>() else { return None };
    let [next, pace, since] = [next, pace, since].map(|bytes| u64::from_be_bytes(*bytes));
    Some((Number { next, pace }, since))
}

/// Returns the time that the row of a new [`Number`] stores, in milliseconds since 1970. From this time on, the highest
/// allowed value of the number grows by its `pace` each day. For a number whose `next` is 0, the time is `now`. A
/// number with a higher `next` was used elsewhere before. The function then returns the time in the past from which the
/// number, at its maximum pace, would have increased from 0 to `next` until `now`.
fn made_at(number: &Number, now: u64) -> u64 {
    let used = u128::from(number.next).saturating_mul(DAY.into()).checked_div(number.pace.into()).unwrap_or(0);
    now.saturating_sub(u64::try_from(used).unwrap_or(u64::MAX))
}
