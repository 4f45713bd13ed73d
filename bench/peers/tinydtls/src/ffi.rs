//! The few functions of tinydtls that sessions over memory need.
#![expect(unsafe_code, reason = "tinydtls is a C library")]

mod public_keys;

use std::{
    ffi::{CStr, c_char, c_int, c_uchar, c_uint},
    mem, ptr, slice,
};
use tegmen_bench_line::{self as line, DATAGRAM_MAX, Failure, Outbox};
use tinydtls_sys::{
    dtls_check_retransmit, dtls_connect, dtls_context_t, dtls_credentials_type_t, dtls_free_context, dtls_get_peer,
    dtls_handle_message, dtls_handler_t, dtls_init, dtls_new_context, dtls_reset_peer, dtls_session_init,
    dtls_set_handler, dtls_state_t, dtls_write, session_t,
};

use public_keys::RawKeys;
pub(crate) use public_keys::SUITE as PUBLIC_KEY_SUITE;

/// The end of a session: its client or its server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Client,
    Server,
}

/// All sessions of one role. The port of the peer identifies a session.
pub(crate) struct Context {
    context: *mut dtls_context_t,
    handler: Box<dtls_handler_t>,
    keys: Option<Box<RawKeys>>,
}

/// The buffers that the callbacks use during one call.
struct Wire {
    outbound: *mut Outbox,
    payload: *mut u8,
    payload_room: usize,
    payload_len: usize,
    /// The raw public keys; null if pre-shared keys are used.
    keys: *const RawKeys,
}

impl Context {
    pub(crate) fn new() -> Result<Self, Failure> {
        let mut handler = Box::new(dtls_handler_t {
            write: Some(on_write),
            read: Some(on_read),
            event: None,
            get_user_parameters: None,
            get_psk_info: Some(on_psk_info),
            get_ecdsa_key: None,
            verify_ecdsa_key: None,
        });
        // SAFETY: initialising twice is allowed; the new context is checked before use and freed by `drop`; the handler
        // lives in a box beside it.
        let context = unsafe {
            dtls_init();
            dtls_set_log_level(LOG_EMERGENCIES);
            let context = dtls_new_context(ptr::null_mut());
            if context.is_null() {
                return Err(Failure::new("no context"));
            }
            dtls_set_handler(context, &raw mut *handler);
            context
        };
        Ok(Self { context, handler, keys: None })
    }

    pub(crate) fn connect(&self, port: u16, out: &mut Outbox) -> Result<(), Failure> {
        let (result, _) = self.call(Some(out), &mut [], |context| {
            // SAFETY: context and address are alive for the call.
            unsafe { dtls_connect(context, &address(port)) }
        });
        if result > 0 { Ok(()) } else { Err(Failure::new(format!("connect: {result}"))) }
    }

    /// Processes a datagram. Returns the length of the application data that it contained.
    pub(crate) fn handle(
        &self,
        port: u16,
        datagram: &[u8],
        out: Option<&mut Outbox>,
        payload: &mut [u8],
    ) -> Result<usize, Failure> {
        let mut message = [0; DATAGRAM_MAX]; // the library decrypts it in place
        let len = datagram.len();
        message.get_mut(..len).ok_or_else(|| Failure::new("too long"))?.copy_from_slice(datagram);
        let (result, opened) = self.call(out, payload, |context| {
            // SAFETY: context, address and message are alive for the call, and `len` is within the message.
            unsafe { dtls_handle_message(context, &mut address(port), message.as_mut_ptr(), len as c_int) }
        });
        if result == 0 { Ok(opened) } else { Err(Failure::new(format!("datagram refused: {result}"))) }
    }

    pub(crate) fn is_connected(&self, port: u16) -> bool {
        // SAFETY: the context is alive; a peer that is not null belongs to it.
        unsafe {
            let peer = dtls_get_peer(self.context, &address(port));
            !peer.is_null() && (*peer).state == dtls_state_t::DTLS_STATE_CONNECTED
        }
    }

    /// Returns true if the library has no session with this port. After an alert, this is the only sign that a session
    /// has ended.
    pub(crate) fn is_gone(&self, port: u16) -> bool {
        // SAFETY: the context is alive.
        unsafe { dtls_get_peer(self.context, &address(port)).is_null() }
    }

    pub(crate) fn write(&self, port: u16, payload: &[u8], out: &mut Outbox) -> Result<(), Failure> {
        let (result, _) = self.call(Some(out), &mut [], |context| {
            // SAFETY: the library reads `payload` for its length and does not write to it.
            unsafe { dtls_write(context, &mut address(port), payload.as_ptr().cast_mut(), payload.len()) }
        });
        if usize::try_from(result) == Ok(payload.len()) {
            Ok(())
        } else {
            Err(Failure::new(format!("write: {result}")))
        }
    }

    /// Retransmits the messages that are due, in all sessions.
    pub(crate) fn retransmit(&self, out: &mut Outbox) {
        self.call(Some(out), &mut [], |context| {
            // SAFETY: the context is alive; a null pointer means that the time of the next retransmission is not
            // wanted.
            unsafe { dtls_check_retransmit(context, ptr::null_mut()) };
            0
        });
    }

