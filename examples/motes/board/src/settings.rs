//! The settings of a run. QEMU passes them from the host as the arguments `SERVER IDENTITY KEY SEED`.
//!
//! A product reads the server and the key from its flash memory instead. Its random number generator makes the seed.

use core::net::SocketAddrV4;
use heapless::Vec;
use mote_client::{Credentials, bytes_of_hex};
use semihosting::experimental::env::{Args, args};
use static_cell::StaticCell;

/// The settings of a run.
pub struct Settings {
    /// The address and the port of the server.
    pub server: SocketAddrV4,
    /// The pre-shared key of this mote, and the PSK identity of the mote.
    pub credentials: Credentials<'static>,
    /// Random bytes for [`mote_client::Client::new`].
    ///
    /// QEMU emulates no random number generator on this board, so the host makes these bytes. **Never build an image
    /// with a fixed seed**: an attacker who knows the seed can decrypt the session. A product uses the random number
    /// generator of its chip.
    pub seed: [u8; 32],
}

impl Settings {
    /// Reads the arguments. Call this function only once.
    ///
    /// # Errors
    /// A message that names the first argument that is missing or malformed.
    pub fn of_host() -> Result<Self, &'static str> {
        static ARGUMENTS: StaticCell<Args<256>> = StaticCell::new();
        static KEY: StaticCell<Vec<u8, 32>> = StaticCell::new();
        let read =
            args().map_err(|_| "the host gives no arguments: start QEMU with -semihosting-config and -append")?;
        let arguments: &'static Args<256> = ARGUMENTS.init(read);
        let mut arguments = arguments.filter_map(Result::ok);
        // The first one is the name of the image.
        arguments.next();
        let server = arguments.next().and_then(|text| text.parse().ok()).ok_or("argument 1 is not ADDRESS:PORT")?;
        let identity = arguments.next().ok_or("argument 2, the PSK identity, is missing")?;
        let key = arguments
            .next()
            .and_then(bytes_of_hex::<32>)
            .ok_or("argument 3 is not a key of at most 32 bytes in hex")?;
        let seed = arguments.next().and_then(bytes_of_hex::<32>).and_then(|seed| seed.into_array().ok());
        let seed = seed.ok_or("argument 4 is not a seed of 32 bytes in hex")?;
        Ok(Self { server, credentials: Credentials { identity: identity.as_bytes(), key: KEY.init(key) }, seed })
    }
}
