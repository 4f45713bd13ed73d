//! Runs the DTLS handshake of one endpoint, the sender or the listener, in an image of the firmware. The other endpoint
//! is not in the image: its datagrams were recorded in `session_datagrams.rs`. In DTLS Mul-Uni the request to the group
//! and the rekey messages are in `axiom_datagrams.rs`.

use super::session_datagrams::{CLIENT_FLIGHT, COOKIE, FINISHED, HELLO, HELLO_AGAIN, SERVER_FLIGHT};
use super::sessions::OUT_LEN;

/// The handshake of a sender: each datagram that it receives, with the datagram that it sends next.
pub static OF_SENDER: [(&[u8], &[u8]); 4] =
    [(&[], &HELLO), (&COOKIE, &HELLO_AGAIN), (&SERVER_FLIGHT, &CLIENT_FLIGHT), (&FINISHED, &[])];
/// The handshake of a listener: each datagram that it receives, with the datagram that it sends next.
pub static OF_LISTENER: [(&[u8], &[u8]); 3] =
    [(&HELLO, &COOKIE), (&HELLO_AGAIN, &SERVER_FLIGHT), (&CLIENT_FLIGHT, &FINISHED)];

/// Runs a handshake. `step` processes a received datagram, unless the datagram is empty, and writes the next datagram.
/// Returns `None` if the written datagram differs from the recorded datagram.
#[inline(always)]
pub fn handshake(steps: &[(&[u8], &[u8])], mut step: impl FnMut(&mut [u8], &mut [u8; OUT_LEN]) -> usize) -> Option<()> {
    for (received, expected) in steps {
        let (mut buffer, mut out) = ([0; OUT_LEN], [0; OUT_LEN]);
        let datagram = buffer.get_mut(..received.len())?;
        datagram.copy_from_slice(received);
        let len = step(datagram, &mut out);
        if out.get(..len)? != *expected {
            return None;
        }
    }
    Some(())
}
