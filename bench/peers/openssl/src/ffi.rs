//! The few functions of libssl that one DTLS connection over memory needs.
//!
//! OpenSSL reads and writes datagrams through a BIO of this program. It reads the one datagram that is being delivered,
//! and writes datagrams into the list of the current call.
#![expect(unsafe_code, reason = "libssl is a C library")]

mod public_keys;

use std::{
    ffi::{CStr, c_char, c_int, c_long, c_uchar, c_uint, c_ulong, c_void},
    ptr, slice,
};
use tegmen_bench_line::{Failure, IDENTITY, KEY, Outbox};

/// The end of a session for which a context is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Client,
    Server,
}

/// The settings of one end, which all its connections share.
pub(crate) struct Context {
    context: *mut SslCtx,
    method: *mut BioMethod,
    role: Role,
}

/// One end of a session.
pub(crate) struct Connection {
    ssl: *mut Ssl,
    /// The memory that the BIO uses. It was allocated by a `Box`. It is a raw pointer, because the BIO also writes
    /// through it, and a `Box` must be the only owner of its memory.
    wire: *mut Wire,
}

/// The buffers that the BIO uses during one call. They are empty between two calls.
struct Wire {
    inbound: *const u8,
    inbound_len: usize,
    outbound: *mut Outbox,
}

impl Wire {
    const EMPTY: Self = Self { inbound: ptr::null(), inbound_len: 0, outbound: ptr::null_mut() };
}

impl Context {
    pub(crate) fn new(role: Role, tickets: bool) -> Result<Self, Failure> {
        // SAFETY: the method tables are static; the new context and BIO method are checked before use and owned by
        // `Self`, which frees them; every callback is a plain function that lives as long as the program.
        unsafe {
            let context = SSL_CTX_new(if role == Role::Client { DTLS_client_method() } else { DTLS_server_method() });
            let method = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), c"datagrams in memory".as_ptr());
            if context.is_null() || method.is_null() {
                return Err(last_error("no context"));
            }
            let this = Self { context, method, role };
            BIO_meth_set_read(method, bio_read);
            BIO_meth_set_write(method, bio_write);
            BIO_meth_set_ctrl(method, bio_ctrl);
            SSL_CTX_ctrl(context, SSL_CTRL_SET_MIN_PROTO_VERSION, DTLS1_2, ptr::null_mut());
            SSL_CTX_ctrl(context, SSL_CTRL_SET_MAX_PROTO_VERSION, DTLS1_2, ptr::null_mut());
            SSL_CTX_ctrl(context, SSL_CTRL_SET_SESS_CACHE_MODE, 0, ptr::null_mut());
            let mut options = SSL_OP_NO_QUERY_MTU;
            if !tickets {
                options |= SSL_OP_NO_TICKET;
            }
            match role {
                Role::Client => SSL_CTX_set_psk_client_callback(context, psk_client),
                Role::Server => {
                    options |= SSL_OP_COOKIE_EXCHANGE;
                    SSL_CTX_set_psk_server_callback(context, psk_server);
                    SSL_CTX_set_cookie_generate_cb(context, generate_cookie);
                    SSL_CTX_set_cookie_verify_cb(context, verify_cookie);
                }
            }
            SSL_CTX_set_options(context, options);
            if SSL_CTX_set_cipher_list(context, c"PSK-AES128-CCM8:@SECLEVEL=0".as_ptr()) != 1 {
                return Err(last_error("no PSK-AES128-CCM8"));
            }
            Ok(this)
        }
    }

    pub(crate) fn connection(&self) -> Result<Connection, Failure> {
        // SAFETY: context and method are alive in `self`; `ssl` takes ownership of the BIO; the BIO's data points to what
        // `Connection` keeps for as long as `ssl`.
        unsafe {
            let ssl = SSL_new(self.context);
            let bio = BIO_new(self.method);
            if ssl.is_null() || bio.is_null() {
                return Err(last_error("no connection"));
            }
            let wire = Box::into_raw(Box::new(Wire::EMPTY));
            BIO_set_data(bio, wire.cast());
            BIO_set_init(bio, 1);
            SSL_set_bio(ssl, bio, bio);
            SSL_ctrl(ssl, SSL_CTRL_SET_MTU, MTU, ptr::null_mut());
            match self.role {
                Role::Client => SSL_set_connect_state(ssl),
                Role::Server => SSL_set_accept_state(ssl),
            }
            Ok(Connection { ssl, wire })
        }
    }
}

