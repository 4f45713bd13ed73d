//! Random bytes of the system.

use crate::output::Failure;

/// Fills `bytes` with random bytes.
///
/// # Errors
/// The system gives no randomness.
pub(crate) fn fill(bytes: &mut [u8]) -> Result<(), Failure> {
    getrandom::fill(bytes).map_err(|error| Failure::new(format!("the system gives no randomness: {error}")))
}

/// Returns an array of random bytes.
///
/// # Errors
/// The same as for [`fill`].
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], Failure> {
    let mut bytes = [0; N];
    fill(&mut bytes)?;
    Ok(bytes)
}
