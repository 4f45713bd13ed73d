//! Many CoAP clients on one socket (Linux). Each client has its own address, from 127.1.0.0 upwards. All clients have
//! the same port.
//!
//! For a server each client is a separate peer. This process reads and writes the datagrams of all clients together, in
//! batches. So ten thousand clients need little CPU time of the benchmark.
#![expect(unsafe_code, reason = "the standard library neither batches datagrams nor chooses their source address")]

use std::{
    io, mem,
    net::{Ipv4Addr, SocketAddrV4, UdpSocket},
    os::fd::AsRawFd,
    ptr,
    time::Duration,
};
use tegmen::buf::Frame;
use tegmen::coap::{BuildError, Builder, Code, MessageType};
use tegmen_bench_line::Failure;

/// The socket of all clients, and the address of their server. A client is also called a member.
pub(crate) struct Crowd {
    socket: UdpSocket,
    server: libc::sockaddr_in,
}

/// A list of datagrams that one system call receives or sends. Each datagram has the number of its member.
pub(crate) struct Letters {
    bytes: Vec<[u8; ROOM]>,
    lens: [usize; LETTERS_MAX],
    members: [u32; LETTERS_MAX],
    count: usize,
}

/// The control message of a datagram. It contains the local address: the destination of a received datagram, or the
/// source of a sent datagram.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_LEN]);

/// Maximum number of datagrams in one system call.
pub(crate) const LETTERS_MAX: usize = 64;
/// Size of the buffer for one datagram, in bytes. It is enough for a block of 1,024 bytes with header and options.
const ROOM: usize = 1280;
// SAFETY: it only computes a length.
const CONTROL_LEN: usize = unsafe { libc::CMSG_SPACE(size_of::<libc::in_pktinfo>() as libc::c_uint) } as usize;
/// The address of the member with the number 0.
const FIRST: u32 = u32::from_be_bytes([127, 1, 0, 0]);
/// Size of the socket's receive buffer, in bytes. It is enough for a notification to every member.
const RECEIVE_BUFFER: libc::c_int = 16 << 20;