impl Connection {
    pub(crate) fn advance(&mut self, datagram: Option<&[u8]>, out: &mut Outbox) -> Result<(), Failure> {
        let result = self.call(datagram, Some(out), |ssl| {
            // SAFETY: `ssl` is alive; the wire it reads and writes is set for the time of this call.
            unsafe { SSL_do_handshake(ssl) }
        });
        if result == 1 || self.wants_more(result) { Ok(()) } else { Err(last_error("handshake")) }
    }

    pub(crate) fn is_finished(&self) -> bool {
        // SAFETY: `ssl` is alive.
        unsafe { SSL_is_init_finished(self.ssl) == 1 }
    }

    /// Offers to resume the session of `end`. This function must be called before the handshake.
    pub(crate) fn go_on_from(&self, end: &Self) -> Result<(), Failure> {
        // SAFETY: both are alive; the session is counted, and this count of it is given back.
        unsafe {
            let session = SSL_get1_session(end.ssl);
            let set = SSL_set_session(self.ssl, session);
            SSL_SESSION_free(session);
            if set == 1 { Ok(()) } else { Err(last_error("no session to resume")) }
        }
    }

    pub(crate) fn was_resumed(&self) -> bool {
        // SAFETY: `ssl` is alive.
        unsafe { SSL_session_reused(self.ssl) == 1 }
    }

    pub(crate) fn write(&mut self, payload: &[u8], out: &mut Outbox) -> Result<(), Failure> {
        let len = c_int::try_from(payload.len()).map_err(|e| Failure::new(e.to_string()))?;
        let written = self.call(None, Some(out), |ssl| {
            // SAFETY: `payload` is readable for `len` bytes; the wire is set for the time of this call.
            unsafe { SSL_write(ssl, payload.as_ptr().cast(), len) }
        });
        if written == len { Ok(()) } else { Err(last_error("write")) }
    }

    pub(crate) fn read(&mut self, datagram: &[u8], payload: &mut [u8]) -> Result<usize, Failure> {
        let room = c_int::try_from(payload.len()).map_err(|e| Failure::new(e.to_string()))?;
        let read = self.call(Some(datagram), None, |ssl| {
            // SAFETY: `payload` is writable for `room` bytes; the wire is set for the time of this call.
            unsafe { SSL_read(ssl, payload.as_mut_ptr().cast(), room) }
        });
        usize::try_from(read).ok().filter(|&len| len > 0).ok_or_else(|| last_error("read"))
    }

    /// Calls `step` while the BIO can use `inbound` and `outbound`.
    fn call(
        &mut self,
        inbound: Option<&[u8]>,
        outbound: Option<&mut Outbox>,
        step: impl FnOnce(*mut Ssl) -> c_int,
    ) -> c_int {
        let (inbound, inbound_len) = inbound.map_or((ptr::null(), 0), |d| (d.as_ptr(), d.len()));
        let outbound = outbound.map_or(ptr::null_mut(), ptr::from_mut);
        // SAFETY: `wire` is alive, and no reference to it exists.
        unsafe { self.wire.write(Wire { inbound, inbound_len, outbound }) };
        let result = step(self.ssl);
        // SAFETY: as before.
        unsafe { self.wire.write(Wire::EMPTY) };
        result
    }

