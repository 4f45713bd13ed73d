//! Raw public keys. tinydtls does not support certificates.

use super::{ALERT_INTERNAL_ERROR, Context, Wire};
use std::{ffi::c_int, ptr, slice};
use tegmen_bench_line::{Failure, KeyForm, PublicKeys, public_keys::read};
use tinydtls_sys::{
    dtls_cipher_t, dtls_context_t, dtls_ecdh_curve, dtls_ecdsa_key_t, dtls_user_parameters_t, session_t,
};

pub(crate) const SUITE: &str = "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8";

/// The keys of one end, in the form that tinydtls requires.
pub(crate) struct RawKeys {
    own: dtls_ecdsa_key_t,
    /// The memory to which `own` points: the number of the private key, and then both coordinates of the public key.
    _numbers: Box<[u8; 3 * LEN]>,
    /// Both coordinates of the point in the peer's public key.
    peer: [u8; 2 * LEN],
}

impl RawKeys {
    fn from_files(keys: &PublicKeys) -> Result<Self, Failure> {
        let KeyForm::Raw { key, public_key, peer } = &keys.form else {
            return Err(Failure::new("it knows no certificates"));
        };
        if keys.suite != SUITE {
            return Err(Failure::new(format!("it does not know {}", keys.suite)));
        }
        let numbers = [&private_number(&read(key)?)?[..], &point(&read(public_key)?)?].concat();
        let numbers: Box<[u8; 3 * LEN]> = numbers.into_boxed_slice().try_into().map_err(|_| malformed())?;
        let own = dtls_ecdsa_key_t {
            curve: dtls_ecdh_curve::DTLS_ECDH_CURVE_SECP256R1,
            priv_key: numbers[..LEN].as_ptr(),
            pub_key_x: numbers[LEN..2 * LEN].as_ptr(),
            pub_key_y: numbers[2 * LEN..].as_ptr(),
        };
        Ok(Self { own, _numbers: numbers, peer: point(&read(peer)?)? })
    }
}

impl Context {
    /// Does the same as [`Context::new`] for sessions in which both ends authenticate themselves with raw public
    /// keys.
    pub(crate) fn with_public_keys(keys: &PublicKeys) -> Result<Self, Failure> {
        let keys = RawKeys::from_files(keys)?;
        let mut context = Self::new()?;
        let handler = &mut *context.handler;
        handler.get_psk_info = None;
        handler.get_user_parameters = Some(on_user_parameters);
        handler.get_ecdsa_key = Some(on_own_key);
        handler.verify_ecdsa_key = Some(on_peer_key);
        context.keys = Some(Box::new(keys));
        Ok(context)
    }

    pub(crate) fn has_public_keys(&self) -> bool {
        self.keys.is_some()
    }
}

/// Returns the number in a private key in PKCS#8. The number follows the version of the ECPrivateKey (RFC 5915, section
/// 3).
fn private_number(der: &[u8]) -> Result<[u8; LEN], Failure> {
    const BEFORE: &[u8] = &[2, 1, 1, 4, LEN as u8];
    let at = der.windows(BEFORE.len()).position(|window| window == BEFORE).ok_or_else(malformed)?;
    der.get(at + BEFORE.len()..).and_then(|rest| rest.first_chunk()).copied().ok_or_else(malformed)
}

/// Returns the point in a SubjectPublicKeyInfo. It is in the last bytes, after the mark of an uncompressed point (RFC
/// 5480, section 2.2).
fn point(der: &[u8]) -> Result<[u8; 2 * LEN], Failure> {
    let (before, point) = der.split_last_chunk().ok_or_else(malformed)?;
    if before.last() == Some(&4) { Ok(*point) } else { Err(malformed()) }
}

fn malformed() -> Failure {
    Failure::new("no key of the curve P-256")
}

/// Returns the keys of the context in whose call the callback runs; `None` if it has no keys.
unsafe fn keys<'a>(context: *mut dtls_context_t) -> Option<&'a RawKeys> {
    // SAFETY: `app` is null or the `Wire` of the running call, whose context keeps the keys.
    unsafe { (*context).app.cast::<Wire>().as_ref()?.keys.as_ref() }
}

unsafe extern "C" fn on_user_parameters(
    _: *mut dtls_context_t,
    _: *mut session_t,
    parameters: *mut dtls_user_parameters_t,
) {
    // SAFETY: the library lends its parameters, whose list has more than two places.
    unsafe {
        let suites = &mut (*parameters).cipher_suites;
        suites[0] = dtls_cipher_t::TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8;
        suites[1] = dtls_cipher_t::TLS_NULL_WITH_NULL_NULL;
    }
}

unsafe extern "C" fn on_own_key(
    context: *mut dtls_context_t,
    _: *const session_t,
    result: *mut *const dtls_ecdsa_key_t,
) -> c_int {
    // SAFETY: as in `keys`; `result` is writable.
    unsafe {
        let Some(keys) = keys(context) else { return ALERT_INTERNAL_ERROR };
        *result = ptr::from_ref(&keys.own);
    }
    0
}

unsafe extern "C" fn on_peer_key(
    context: *mut dtls_context_t,
    _: *const session_t,
    x: *const u8,
    y: *const u8,
    len: usize,
) -> c_int {
    // SAFETY: as in `keys`; both coordinates are readable for `len` bytes.
    unsafe {
        let Some(keys) = keys(context) else { return ALERT_INTERNAL_ERROR };
        let (x, y) = (slice::from_raw_parts(x, len), slice::from_raw_parts(y, len));
        if [x, y].concat() == keys.peer { 0 } else { ALERT_BAD_CERTIFICATE }
    }
}

/// Length of a number of the curve, in bytes.
const LEN: usize = 32;
const ALERT_BAD_CERTIFICATE: c_int = -(2 << 8 | 42);