impl Crowd {
    /// Opens the socket for the clients of `server`, which must have a loopback address. `patience` is the maximum time
    /// for which [`receive`](Self::receive) waits.
    pub(crate) fn new(server: SocketAddrV4, patience: Duration) -> Result<Self, Failure> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).map_err(failure)?;
        socket.set_read_timeout(Some(patience)).map_err(failure)?;
        set(&socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1).map_err(failure)?;
        // Past the limit of the system where that is allowed.
        if set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER).is_err() {
            set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BUFFER).map_err(failure)?;
        }
        let server = libc::sockaddr_in {
            sin_family: libc::AF_INET as libc::sa_family_t,
            sin_port: server.port().to_be(),
            sin_addr: libc::in_addr { s_addr: u32::from(*server.ip()).to_be() },
            sin_zero: [0; 8],
        };
        Ok(Self { socket, server })
    }

    /// Replaces the content of `letters` with datagrams that have arrived. Waits for the first datagram, but not longer
    /// than the socket's timeout. Then takes all other datagrams that have already arrived.
    pub(crate) fn receive(&self, letters: &mut Letters) -> Result<(), Failure> {
        letters.lens = [ROOM; LETTERS_MAX];
        letters.count = 0;
        let mut controls = [Control([0; CONTROL_LEN]); LETTERS_MAX];
        let received = self.call(letters, &mut controls, LETTERS_MAX, |socket, headers, count| {
            // SAFETY: `headers` holds `count` headers whose buffers outlive the call.
            unsafe { libc::recvmmsg(socket, headers, count, libc::MSG_WAITFORONE as _, ptr::null_mut()) }
        });
        match received {
            Ok(count) => letters.count = count,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(e) => return Err(failure(e)),
        }
        for (member, control) in letters.members.iter_mut().zip(&controls).take(letters.count) {
            *member = control.address().wrapping_sub(FIRST);
        }
        Ok(())
    }

    /// Sends the datagrams in `letters`, each from the address of its member. Then removes them from `letters`.
    pub(crate) fn send(&self, letters: &mut Letters) -> Result<(), Failure> {
        let mut controls = [Control([0; CONTROL_LEN]); LETTERS_MAX];
        for (control, member) in controls.iter_mut().zip(&letters.members[..letters.count]) {
            *control = Control::from(FIRST + member);
        }
        let count = mem::take(&mut letters.count);
        let sent = self.call(letters, &mut controls, count, |socket, headers, count| {
            // SAFETY: `headers` holds `count` headers whose buffers outlive the call.
            unsafe { libc::sendmmsg(socket, headers, count, 0) }
        });
        if sent.map_err(failure)? == count { Ok(()) } else { Err(Failure::new("not every datagram was sent")) }
    }

    /// Adds a datagram of `member` to `letters`. Sends all datagrams if `letters` is then full.
    pub(crate) fn push(
        &self,
        letters: &mut Letters,
        member: u32,
        write: impl FnOnce(&mut [u8]) -> Result<usize, BuildError>,
    ) -> Result<(), Failure> {
        let index = letters.count;
        let len = write(&mut letters.bytes[index]).map_err(|e| Failure::new(format!("a request: {e:?}")))?;
        (letters.lens[index], letters.members[index]) = (len, member);
        letters.count += 1;
        if letters.count == LETTERS_MAX { self.send(letters) } else { Ok(()) }
    }

    /// Builds the message headers of `count` datagrams, and passes them to the system call in `step`. Then stores the
    /// length of each datagram that the system call has processed. Returns the number of these datagrams.
    fn call(
        &self,
        letters: &mut Letters,
        controls: &mut [Control; LETTERS_MAX],
        count: usize,
        step: impl FnOnce(libc::c_int, *mut libc::mmsghdr, libc::c_uint) -> libc::c_int,
    ) -> io::Result<usize> {
        let mut server = self.server;
        // SAFETY: headers and vectors are numbers and pointers, for which zeros are valid.
        let (mut headers, mut vectors): ([libc::mmsghdr; LETTERS_MAX], [libc::iovec; LETTERS_MAX]) =
            unsafe { (mem::zeroed(), mem::zeroed()) };
        let mut addresses = [server; LETTERS_MAX];
        for (i, vector) in vectors.iter_mut().enumerate().take(count) {
            *vector = libc::iovec { iov_base: letters.bytes[i].as_mut_ptr().cast(), iov_len: letters.lens[i] };
            let header = &mut headers[i].msg_hdr;
            header.msg_iov = vector;
            header.msg_iovlen = 1;
            header.msg_name = (&raw mut addresses[i]).cast();
            header.msg_namelen = size_of_val(&server) as libc::socklen_t;
            header.msg_control = (&raw mut controls[i]).cast();
            // A number of 64 bits in glibc, and of 32 bits in musl.
            header.msg_controllen = CONTROL_LEN as _;
        }
        if count > 0 {
            let done = step(self.socket.as_raw_fd(), headers.as_mut_ptr(), count as libc::c_uint);
            let done = usize::try_from(done).map_err(|_| io::Error::last_os_error())?;
            for (i, header) in headers.iter().enumerate().take(done) {
                letters.lens[i] = header.msg_len as usize;
                server = addresses[i];
                if (server.sin_addr.s_addr, server.sin_port) != (self.server.sin_addr.s_addr, self.server.sin_port) {
                    letters.lens[i] = 0; // not from the server: an empty datagram is not a message
                }
            }
            return Ok(done);
        }
        Ok(0)
    }
}

impl Letters {
    /// Creates an empty list.
    pub(crate) fn new() -> Self {
        Self { bytes: vec![[0; ROOM]; LETTERS_MAX], lens: [0; LETTERS_MAX], members: [0; LETTERS_MAX], count: 0 }
    }

