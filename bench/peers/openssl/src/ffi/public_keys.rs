//! Lets both ends authenticate themselves with certificates.

use super::{Context, SslCtx, last_error};
use std::{
    ffi::{CString, c_char, c_int, c_void},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    ptr,
};
use tegmen_bench_line::{Failure, KeyForm, PublicKeys};

impl Context {
    /// Lets all sessions from now on authenticate themselves with this certificate chain, and require a chain of the
    /// peer.
    pub(crate) fn use_public_keys(&mut self, keys: &PublicKeys) -> Result<(), Failure> {
        let KeyForm::X509 { ca, certificate, key } = &keys.form else {
            return Err(Failure::new("it has no raw public keys"));
        };
        // Its own names.
        let suite = match keys.suite.as_str() {
            "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256" => c"ECDHE-ECDSA-AES128-GCM-SHA256",
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256" => c"ECDHE-RSA-AES128-GCM-SHA256",
            other => return Err(Failure::new(format!("{other} is not measured"))),
        };
        let (ca, certificate, key) = (path(ca)?, path(certificate)?, path(key)?);
        let context = self.context;
        // SAFETY: the context is alive; every string ends in zero and is read before the call returns; without a callback
        // the library's own verdict stands.
        unsafe {
            must("the suite", super::SSL_CTX_set_cipher_list(context, suite.as_ptr()))?;
            must("the CA", SSL_CTX_load_verify_locations(context, ca.as_ptr(), ptr::null()))?;
            must("the certificate", SSL_CTX_use_certificate_chain_file(context, certificate.as_ptr()))?;
            must("the key", SSL_CTX_use_PrivateKey_file(context, key.as_ptr(), FILETYPE_PEM))?;
            SSL_CTX_set_verify(context, VERIFY_PEER | VERIFY_FAIL_IF_NO_PEER_CERT, ptr::null());
        }
        Ok(())
    }
}

fn must(doing: &str, result: c_int) -> Result<(), Failure> {
    if result == 1 { Ok(()) } else { Err(last_error(doing)) }
}

fn path(path: &Path) -> Result<CString, Failure> {
    CString::new(path.as_os_str().as_bytes()).map_err(|error| Failure::new(error.to_string()))
}

const FILETYPE_PEM: c_int = 1;
const VERIFY_PEER: c_int = 1;
const VERIFY_FAIL_IF_NO_PEER_CERT: c_int = 2;

unsafe extern "C" {
    fn SSL_CTX_load_verify_locations(context: *mut SslCtx, file: *const c_char, path: *const c_char) -> c_int;
    fn SSL_CTX_use_certificate_chain_file(context: *mut SslCtx, file: *const c_char) -> c_int;
    fn SSL_CTX_use_PrivateKey_file(context: *mut SslCtx, file: *const c_char, form: c_int) -> c_int;
    fn SSL_CTX_set_verify(context: *mut SslCtx, mode: c_int, callback: *const c_void);
}
