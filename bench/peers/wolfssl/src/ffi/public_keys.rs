//! Certificates and raw public keys.

use super::{Connection, Context, Role, SUCCESS, WolfSsl, WolfSslCtx};
use std::{
    cell::RefCell,
    ffi::{CStr, CString, c_char, c_int, c_long, c_uchar, c_uint},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    ptr,
};
use tegmen_bench_line::{
    Agreed, Failure, KeyForm, PublicKeys, identity,
    public_keys::{RAW_PUBLIC_KEY, read},
};

thread_local! {
    /// The common name in the certificate that was accepted last. Only one session at a time uses it.
    static PEER: RefCell<String> = const { RefCell::new(String::new()) };
}

impl Context {
    /// Lets all sessions from now on authenticate themselves with this key, and require a key of the peer.
    pub(crate) fn use_public_keys(&mut self, keys: &PublicKeys) -> Result<(), Failure> {
        let suite = text(&keys.suite)?;
        let context = self.context;
        // SAFETY: the context is alive; every string ends in zero, every buffer is readable for its length, and all of
        // them are copied or read before the call returns; the callback lives as long as the program.
        unsafe {
            must("the suite", wolfSSL_CTX_set_cipher_list(context, suite.as_ptr()))?;
            match &keys.form {
                KeyForm::X509 { ca, certificate, key } => {
                    let (ca, certificate, key) = (path(ca)?, path(certificate)?, path(key)?);
                    must("the CA", wolfSSL_CTX_load_verify_locations(context, ca.as_ptr(), ptr::null()))?;
                    must("the certificate", wolfSSL_CTX_use_certificate_chain_file(context, certificate.as_ptr()))?;
                    must("the key", wolfSSL_CTX_use_PrivateKey_file(context, key.as_ptr(), FILETYPE_PEM))?;
                }
                KeyForm::Raw { key, public_key, peer } => {
                    let (key, public_key, peer) = (read(key)?, read(public_key)?, read(peer)?);
                    let (own, own_len) = (public_key.as_ptr(), public_key.len() as c_long);
                    let types = [CERT_TYPE_RPK];
                    let (types, count) = (types.as_ptr(), types.len() as c_int);
                    must("raw keys of clients", wolfSSL_CTX_set_client_cert_type(context, types, count))?;
                    must("raw keys of servers", wolfSSL_CTX_set_server_cert_type(context, types, count))?;
                    must("the key", wolfSSL_CTX_use_certificate_buffer(context, own, own_len, FILETYPE_ASN1))?;
                    let key_len = key.len() as c_long;
                    must("the key", wolfSSL_CTX_use_PrivateKey_buffer(context, key.as_ptr(), key_len, FILETYPE_ASN1))?;
                    let expected = wolfSSL_CTX_set_expected_rpk(context, peer.as_ptr(), peer.len() as c_uint);
                    must("the peer's key", expected)?;
                }
            }
            wolfSSL_CTX_set_verify(context, VERIFY_PEER | VERIFY_FAIL_IF_NO_PEER_CERT, on_verified);
        }
        self.tells_what_was_agreed = true;
        Ok(())
    }
}

impl Context {
    /// Lets all sessions from now on use this cipher suite with the pre-shared key.
    pub(crate) fn use_suite(&mut self, suite: &str) -> Result<(), Failure> {
        let suite = text(suite)?;
        // SAFETY: the context is alive; the string ends in zero, and is read before the call returns.
        must("the suite", unsafe { wolfSSL_CTX_set_cipher_list(self.context, suite.as_ptr()) })?;
        // A peer that completes the handshake proves that it has the key of this identity.
        PEER.set(identity().to_owned());
        self.tells_what_was_agreed = true;
        Ok(())
    }
}

impl Connection {
    /// Returns the cipher suite and the peer of the session, after the handshake.
    pub(crate) fn agreed(&self) -> Agreed {
        let mut form = -1;
        // SAFETY: the connection is alive; the library returns a static string that ends in zero, or null.
        let suite = unsafe {
            match self.role {
                Role::Client => wolfSSL_get_negotiated_server_cert_type(self.ssl, &raw mut form),
                Role::Server => wolfSSL_get_negotiated_client_cert_type(self.ssl, &raw mut form),
            };
            let name = wolfSSL_CIPHER_get_name(wolfSSL_get_current_cipher(self.ssl));
            if name.is_null() { String::new() } else { CStr::from_ptr(name).to_string_lossy().into_owned() }
        };
        let is_raw = form == c_int::from(CERT_TYPE_RPK);
        let peer = if is_raw { RAW_PUBLIC_KEY.to_owned() } else { PEER.with_borrow(String::clone) };
        Agreed { suite, peer }
    }
}

