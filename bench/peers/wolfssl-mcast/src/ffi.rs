//! The few functions of wolfSSL that a member of a multicast group over memory needs.
#![expect(unsafe_code, reason = "wolfSSL is a C library")]

use std::{
    ffi::{CStr, c_char, c_int, c_uint, c_ushort, c_void},
    ops::RangeInclusive,
    ptr, slice,
};
use tegmen_bench_line::{Failure, Outbox};

/// A member of the group.
pub(crate) struct Member {
    context: *mut WolfSslCtx,
    ssl: *mut WolfSsl,
    /// The memory that the callbacks use. It was allocated by a `Box`. It is a raw pointer, because the callbacks also
    /// access it, and a `Box` must be the only owner of its memory.
    wire: *mut Wire,
}

/// The datagrams that the callbacks read and write during one call. They are empty between two calls.
struct Wire {
    inbound: *const u8,
    inbound_len: usize,
    outbound: *mut Outbox,
}

impl Wire {
    const EMPTY: Self = Self { inbound: ptr::null(), inbound_len: 0, outbound: ptr::null_mut() };
}

impl Member {
    /// Creates the member with the number `id`. It accepts records of the members with the numbers in `peers`. All
    /// members have the same secret.
    pub(crate) fn new(id: u8, suite: u16, peers: RangeInclusive<u8>) -> Result<Self, Failure> {
        // SAFETY: initialising twice is allowed; the method is handed over to the context. Context and connection are checked
        // before they are used, and `drop` frees them and the wire. Every callback is a function that lives as long as the program.
        unsafe {
            wolfSSL_Init();
            let context = wolfSSL_CTX_new(wolfDTLSv1_2_client_method());
            if context.is_null() {
                return Err(Failure::new("no context"));
            }
            let mut member = Self { context, ssl: ptr::null_mut(), wire: Box::into_raw(Box::new(Wire::EMPTY)) };
            expect("the member's number", wolfSSL_CTX_mcast_set_member_id(context, id.into()))?;
            wolfSSL_CTX_SetIORecv(context, receive);
            wolfSSL_CTX_SetIOSend(context, send);
            member.ssl = wolfSSL_new(context);
            if member.ssl.is_null() {
                return Err(Failure::new("no connection"));
            }
            wolfSSL_SetIOReadCtx(member.ssl, member.wire.cast());
            wolfSSL_SetIOWriteCtx(member.ssl, member.wire.cast());
            wolfSSL_dtls_set_using_nonblock(member.ssl, 1);
            for peer in peers {
                expect("a peer", wolfSSL_mcast_peer_add(member.ssl, peer.into(), 0))?;
            }
            let (secret, random, suite) = ([7_u8; 48], [8_u8; 32], suite.to_be_bytes());
            let (secret, len, random, suite) = (secret.as_ptr(), 48, random.as_ptr(), suite.as_ptr());
            let set = wolfSSL_set_secret(member.ssl, 1, secret, len, random, random, suite);
            if set == SUCCESS { Ok(member) } else { Err(member.failure("the secret and the suite", set)) }
        }
    }

    /// Seals one record to the group.
    pub(crate) fn seal(&mut self, content: &[u8], out: &mut Outbox) -> Result<(), Failure> {
        let len = c_int::try_from(content.len()).map_err(|error| Failure::new(error.to_string()))?;
        let wire = Wire { outbound: out, ..Wire::EMPTY };
        // SAFETY: `content` is readable for `len` bytes; the wire is set for the time of this call.
        let written = self.call(wire, |ssl| unsafe { wolfSSL_write(ssl, content.as_ptr().cast(), len) });
        if written == len { Ok(()) } else { Err(self.failure("write", written)) }
    }

    /// Opens a record. Returns the number of the member that sent it, and the length of its content.
    pub(crate) fn open(&mut self, datagram: &[u8], content: &mut [u8]) -> Result<(u16, usize), Failure> {
        let room = c_int::try_from(content.len()).map_err(|error| Failure::new(error.to_string()))?;
        let mut from = 0;
        let wire = Wire { inbound: datagram.as_ptr(), inbound_len: datagram.len(), ..Wire::EMPTY };
        let read = self.call(wire, |ssl| {
            // SAFETY: `content` is writable for `room` bytes, and `from` outlives the call; the wire is set for the time of it.
            unsafe { wolfSSL_mcast_read(ssl, &raw mut from, content.as_mut_ptr().cast(), room) }
        });
        let len = usize::try_from(read).ok().filter(|&len| len > 0).ok_or_else(|| self.failure("read", read))?;
        Ok((from, len))
    }

