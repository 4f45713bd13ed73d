//! wolfSSL: DTLS 1.2 with PSK and CCM_8, cookie exchange on, tickets and session cache off.
mod ffi;

use ffi::{Connection, Context, Role};
use std::process::ExitCode;
use tegmen_bench_line::{End, Failure, Outbox, Stack, run};

struct WolfSsl {
    client: Context,
    server: Context,
}

impl WolfSsl {
    fn new() -> Result<Self, Failure> {
        Ok(Self { client: Context::new(Role::Client)?, server: Context::new(Role::Server)? })
    }
}

impl Stack for WolfSsl {
    type Client = Connection;
    type Server = Connection;

    fn version(&self) -> String {
        ffi::version()
    }

    fn client(&mut self) -> Result<Connection, Failure> {
        self.client.connection()
    }

    fn server(&mut self) -> Result<Connection, Failure> {
        self.server.connection()
    }
}

impl End for Connection {
    fn handshake(&mut self, datagram: Option<&[u8]>, out: &mut Outbox) -> Result<(), Failure> {
        self.advance(datagram, out)
    }

    fn retransmit(&mut self, out: &mut Outbox) -> Result<(), Failure> {
        self.time_out(out)
    }

    fn is_established(&self) -> bool {
        self.is_finished()
    }

    fn seal(&mut self, payload: &[u8], out: &mut Outbox) -> Result<(), Failure> {
        self.write(payload, out)
    }

    fn open(&mut self, datagram: &[u8], payload: &mut [u8]) -> Result<usize, Failure> {
        self.read(datagram, payload)
    }
}

fn main() -> ExitCode {
    run(WolfSsl::new())
}
