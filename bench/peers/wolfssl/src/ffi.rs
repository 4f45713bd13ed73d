//! The few functions of wolfSSL that one DTLS connection over memory needs.
#![expect(unsafe_code, reason = "wolfSSL is a C library")]

mod public_keys;

use std::{
    ffi::{CStr, CString, c_char, c_int, c_long, c_uchar, c_uint, c_ushort, c_void},
    ptr, slice,
};
use tegmen_bench_line::{self as line, Failure, Outbox, Resumption};

pub(crate) use public_keys::suites;

/// The end of a session for which a context is made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Client,
    Server,
}

/// The settings of one end, which all its connections share.
pub(crate) struct Context {
    context: *mut WolfSslCtx,
    role: Role,
    tells_what_was_agreed: bool,
    /// The name of the server that connections request; `None` if they request no name.
    server_name: Option<CString>,
}

/// One end of a session.
pub(crate) struct Connection {
    ssl: *mut WolfSsl,
    /// The memory that the callbacks use. It was allocated by a `Box`. It is a raw pointer, because the callbacks also
    /// write through it, and a `Box` must be the only owner of its memory.
    wire: *mut Wire,
    role: Role,
    tells_what_was_agreed: bool,
    finished: bool,
}

/// The buffers that the callbacks use during one call. They are empty between two calls.
struct Wire {
    inbound: *const u8,
    inbound_len: usize,
    outbound: *mut Outbox,
}

impl Wire {
    const EMPTY: Self = Self { inbound: ptr::null(), inbound_len: 0, outbound: ptr::null_mut() };
}

impl Context {
    /// Creates the settings of one end. `resumption` is the method with which its sessions can be resumed; `None`
    /// allows no resumption.
    pub(crate) fn new(role: Role, resumption: Option<Resumption>) -> Result<Self, Failure> {
        // SAFETY: initialising twice is allowed; the method is handed over to the context, which is checked before use
        // and freed by `drop`; every callback is a plain function that lives as long as the program.
        unsafe {
            wolfSSL_Init();
            let context = wolfSSL_CTX_new(match role {
                Role::Client => wolfDTLSv1_2_client_method(),
                Role::Server => wolfDTLSv1_2_server_method(),
            });
            if context.is_null() {
                return Err(Failure::new("no context"));
            }
            let this = Self { context, role, tells_what_was_agreed: false, server_name: None };
            match role {
                Role::Client => wolfSSL_CTX_set_psk_client_callback(context, psk_client),
                Role::Server => wolfSSL_CTX_set_psk_server_callback(context, psk_server),
            }
            wolfSSL_CTX_SetIORecv(context, receive);
            wolfSSL_CTX_SetIOSend(context, send);
            // A cache that is turned off stays off, so only a context without resumption turns it off. By default,
            // clients ask for no tickets.
            if resumption.is_none() {
                wolfSSL_CTX_set_session_cache_mode(context, SESS_CACHE_OFF);
            }
            let taken = match (resumption, role) {
                (Some(Resumption::Ticket), Role::Client) => wolfSSL_CTX_UseSessionTicket(context),
                (Some(Resumption::Id), Role::Server) => wolfSSL_CTX_NoTicketTLSv12(context),
                _ => SUCCESS,
            };
            if taken != SUCCESS {
                return Err(Failure::new(format!("no resumption: {taken}")));
            }
            if wolfSSL_CTX_set_cipher_list(context, c"PSK-AES128-CCM-8".as_ptr()) != SUCCESS {
                return Err(Failure::new("no PSK-AES128-CCM-8"));
            }
            Ok(this)
        }
    }

    /// Lets all connections from now on request a server with this name, and require the name in the server's
    /// certificate.
    pub(crate) fn use_server_name(&mut self, name: &str) -> Result<(), Failure> {
        let (bytes, len) = (name.as_ptr().cast(), name.len() as c_ushort);
        // SAFETY: the context is alive in `self`; the name is readable for its length, and is copied before the call returns.
        let set = unsafe { wolfSSL_CTX_UseSNI(self.context, HOST_NAME, bytes, len) };
        if set != SUCCESS {
            return Err(Failure::new(format!("the name is not taken: {set}")));
        }
        self.server_name = Some(CString::new(name).map_err(|error| Failure::new(error.to_string()))?);
        Ok(())
    }