    fn wants_more(&self, result: c_int) -> bool {
        // SAFETY: `ssl` is alive.
        unsafe { SSL_get_error(self.ssl, result) == SSL_ERROR_WANT_READ }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: `ssl` came from SSL_new, is freed once, and frees its BIO with it; then nobody knows the wire, which came
        // from a box.
        unsafe {
            // A connection that is not closed in order takes its session with it.
            SSL_set_shutdown(self.ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
            SSL_free(self.ssl);
            drop(Box::from_raw(self.wire));
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: both came from their constructors and are freed once; connections hold a reference of their own.
        unsafe {
            SSL_CTX_free(self.context);
            BIO_meth_free(self.method);
        }
    }
}

/// Returns the name and the version of the library that was loaded.
pub(crate) fn version() -> String {
    // SAFETY: the library returns a static string that ends in zero.
    unsafe { CStr::from_ptr(OpenSSL_version(0)) }.to_string_lossy().into_owned()
}

fn last_error(doing: &str) -> Failure {
    let mut text = [0 as c_char; 256];
    // SAFETY: the library writes at most 256 bytes with a final zero into `text`.
    let reason = unsafe {
        ERR_error_string_n(ERR_get_error(), text.as_mut_ptr(), text.len());
        CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned()
    };
    Failure::new(format!("{doing}: {reason}"))
}

unsafe extern "C" fn bio_read(bio: *mut Bio, buf: *mut c_char, room: c_int) -> c_int {
    // SAFETY: the BIO's data is the `Wire` of a live connection; `buf` is writable for `room` bytes.
    unsafe {
        BIO_clear_flags(bio, BIO_FLAGS_RETRY);
        let wire = BIO_get_data(bio).cast::<Wire>();
        if (*wire).inbound.is_null() {
            BIO_set_flags(bio, BIO_FLAGS_SHOULD_RETRY_READ);
            return -1;
        }
        let len = (*wire).inbound_len.min(usize::try_from(room).unwrap_or(0));
        ptr::copy_nonoverlapping((*wire).inbound, buf.cast(), len);
        (*wire).inbound = ptr::null();
        c_int::try_from(len).unwrap_or(-1)
    }
}

unsafe extern "C" fn bio_write(bio: *mut Bio, buf: *const c_char, len: c_int) -> c_int {
    // SAFETY: as in `bio_read`; `outbound` is null or an outbox lent for the running call.
    unsafe {
        let wire = BIO_get_data(bio).cast::<Wire>();
        let Some(outbox) = (*wire).outbound.as_mut() else { return -1 };
        outbox.push(slice::from_raw_parts(buf.cast(), usize::try_from(len).unwrap_or(0)));
    }
    len
}

unsafe extern "C" fn bio_ctrl(_: *mut Bio, command: c_int, _: c_long, _: *mut c_void) -> c_long {
    match command {
        BIO_CTRL_FLUSH | BIO_CTRL_DGRAM_SET_NEXT_TIMEOUT => 1,
        BIO_CTRL_DGRAM_GET_MTU_OVERHEAD => 28, // IPv4 and UDP
        _ => 0,
    }
}

unsafe extern "C" fn psk_client(
    _: *mut Ssl,
    _hint: *const c_char,
    identity: *mut c_char,
    identity_room: c_uint,
    psk: *mut c_uchar,
    psk_room: c_uint,
) -> c_uint {
    if (identity_room as usize) <= IDENTITY.len() {
        return 0;
    }
    // SAFETY: the check above proves that `identity` holds the identity and its final zero; `give_key` checks
    // `psk_room`.
    unsafe {
        ptr::copy_nonoverlapping(IDENTITY.as_ptr(), identity.cast(), IDENTITY.len());
        *identity.add(IDENTITY.len()) = 0;
        give_key(psk, psk_room)
    }
}

unsafe extern "C" fn psk_server(_: *mut Ssl, identity: *const c_char, psk: *mut c_uchar, room: c_uint) -> c_uint {
    // SAFETY: the identity ends in zero; `psk` is writable for `room` bytes.
    unsafe {
        if CStr::from_ptr(identity).to_bytes() != IDENTITY.as_bytes() {
            return 0;
        }
        give_key(psk, room)
    }
}

/// Copies the key into `psk`, which must be writable for `room` bytes.
unsafe fn give_key(psk: *mut c_uchar, room: c_uint) -> c_uint {
    if (room as usize) < KEY.len() {
        return 0;
    }
    // SAFETY: `psk` is writable for `room` bytes, and the check above proves that the key is not longer.
    unsafe { ptr::copy_nonoverlapping(KEY.as_ptr(), psk, KEY.len()) };
    KEY.len() as c_uint
}

unsafe extern "C" fn generate_cookie(_: *mut Ssl, cookie: *mut c_uchar, len: *mut c_uint) -> c_int {
    // SAFETY: the library gives a buffer of 255 bytes and a length to set.
    unsafe {
        ptr::copy_nonoverlapping(cookie_for_peer().as_ptr(), cookie, COOKIE_LEN);
        *len = COOKIE_LEN as c_uint;
    }
    1
}

unsafe extern "C" fn verify_cookie(_: *mut Ssl, cookie: *const c_uchar, len: c_uint) -> c_int {
    // SAFETY: the cookie is readable for `len` bytes.
    let given = unsafe { slice::from_raw_parts(cookie, len as usize) };
    c_int::from(given == cookie_for_peer())
}

/// Returns the cookie for the peer: a MAC of its address, shortened to 16 bytes as in other stacks.
fn cookie_for_peer() -> [u8; COOKIE_LEN] {
    let mut mac = [0; 32];
    let mut len = 0;
    // SAFETY: key and message are readable for the lengths given; SHA-256 writes 32 bytes.
    unsafe {
        HMAC(
            EVP_sha256(),
            COOKIE_SECRET.as_ptr().cast(),
            COOKIE_SECRET.len() as c_int,
            PEER_ADDRESS.as_ptr(),
            PEER_ADDRESS.len(),
            mac.as_mut_ptr(),
            &raw mut len,
        );
    }
    mac.first_chunk().copied().unwrap_or_default()
}

const COOKIE_LEN: usize = 16;
const COOKIE_SECRET: [u8; 16] = *b"a secret of ours";
const PEER_ADDRESS: [u8; 6] = [127, 0, 0, 1, 0x16, 0x34];
const MTU: c_long = 1400;

const DTLS1_2: c_long = 0xfefd;
const SSL_CTRL_SET_MTU: c_int = 17;
const SSL_CTRL_SET_SESS_CACHE_MODE: c_int = 44;
const SSL_CTRL_SET_MIN_PROTO_VERSION: c_int = 123;
const SSL_CTRL_SET_MAX_PROTO_VERSION: c_int = 124;
const SSL_OP_NO_QUERY_MTU: u64 = 1 << 12;
const SSL_OP_COOKIE_EXCHANGE: u64 = 1 << 13;
const SSL_SENT_SHUTDOWN: c_int = 1;
const SSL_RECEIVED_SHUTDOWN: c_int = 2;
const SSL_OP_NO_TICKET: u64 = 1 << 14;
const SSL_ERROR_WANT_READ: c_int = 2;
const BIO_TYPE_SOURCE_SINK: c_int = 0x0400;
const BIO_FLAGS_RETRY: c_int = 0x0f;
const BIO_FLAGS_SHOULD_RETRY_READ: c_int = 0x09;
const BIO_CTRL_FLUSH: c_int = 11;
const BIO_CTRL_DGRAM_SET_NEXT_TIMEOUT: c_int = 45;
const BIO_CTRL_DGRAM_GET_MTU_OVERHEAD: c_int = 49;

#[repr(C)]
struct SslCtx([u8; 0]);
#[repr(C)]
struct Ssl([u8; 0]);
#[repr(C)]
struct SslMethod([u8; 0]);
#[repr(C)]
struct SslSession([u8; 0]);
#[repr(C)]
struct Bio([u8; 0]);
#[repr(C)]
struct BioMethod([u8; 0]);
#[repr(C)]
struct EvpMd([u8; 0]);

type PskClient = unsafe extern "C" fn(*mut Ssl, *const c_char, *mut c_char, c_uint, *mut c_uchar, c_uint) -> c_uint;
type PskServer = unsafe extern "C" fn(*mut Ssl, *const c_char, *mut c_uchar, c_uint) -> c_uint;

unsafe extern "C" {
    fn OpenSSL_version(which: c_int) -> *const c_char;
    fn ERR_get_error() -> c_ulong;
    fn ERR_error_string_n(error: c_ulong, text: *mut c_char, room: usize);

    fn DTLS_client_method() -> *const SslMethod;
    fn DTLS_server_method() -> *const SslMethod;
    fn SSL_CTX_new(method: *const SslMethod) -> *mut SslCtx;
    fn SSL_CTX_free(context: *mut SslCtx);
    fn SSL_CTX_ctrl(context: *mut SslCtx, command: c_int, number: c_long, pointer: *mut c_void) -> c_long;
    fn SSL_CTX_set_options(context: *mut SslCtx, options: u64) -> u64;
    fn SSL_CTX_set_cipher_list(context: *mut SslCtx, list: *const c_char) -> c_int;
    fn SSL_CTX_set_psk_client_callback(context: *mut SslCtx, callback: PskClient);
    fn SSL_CTX_set_psk_server_callback(context: *mut SslCtx, callback: PskServer);
    fn SSL_CTX_set_cookie_generate_cb(
        context: *mut SslCtx,
        callback: unsafe extern "C" fn(*mut Ssl, *mut c_uchar, *mut c_uint) -> c_int,
    );
    fn SSL_CTX_set_cookie_verify_cb(
        context: *mut SslCtx,
        callback: unsafe extern "C" fn(*mut Ssl, *const c_uchar, c_uint) -> c_int,
    );

    fn SSL_new(context: *mut SslCtx) -> *mut Ssl;
    fn SSL_free(ssl: *mut Ssl);
    fn SSL_set_shutdown(ssl: *mut Ssl, mode: c_int);
    fn SSL_get1_session(ssl: *mut Ssl) -> *mut SslSession;
    fn SSL_set_session(ssl: *mut Ssl, session: *mut SslSession) -> c_int;
    fn SSL_SESSION_free(session: *mut SslSession);
    fn SSL_session_reused(ssl: *const Ssl) -> c_int;
    fn SSL_set_bio(ssl: *mut Ssl, read: *mut Bio, write: *mut Bio);
    fn SSL_ctrl(ssl: *mut Ssl, command: c_int, number: c_long, pointer: *mut c_void) -> c_long;
    fn SSL_set_connect_state(ssl: *mut Ssl);
    fn SSL_set_accept_state(ssl: *mut Ssl);
    fn SSL_do_handshake(ssl: *mut Ssl) -> c_int;
    fn SSL_is_init_finished(ssl: *const Ssl) -> c_int;
    fn SSL_write(ssl: *mut Ssl, buf: *const c_void, len: c_int) -> c_int;
    fn SSL_read(ssl: *mut Ssl, buf: *mut c_void, room: c_int) -> c_int;
    fn SSL_get_error(ssl: *const Ssl, result: c_int) -> c_int;

    fn BIO_get_new_index() -> c_int;
    fn BIO_meth_new(kind: c_int, name: *const c_char) -> *mut BioMethod;
    fn BIO_meth_free(method: *mut BioMethod);
    fn BIO_meth_set_read(
        method: *mut BioMethod,
        read: unsafe extern "C" fn(*mut Bio, *mut c_char, c_int) -> c_int,
    ) -> c_int;
    fn BIO_meth_set_write(
        method: *mut BioMethod,
        write: unsafe extern "C" fn(*mut Bio, *const c_char, c_int) -> c_int,
    ) -> c_int;
    fn BIO_meth_set_ctrl(
        method: *mut BioMethod,
        ctrl: unsafe extern "C" fn(*mut Bio, c_int, c_long, *mut c_void) -> c_long,
    ) -> c_int;
    fn BIO_new(method: *const BioMethod) -> *mut Bio;
    fn BIO_set_data(bio: *mut Bio, data: *mut c_void);
    fn BIO_get_data(bio: *mut Bio) -> *mut c_void;
    fn BIO_set_init(bio: *mut Bio, init: c_int);
    fn BIO_set_flags(bio: *mut Bio, flags: c_int);
    fn BIO_clear_flags(bio: *mut Bio, flags: c_int);

    fn EVP_sha256() -> *const EvpMd;
    fn HMAC(
        hash: *const EvpMd,
        key: *const c_void,
        key_len: c_int,
        message: *const c_uchar,
        message_len: usize,
        mac: *mut c_uchar,
        mac_len: *mut c_uint,
    ) -> *mut c_uchar;
}