    /// Frees a session without a message to the peer. All measured stacks do the same.
    pub(crate) fn forget(&self, port: u16) {
        // SAFETY: the context is alive; a peer that is not null belongs to it and is not used after the reset. A closed
        // peer is freed without an alert.
        unsafe {
            let peer = dtls_get_peer(self.context, &address(port));
            if !peer.is_null() {
                (*peer).state = dtls_state_t::DTLS_STATE_CLOSED;
                dtls_reset_peer(self.context, peer);
            }
        }
    }

    /// Calls `step` while the callbacks can use the buffers. Returns the result of `step`, and the length of the
    /// application data that arrived.
    fn call(
        &self,
        out: Option<&mut Outbox>,
        payload: &mut [u8],
        step: impl FnOnce(*mut dtls_context_t) -> c_int,
    ) -> (c_int, usize) {
        let mut wire = Wire {
            outbound: out.map_or(ptr::null_mut(), ptr::from_mut),
            payload: payload.as_mut_ptr(),
            payload_room: payload.len(),
            payload_len: 0,
            keys: self.keys.as_deref().map_or(ptr::null(), ptr::from_ref),
        };
        // SAFETY: the context is alive and used by this thread alone; the wire outlives `step`.
        unsafe { (*self.context).app = (&raw mut wire).cast() };
        let result = step(self.context);
        // SAFETY: as above.
        unsafe { (*self.context).app = ptr::null_mut() };
        (result, wire.payload_len)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context came from dtls_new_context and is freed once; its sessions are gone, as each holds a
        // reference to it.
        unsafe { dtls_free_context(self.context) }
    }
}

/// Returns the version of tinydtls.
pub(crate) fn version() -> String {
    // SAFETY: the library returns a static string that ends in zero.
    let version = unsafe { CStr::from_ptr(dtls_package_version()) };
    format!("tinydtls {} (tinydtls-sys 0.2.0)", version.to_string_lossy())
}

/// Returns the address 127.0.0.1 with this port. The library finds sessions by their addresses.
fn address(port: u16) -> session_t {
    // SAFETY: a session is plain numbers, for which zeros are valid; `dtls_session_init` sets the size of the address,
    // which becomes an IPv4 address here.
    unsafe {
        let mut session: session_t = mem::zeroed();
        dtls_session_init(&raw mut session);
        session.size = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        *session.addr.sin.as_mut() = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: port.to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, 1]) },
            sin_zero: [0; 8],
        };
        session
    }
}

unsafe extern "C" fn on_write(context: *mut dtls_context_t, _: *mut session_t, buf: *mut u8, len: usize) -> c_int {
    // SAFETY: `app` is null or the `Wire` of the running call; `buf` is readable for `len` bytes.
    unsafe {
        let Some(wire) = (*context).app.cast::<Wire>().as_mut() else { return -1 };
        let Some(outbox) = wire.outbound.as_mut() else { return -1 };
        outbox.push(slice::from_raw_parts(buf, len));
    }
    len as c_int
}

unsafe extern "C" fn on_read(context: *mut dtls_context_t, _: *mut session_t, buf: *mut u8, len: usize) -> c_int {
    // SAFETY: as in `on_write`; the payload is writable for `payload_room` bytes.
    unsafe {
        let Some(wire) = (*context).app.cast::<Wire>().as_mut() else { return -1 };
        if len > wire.payload_room {
            return -1;
        }
        ptr::copy_nonoverlapping(buf, wire.payload, len);
        wire.payload_len = len;
    }
    0
}

unsafe extern "C" fn on_psk_info(
    _: *mut dtls_context_t,
    _: *const session_t,
    kind: dtls_credentials_type_t,
    about: *const c_uchar,
    about_len: usize,
    result: *mut c_uchar,
    room: usize,
) -> c_int {
    let given = match kind {
        dtls_credentials_type_t::DTLS_PSK_IDENTITY => line::identity().as_bytes(),
        dtls_credentials_type_t::DTLS_PSK_KEY => {
            // SAFETY: the identity that was sent, or null for none, is readable for its length.
            let identity = if about.is_null() { &[][..] } else { unsafe { slice::from_raw_parts(about, about_len) } };
            if identity != line::identity().as_bytes() {
                return ALERT_UNKNOWN_IDENTITY;
            }
            line::key()
        }
        _ => &[],
    };
    if given.len() > room {
        return ALERT_INTERNAL_ERROR;
    }
    // SAFETY: `result` is writable for `room` bytes.
    unsafe { ptr::copy_nonoverlapping(given.as_ptr(), result, given.len()) };
    given.len() as c_int
}

const LOG_EMERGENCIES: c_uint = 0;
/// Values that a callback returns to send a fatal alert. Each is a negative number, made from the alert level and the
/// alert description.
const ALERT_UNKNOWN_IDENTITY: c_int = -(2 << 8 | 115);
const ALERT_INTERNAL_ERROR: c_int = -(2 << 8 | 80);

unsafe extern "C" {
    fn dtls_package_version() -> *const c_char;
    fn dtls_set_log_level(level: c_uint);
}