    /// Creates a connection. With `connection_id` the connection requests a connection id of this number of bytes. All
    /// ids are equal, because there is only one session at a time.
    pub(crate) fn connection(&self, connection_id: Option<usize>) -> Result<Connection, Failure> {
        // SAFETY: the context is alive in `self`; the callbacks' argument points to what `Connection` keeps for as long as
        // `ssl`.
        unsafe {
            let ssl = wolfSSL_new(self.context);
            if ssl.is_null() {
                return Err(Failure::new("no connection"));
            }
            let wire = Box::into_raw(Box::new(Wire::EMPTY));
            wolfSSL_SetIOReadCtx(ssl, wire.cast());
            wolfSSL_SetIOWriteCtx(ssl, wire.cast());
            wolfSSL_dtls_set_using_nonblock(ssl, 1);
            if let Some(len) = connection_id {
                let mut id = vec![0x5a; len];
                let given = wolfSSL_dtls_cid_use(ssl) == SUCCESS
                    && wolfSSL_dtls_cid_set(ssl, id.as_mut_ptr(), len as c_uint) == SUCCESS;
                if !given {
                    wolfSSL_free(ssl);
                    drop(Box::from_raw(wire));
                    return Err(Failure::new("no connection id"));
                }
            }
            if let Some(name) = &self.server_name
                && wolfSSL_check_domain_name(ssl, name.as_ptr()) != SUCCESS
            {
                wolfSSL_free(ssl);
                drop(Box::from_raw(wire));
                return Err(Failure::new("no name of a server"));
            }
            let tells_what_was_agreed = self.tells_what_was_agreed;
            Ok(Connection { ssl, wire, role: self.role, tells_what_was_agreed, finished: false })
        }
    }
}

impl Connection {
    pub(crate) fn advance(&mut self, datagram: Option<&[u8]>, out: &mut Outbox) -> Result<(), Failure> {
        let role = self.role;
        let result = self.call(datagram, Some(out), |ssl| {
            // SAFETY: `ssl` is alive; the wire it reads and writes is set for the time of this call.
            unsafe {
                match role {
                    Role::Client => wolfSSL_connect(ssl),
                    Role::Server => wolfSSL_accept(ssl),
                }
            }
        });
        self.finished = result == SUCCESS;
        if self.finished { Ok(()) } else { self.expect_want_read("handshake", result) }
    }

    pub(crate) fn time_out(&mut self, out: &mut Outbox) -> Result<(), Failure> {
        let result = self.call(None, Some(out), |ssl| {
            // SAFETY: `ssl` is alive; the wire it writes is set for the time of this call.
            unsafe { wolfSSL_dtls_got_timeout(ssl) }
        });
        if result == SUCCESS { Ok(()) } else { self.expect_want_read("timeout", result) }
    }

    /// Offers to resume the session of `other`. This function must be called before the handshake.
    pub(crate) fn go_on_from(&self, other: &Self) -> Result<(), Failure> {
        // SAFETY: both connections are alive; the session is checked before use, taken by the call with a reference of its
        // own, and ours is given back.
        unsafe {
            let session = wolfSSL_get1_session(other.ssl);
            if session.is_null() {
                return Err(Failure::new("there is no session to resume"));
            }
            let set = wolfSSL_set_session(self.ssl, session);
            wolfSSL_SESSION_free(session);
            if set == SUCCESS { Ok(()) } else { Err(Failure::new(format!("the session is not taken: {set}"))) }
        }
    }

    pub(crate) fn was_resumed(&self) -> bool {
        // SAFETY: `ssl` is alive.
        unsafe { wolfSSL_session_reused(self.ssl) == 1 }
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }

    pub(crate) fn tells_what_was_agreed(&self) -> bool {
        self.tells_what_was_agreed
    }

    pub(crate) fn write(&mut self, payload: &[u8], out: &mut Outbox) -> Result<(), Failure> {
        let len = c_int::try_from(payload.len()).map_err(|e| Failure::new(e.to_string()))?;
        let written = self.call(None, Some(out), |ssl| {
            // SAFETY: `payload` is readable for `len` bytes; the wire is set for the time of this call.
            unsafe { wolfSSL_write(ssl, payload.as_ptr().cast(), len) }
        });
        if written == len { Ok(()) } else { Err(self.failure("write", written)) }
    }

    pub(crate) fn read(&mut self, datagram: &[u8], payload: &mut [u8]) -> Result<usize, Failure> {
        let room = c_int::try_from(payload.len()).map_err(|e| Failure::new(e.to_string()))?;
        let read = self.call(Some(datagram), None, |ssl| {
            // SAFETY: `payload` is writable for `room` bytes; the wire is set for the time of this call.
            unsafe { wolfSSL_read(ssl, payload.as_mut_ptr().cast(), room) }
        });
        usize::try_from(read).ok().filter(|&len| len > 0).ok_or_else(|| self.failure("read", read))
    }