    /// Returns true if the list contains no datagrams.
    pub(crate) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the datagrams, each with the number of its member.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let bytes = self.bytes.iter().zip(self.lens).map(|(bytes, len)| &bytes[..len]);
        self.members.iter().copied().zip(bytes).take(self.count)
    }
}

impl From<u32> for Control {
    fn from(address: u32) -> Self {
        // SAFETY: the header and what follows it are numbers; both lie within, at their alignment, because the struct
        // has the size that the macro gives and eight bytes of alignment.
        unsafe {
            let mut control = Self([0; CONTROL_LEN]);
            let header: *mut libc::cmsghdr = (&raw mut control).cast();
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<libc::in_pktinfo>() as libc::c_uint) as _;
            (*header).cmsg_level = libc::IPPROTO_IP;
            (*header).cmsg_type = libc::IP_PKTINFO;
            let source = libc::in_addr { s_addr: address.to_be() };
            let information =
                libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: source, ipi_addr: libc::in_addr { s_addr: 0 } };
            libc::CMSG_DATA(header).cast::<libc::in_pktinfo>().write_unaligned(information);
            control
        }
    }
}

impl Control {
    /// Returns the local address that the control message contains.
    fn address(&self) -> u32 {
        let header: *const libc::cmsghdr = (&raw const *self).cast();
        // SAFETY: as above; the socket delivers this one kind of control message, and zeros are an address, too.
        let information = unsafe { libc::CMSG_DATA(header).cast::<libc::in_pktinfo>().read_unaligned() };
        u32::from_be(information.ipi_addr.s_addr)
    }
}

/// Writes a confirmable request. `rest` adds its options and its payload. Returns the length of the request.
pub(crate) fn request(
    room: &mut [u8],
    code: Code,
    message_id: u16,
    token: u32,
    rest: impl FnOnce(&mut Builder<'_, '_>) -> Result<(), BuildError>,
) -> Result<usize, BuildError> {
    let mut frame = Frame::new(room, 0);
    let mut builder = Builder::new(&mut frame, MessageType::Confirmable, code, message_id, &token.to_be_bytes())?;
    rest(&mut builder)?;
    Ok(frame.len())
}

fn set(socket: &UdpSocket, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let len = size_of_val(&value) as libc::socklen_t;
    // SAFETY: `value` is there during the call and has this length.
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn failure(error: io::Error) -> Failure {
    Failure::new(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    #[test]
    fn each_member_has_an_address_and_hears_what_is_sent_there() -> Result<(), Failure> {
        let server = UdpSocket::bind("127.0.0.1:0").map_err(failure)?;
        let SocketAddr::V4(address) = server.local_addr().map_err(failure)? else { return Ok(()) };
        let crowd = Crowd::new(address, Duration::from_secs(5))?;
        let mut letters = Letters::new();
        for member in [7, 70_000] {
            crowd.push(&mut letters, member, |room| {
                room[..2].copy_from_slice(b"hi");
                Ok(2)
            })?;
        }
        crowd.send(&mut letters)?;
        assert!(letters.is_empty());
        for ip in [Ipv4Addr::new(127, 1, 0, 7), Ipv4Addr::new(127, 2, 17, 112)] {
            let mut bytes = [0; 8];
            let (len, from) = server.recv_from(&mut bytes).map_err(failure)?;
            assert_eq!((&bytes[..len], from.ip()), (&b"hi"[..], ip.into()));
            server.send_to(b"ho!", from).map_err(failure)?;
        }
        let mut heard = Vec::new();
        while heard.len() < 2 {
            crowd.receive(&mut letters)?;
            assert!(!letters.is_empty(), "nothing came");
            heard.extend(letters.iter().map(|(member, bytes)| (member, bytes.to_vec())));
        }
        assert_eq!(heard, [(7, b"ho!".to_vec()), (70_000, b"ho!".to_vec())]);
        Ok(())
    }
}
