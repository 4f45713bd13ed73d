//! The one place where our own stack meets the benchmarks: everything else treats it as one more program.
//!
//! `tegmen-bench ours` runs [`stack`] behind the same line protocol as every peer, and `coap` starts
//! [`serve_command`]. The work itself (so many handshakes, so many records of that size) is in `tegmen_bench_line`.

use tegmen_bench_line::{End, Failure, Outbox, Stack};

/// Our stack with its credentials, or why there is none.
pub(crate) fn stack() -> Result<Ours, Failure> {
    Err(Failure::new("our DTLS is not plugged in yet"))
}

/// The words that start our CoAP server on 127.0.0.1 at `port`, if it can be started.
pub(crate) fn serve_command(_port: u16) -> Option<Vec<String>> {
    None
}

/// Settings of both our ends.
pub(crate) enum Ours {}

/// One of our ends.
pub(crate) enum Endpoint {}

impl Stack for Ours {
    type Client = Endpoint;
    type Server = Endpoint;

    fn version(&self) -> String {
        match *self {}
    }

    fn client(&mut self) -> Result<Endpoint, Failure> {
        match *self {}
    }

    fn server(&mut self) -> Result<Endpoint, Failure> {
        match *self {}
    }
}

impl End for Endpoint {
    fn handshake(&mut self, _datagram: Option<&[u8]>, _out: &mut Outbox) -> Result<(), Failure> {
        match *self {}
    }

    fn is_established(&self) -> bool {
        match *self {}
    }

    fn seal(&mut self, _payload: &[u8], _out: &mut Outbox) -> Result<(), Failure> {
        match *self {}
    }

    fn open(&mut self, _datagram: &[u8], _payload: &mut [u8]) -> Result<usize, Failure> {
        match *self {}
    }
}