    /// Calls `step` while the callbacks can use `inbound` and `outbound`.
    fn call(
        &mut self,
        inbound: Option<&[u8]>,
        outbound: Option<&mut Outbox>,
        step: impl FnOnce(*mut WolfSsl) -> c_int,
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

    fn expect_want_read(&self, doing: &str, result: c_int) -> Result<(), Failure> {
        // SAFETY: `ssl` is alive.
        let error = unsafe { wolfSSL_get_error(self.ssl, result) };
        if error == ERROR_WANT_READ { Ok(()) } else { Err(Failure::new(format!("{doing}: error {error}"))) }
    }

    fn failure(&self, doing: &str, result: c_int) -> Failure {
        self.expect_want_read(doing, result).err().unwrap_or_else(|| Failure::new(format!("{doing}: wants more")))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // SAFETY: `ssl` came from wolfSSL_new and is freed once; then nobody knows the wire, which came from a box.
        unsafe {
            wolfSSL_free(self.ssl);
            drop(Box::from_raw(self.wire));
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context came from its constructor and is freed once; connections hold a reference of their own.
        unsafe { wolfSSL_CTX_free(self.context) }
    }
}

/// Returns the version of wolfSSL.
pub(crate) fn version() -> String {
    // SAFETY: the library returns a static string that ends in zero.
    let version = unsafe { CStr::from_ptr(wolfSSL_lib_version()) };
    format!("wolfSSL {}", version.to_string_lossy())
}

unsafe extern "C" fn receive(_: *mut WolfSsl, buf: *mut c_char, room: c_int, context: *mut c_void) -> c_int {
    // SAFETY: `context` is the `Wire` of a live connection; `buf` is writable for `room` bytes.
    unsafe {
        let wire = context.cast::<Wire>();
        if (*wire).inbound.is_null() {
            return WANT_READ;
        }
        let len = (*wire).inbound_len.min(usize::try_from(room).unwrap_or(0));
        ptr::copy_nonoverlapping((*wire).inbound, buf.cast(), len);
        (*wire).inbound = ptr::null();
        len as c_int
    }
}

unsafe extern "C" fn send(_: *mut WolfSsl, buf: *mut c_char, len: c_int, context: *mut c_void) -> c_int {
    // SAFETY: as in `receive`; `outbound` is null or an outbox lent for the running call.
    unsafe {
        let Some(outbox) = (*context.cast::<Wire>()).outbound.as_mut() else { return GENERAL_ERROR };
        outbox.push(slice::from_raw_parts(buf.cast(), usize::try_from(len).unwrap_or(0)));
    }
    len
}

unsafe extern "C" fn psk_client(
    _: *mut WolfSsl,
    _hint: *const c_char,
    identity: *mut c_char,
    identity_room: c_uint,
    psk: *mut c_uchar,
    psk_room: c_uint,
) -> c_uint {
    let name = line::identity();
    if (identity_room as usize) <= name.len() {
        return 0;
    }
    // SAFETY: the check above proves that `identity` holds the identity and its final zero; `give_key` checks
    // `psk_room`.
    unsafe {
        ptr::copy_nonoverlapping(name.as_ptr(), identity.cast(), name.len());
        *identity.add(name.len()) = 0;
        give_key(psk, psk_room)
    }
}

unsafe extern "C" fn psk_server(_: *mut WolfSsl, identity: *const c_char, psk: *mut c_uchar, room: c_uint) -> c_uint {
    // SAFETY: the identity ends in zero; `psk` is writable for `room` bytes.
    unsafe {
        if CStr::from_ptr(identity).to_bytes() != line::identity().as_bytes() {
            return 0;
        }
        give_key(psk, room)
    }
}

/// Copies the key into `psk`, which must be writable for `room` bytes. Returns the length of the key, or 0 if it does
/// not fit.
unsafe fn give_key(psk: *mut c_uchar, room: c_uint) -> c_uint {
    let key = line::key();
    if (room as usize) < key.len() {
        return 0;
    }
    // SAFETY: `psk` is writable for `room` bytes, and the check above proves that the key is not longer.
    unsafe { ptr::copy_nonoverlapping(key.as_ptr(), psk, key.len()) };
    key.len() as c_uint
}

const SUCCESS: c_int = 1;
const ERROR_WANT_READ: c_int = 2;
const GENERAL_ERROR: c_int = -1;
const WANT_READ: c_int = -2;
const SESS_CACHE_OFF: c_long = 0;
/// The type host_name of a server name (RFC 6066, section 3).
const HOST_NAME: c_uchar = 0;

#[repr(C)]
struct WolfSslMethod([u8; 0]);
#[repr(C)]
struct WolfSslCtx([u8; 0]);
#[repr(C)]
struct WolfSsl([u8; 0]);
#[repr(C)]
struct WolfSslSession([u8; 0]);

type PskClient = unsafe extern "C" fn(*mut WolfSsl, *const c_char, *mut c_char, c_uint, *mut c_uchar, c_uint) -> c_uint;
type PskServer = unsafe extern "C" fn(*mut WolfSsl, *const c_char, *mut c_uchar, c_uint) -> c_uint;
type Io = unsafe extern "C" fn(*mut WolfSsl, *mut c_char, c_int, *mut c_void) -> c_int;

unsafe extern "C" {
    fn wolfSSL_lib_version() -> *const c_char;
    fn wolfSSL_Init() -> c_int;

    fn wolfDTLSv1_2_client_method() -> *mut WolfSslMethod;
    fn wolfDTLSv1_2_server_method() -> *mut WolfSslMethod;
    fn wolfSSL_CTX_new(method: *mut WolfSslMethod) -> *mut WolfSslCtx;
    fn wolfSSL_CTX_free(context: *mut WolfSslCtx);
    fn wolfSSL_CTX_set_cipher_list(context: *mut WolfSslCtx, list: *const c_char) -> c_int;
    fn wolfSSL_CTX_set_session_cache_mode(context: *mut WolfSslCtx, mode: c_long) -> c_long;
    fn wolfSSL_CTX_UseSessionTicket(context: *mut WolfSslCtx) -> c_int;
    fn wolfSSL_CTX_NoTicketTLSv12(context: *mut WolfSslCtx) -> c_int;
    fn wolfSSL_CTX_UseSNI(context: *mut WolfSslCtx, kind: c_uchar, name: *const c_void, len: c_ushort) -> c_int;
    fn wolfSSL_CTX_set_psk_client_callback(context: *mut WolfSslCtx, callback: PskClient);
    fn wolfSSL_CTX_set_psk_server_callback(context: *mut WolfSslCtx, callback: PskServer);
    fn wolfSSL_CTX_SetIORecv(context: *mut WolfSslCtx, callback: Io);
    fn wolfSSL_CTX_SetIOSend(context: *mut WolfSslCtx, callback: Io);

    fn wolfSSL_new(context: *mut WolfSslCtx) -> *mut WolfSsl;
    fn wolfSSL_free(ssl: *mut WolfSsl);
    fn wolfSSL_SetIOReadCtx(ssl: *mut WolfSsl, context: *mut c_void);
    fn wolfSSL_SetIOWriteCtx(ssl: *mut WolfSsl, context: *mut c_void);
    fn wolfSSL_check_domain_name(ssl: *mut WolfSsl, name: *const c_char) -> c_int;
    fn wolfSSL_dtls_set_using_nonblock(ssl: *mut WolfSsl, nonblock: c_int);
    fn wolfSSL_get1_session(ssl: *mut WolfSsl) -> *mut WolfSslSession;
    fn wolfSSL_set_session(ssl: *mut WolfSsl, session: *mut WolfSslSession) -> c_int;
    fn wolfSSL_session_reused(ssl: *mut WolfSsl) -> c_int;
    fn wolfSSL_SESSION_free(session: *mut WolfSslSession);
    fn wolfSSL_dtls_cid_use(ssl: *mut WolfSsl) -> c_int;
    fn wolfSSL_dtls_cid_set(ssl: *mut WolfSsl, cid: *mut c_uchar, size: c_uint) -> c_int;
    fn wolfSSL_dtls_got_timeout(ssl: *mut WolfSsl) -> c_int;
    fn wolfSSL_connect(ssl: *mut WolfSsl) -> c_int;
    fn wolfSSL_accept(ssl: *mut WolfSsl) -> c_int;
    fn wolfSSL_write(ssl: *mut WolfSsl, buf: *const c_void, len: c_int) -> c_int;
    fn wolfSSL_read(ssl: *mut WolfSsl, buf: *mut c_void, room: c_int) -> c_int;
    fn wolfSSL_get_error(ssl: *mut WolfSsl, result: c_int) -> c_int;
}
