//! Sends and receives many datagrams with one system call: `recvmmsg` and `sendmmsg` (Linux).
#![expect(unsafe_code, reason = "the standard library has no batched datagrams")]

use std::{io, mem, net::UdpSocket, os::fd::AsRawFd, ptr};

/// A list of datagrams that one system call receives or sends. Each datagram has the address of its peer.
pub(crate) struct Batch {
    bytes: Vec<[u8; ROOM]>,
    lens: [usize; BATCH_MAX],
    addresses: [libc::sockaddr_storage; BATCH_MAX],
    address_lens: [libc::socklen_t; BATCH_MAX],
    count: usize,
}

/// Maximum number of datagrams in one system call.
pub(crate) const BATCH_MAX: usize = 64;
/// Size of the buffer for one datagram, in bytes.
pub(crate) const ROOM: usize = 1280;

impl Batch {
    /// Creates an empty batch.
    pub(crate) fn new() -> Self {
        // SAFETY: an address is plain numbers, for which zeros are valid.
        let address: libc::sockaddr_storage = unsafe { mem::zeroed() };
        Self {
            bytes: vec![[0; ROOM]; BATCH_MAX],
            lens: [0; BATCH_MAX],
            addresses: [address; BATCH_MAX],
            address_lens: [0; BATCH_MAX],
            count: 0,
        }
    }

    /// Returns the datagrams of the batch.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes.iter().zip(self.lens).take(self.count).map(|(bytes, len)| &bytes[..len])
    }

    /// Removes all datagrams.
    pub(crate) fn clear(&mut self) {
        self.count = 0;
    }

    /// Adds a datagram for the address to which the socket is connected. `write` fills the buffer of the datagram, and
    /// returns its length.
    pub(crate) fn push(&mut self, write: impl FnOnce(&mut [u8; ROOM]) -> usize) {
        self.lens[self.count] = write(&mut self.bytes[self.count]).min(ROOM);
        self.address_lens[self.count] = 0;
        self.count += 1;
    }

    /// Replaces the content with datagrams that have arrived. Waits for the first datagram, but not longer than the
    /// socket's timeout. Then takes all other datagrams that have already arrived. After a timeout the batch is empty.
    pub(crate) fn receive(&mut self, socket: &UdpSocket) -> io::Result<()> {
        self.count = 0;
        self.lens = [ROOM; BATCH_MAX];
        self.address_lens = [size_of::<libc::sockaddr_storage>() as libc::socklen_t; BATCH_MAX];
        let received = self.call(BATCH_MAX, |headers, count| {
            // SAFETY: `headers` holds `count` headers whose buffers and addresses outlive the call.
            unsafe { libc::recvmmsg(socket.as_raw_fd(), headers, count, libc::MSG_WAITFORONE as _, ptr::null_mut()) }
        });
        match received {
            Ok(count) => self.count = count,
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// Sends the datagrams of the batch. A received datagram is returned to its sender. A datagram that was added with
    /// [`push`](Self::push) goes to the address to which the socket is connected.
    pub(crate) fn send(&mut self, socket: &UdpSocket) -> io::Result<()> {
        let count = self.count;
        let sent = self.call(count, |headers, count| {
            // SAFETY: `headers` holds `count` headers whose buffers and addresses outlive the call.
            unsafe { libc::sendmmsg(socket.as_raw_fd(), headers, count, 0) }
        })?;
        if sent == count { Ok(()) } else { Err(io::Error::other("not every datagram was sent")) }
    }

    /// Builds the message headers of `count` datagrams, and passes them to the system call in `step`. Then stores the
    /// length of each datagram that the system call has processed. Returns the number of these datagrams.
    fn call(
        &mut self,
        count: usize,
        step: impl FnOnce(*mut libc::mmsghdr, libc::c_uint) -> libc::c_int,
    ) -> io::Result<usize> {
        // SAFETY: headers and vectors are numbers and pointers, for which zeros are valid.
        let (mut headers, mut vectors): ([libc::mmsghdr; BATCH_MAX], [libc::iovec; BATCH_MAX]) =
            unsafe { (mem::zeroed(), mem::zeroed()) };
        for (i, vector) in vectors.iter_mut().enumerate().take(count) {
            *vector = libc::iovec { iov_base: self.bytes[i].as_mut_ptr().cast(), iov_len: self.lens[i] };
            let header = &mut headers[i].msg_hdr;
            header.msg_iov = vector;
            header.msg_iovlen = 1;
            header.msg_namelen = self.address_lens[i];
            if header.msg_namelen != 0 {
                header.msg_name = (&raw mut self.addresses[i]).cast();
            }
        }
        let done = step(headers.as_mut_ptr(), count as libc::c_uint);
        let done = usize::try_from(done).map_err(|_| io::Error::last_os_error())?;
        for (i, header) in headers.iter().enumerate().take(done) {
            self.lens[i] = header.msg_len as usize;
            self.address_lens[i] = header.msg_hdr.msg_namelen;
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_batch_returns_to_where_it_came_from() -> io::Result<()> {
        let server = UdpSocket::bind("127.0.0.1:0")?;
        let client = UdpSocket::bind("127.0.0.1:0")?;
        client.connect(server.local_addr()?)?;
        client.set_read_timeout(Some(Duration::from_secs(5)))?;
        let mut batch = Batch::new();
        for word in [&b"one"[..], b"three"] {
            batch.push(|room| {
                room[..word.len()].copy_from_slice(word);
                word.len()
            });
        }
        batch.send(&client)?;
        batch.receive(&server)?;
        batch.send(&server)?;
        batch.receive(&client)?;
        assert_eq!(batch.iter().collect::<Vec<_>>(), [&b"one"[..], b"three"]);
        Ok(())
    }
}