    /// Calls `step` while the callbacks can use `wire`.
    fn call(&mut self, wire: Wire, step: impl FnOnce(*mut WolfSsl) -> c_int) -> c_int {
        // SAFETY: `wire` is alive, and no reference to it exists.
        unsafe { self.wire.write(wire) };
        let result = step(self.ssl);
        // SAFETY: as before.
        unsafe { self.wire.write(Wire::EMPTY) };
        result
    }

    fn failure(&self, doing: &str, result: c_int) -> Failure {
        // SAFETY: `ssl` is alive.
        let error = unsafe { wolfSSL_get_error(self.ssl, result) };
        Failure::new(format!("{doing}: error {error}"))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // SAFETY: all came from their constructors, `ssl` unless it is null, and are freed once; then nobody knows the wire, which
        // came from a box.
        unsafe {
            if !self.ssl.is_null() {
                wolfSSL_free(self.ssl);
            }
            wolfSSL_CTX_free(self.context);
            drop(Box::from_raw(self.wire));
        }
    }
}

/// Returns the version of wolfSSL.
pub(crate) fn version() -> String {
    // SAFETY: the library returns a static string that ends in zero.
    let version = unsafe { CStr::from_ptr(wolfSSL_lib_version()) };
    format!("wolfSSL {}", version.to_string_lossy())
}

fn expect(what: &str, result: c_int) -> Result<(), Failure> {
    if result == SUCCESS { Ok(()) } else { Err(Failure::new(format!("{what}: error {result}"))) }
}

unsafe extern "C" fn receive(_: *mut WolfSsl, buf: *mut c_char, room: c_int, context: *mut c_void) -> c_int {
    // SAFETY: `context` is the `Wire` of a live member; `buf` is writable for `room` bytes.
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

const SUCCESS: c_int = 1;
const GENERAL_ERROR: c_int = -1;
const WANT_READ: c_int = -2;

#[repr(C)]
struct WolfSslMethod([u8; 0]);
#[repr(C)]
struct WolfSslCtx([u8; 0]);
#[repr(C)]
struct WolfSsl([u8; 0]);

type Io = unsafe extern "C" fn(*mut WolfSsl, *mut c_char, c_int, *mut c_void) -> c_int;

unsafe extern "C" {
    fn wolfSSL_lib_version() -> *const c_char;
    fn wolfSSL_Init() -> c_int;

    fn wolfDTLSv1_2_client_method() -> *mut WolfSslMethod;
    fn wolfSSL_CTX_new(method: *mut WolfSslMethod) -> *mut WolfSslCtx;
    fn wolfSSL_CTX_free(context: *mut WolfSslCtx);
    fn wolfSSL_CTX_mcast_set_member_id(context: *mut WolfSslCtx, id: c_ushort) -> c_int;
    fn wolfSSL_CTX_SetIORecv(context: *mut WolfSslCtx, callback: Io);
    fn wolfSSL_CTX_SetIOSend(context: *mut WolfSslCtx, callback: Io);

    fn wolfSSL_new(context: *mut WolfSslCtx) -> *mut WolfSsl;
    fn wolfSSL_free(ssl: *mut WolfSsl);
    fn wolfSSL_SetIOReadCtx(ssl: *mut WolfSsl, context: *mut c_void);
    fn wolfSSL_SetIOWriteCtx(ssl: *mut WolfSsl, context: *mut c_void);
    fn wolfSSL_dtls_set_using_nonblock(ssl: *mut WolfSsl, nonblock: c_int);
    fn wolfSSL_mcast_peer_add(ssl: *mut WolfSsl, peer: c_ushort, removes: c_int) -> c_int;
    fn wolfSSL_set_secret(
        ssl: *mut WolfSsl,
        epoch: c_ushort,
        secret: *const u8,
        secret_len: c_uint,
        client_random: *const u8,
        server_random: *const u8,
        suite: *const u8,
    ) -> c_int;
    fn wolfSSL_write(ssl: *mut WolfSsl, buf: *const c_void, len: c_int) -> c_int;
    fn wolfSSL_mcast_read(ssl: *mut WolfSsl, id: *mut c_ushort, buf: *mut c_void, room: c_int) -> c_int;
    fn wolfSSL_get_error(ssl: *mut WolfSsl, result: c_int) -> c_int;
}