/// Returns the IANA names of all cipher suites.
pub(crate) fn suites() -> Vec<String> {
    let mut room = vec![0u8; 16 * 1024];
    // SAFETY: `room` is writable for its length; what is written ends in zero.
    let list = unsafe {
        wolfSSL_get_ciphers_iana(room.as_mut_ptr().cast(), room.len() as c_int);
        CStr::from_ptr(room.as_ptr().cast()).to_string_lossy().into_owned()
    };
    list.split(':').map(str::to_owned).collect()
}

fn must(doing: &str, result: c_int) -> Result<(), Failure> {
    if result == SUCCESS { Ok(()) } else { Err(Failure::new(format!("{doing} is not taken: {result}"))) }
}

fn text(text: &str) -> Result<CString, Failure> {
    CString::new(text).map_err(|error| Failure::new(error.to_string()))
}

fn path(path: &Path) -> Result<CString, Failure> {
    CString::new(path.as_os_str().as_bytes()).map_err(|error| Failure::new(error.to_string()))
}

/// Returns the verdict without a change, and stores the common name of the certificate.
unsafe extern "C" fn on_verified(verdict: c_int, store: *mut StoreCtx) -> c_int {
    // SAFETY: the library lends a store for the time of this call; the name in it ends in zero or is null.
    unsafe {
        if verdict == 1 && !(*store).domain.is_null() {
            PEER.set(CStr::from_ptr((*store).domain).to_string_lossy().into_owned());
        }
    }
    verdict
}

/// The beginning of the C struct WOLFSSL_X509_STORE_CTX, as it is without OPENSSL_EXTRA. The build script does not set
/// this option.
#[repr(C)]
struct StoreCtx {
    _session_chain: *mut u8,
    domain: *const c_char,
}

#[repr(C)]
struct WolfSslCipher([u8; 0]);

const FILETYPE_PEM: c_int = 1;
const FILETYPE_ASN1: c_int = 2;
const VERIFY_PEER: c_int = 1;
const VERIFY_FAIL_IF_NO_PEER_CERT: c_int = 2;
/// The certificate type RawPublicKey (RFC 7250, section 3).
const CERT_TYPE_RPK: c_char = 2;

type Verify = unsafe extern "C" fn(c_int, *mut StoreCtx) -> c_int;

unsafe extern "C" {
    fn wolfSSL_CTX_set_cipher_list(context: *mut WolfSslCtx, list: *const c_char) -> c_int;
    fn wolfSSL_CTX_load_verify_locations(context: *mut WolfSslCtx, file: *const c_char, path: *const c_char) -> c_int;
    fn wolfSSL_CTX_use_certificate_chain_file(context: *mut WolfSslCtx, file: *const c_char) -> c_int;
    fn wolfSSL_CTX_use_PrivateKey_file(context: *mut WolfSslCtx, file: *const c_char, form: c_int) -> c_int;
    fn wolfSSL_CTX_use_certificate_buffer(
        context: *mut WolfSslCtx,
        bytes: *const c_uchar,
        len: c_long,
        form: c_int,
    ) -> c_int;
    fn wolfSSL_CTX_use_PrivateKey_buffer(
        context: *mut WolfSslCtx,
        bytes: *const c_uchar,
        len: c_long,
        form: c_int,
    ) -> c_int;
    fn wolfSSL_CTX_set_client_cert_type(context: *mut WolfSslCtx, types: *const c_char, count: c_int) -> c_int;
    fn wolfSSL_CTX_set_server_cert_type(context: *mut WolfSslCtx, types: *const c_char, count: c_int) -> c_int;
    fn wolfSSL_CTX_set_expected_rpk(context: *mut WolfSslCtx, key: *const c_uchar, len: c_uint) -> c_int;
    fn wolfSSL_CTX_set_verify(context: *mut WolfSslCtx, mode: c_int, callback: Verify);

    fn wolfSSL_get_negotiated_client_cert_type(ssl: *mut WolfSsl, form: *mut c_int) -> c_int;
    fn wolfSSL_get_negotiated_server_cert_type(ssl: *mut WolfSsl, form: *mut c_int) -> c_int;
    fn wolfSSL_get_current_cipher(ssl: *mut WolfSsl) -> *mut WolfSslCipher;
    fn wolfSSL_CIPHER_get_name(cipher: *const WolfSslCipher) -> *const c_char;
    fn wolfSSL_get_ciphers_iana(room: *mut c_char, len: c_int) -> c_int;
}
