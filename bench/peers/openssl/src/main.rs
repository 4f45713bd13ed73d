//! The program that measures the system's OpenSSL: DTLS 1.2 with PSK and CCM_8, or with certificates. The cookie
//! exchange is enabled. The session cache is disabled, and tickets are enabled only if the driver requests them.
mod ffi;

use ffi::{Connection, Context, Role};
use std::process::ExitCode;
use tegmen_bench_line::{End, Failure, Outbox, PublicKeys, Resumption, Stack, run};

struct OpenSsl {
    client: Context,
    server: Context,
}

impl OpenSsl {
    fn new() -> Result<Self, Failure> {
        Self::with(false)
    }

    fn with(tickets: bool) -> Result<Self, Failure> {
        Ok(Self { client: Context::new(Role::Client, tickets)?, server: Context::new(Role::Server, tickets)? })
    }
}

impl Stack for OpenSsl {
    type Client = Connection;
    type Server = Connection;

    fn version(&self) -> String {
        ffi::version()
    }

    fn use_public_keys(&mut self, keys: &PublicKeys) -> Result<(), Failure> {
        *self = Self::new()?;
        self.client.use_public_keys(keys)?;
        self.server.use_public_keys(keys)
    }

    fn use_resumption(&mut self, by: Resumption) -> Result<(), Failure> {
        *self = Self::with(by == Resumption::Ticket)?;
        Ok(())
    }

    fn again(&mut self, end: &Connection) -> Result<Connection, Failure> {
        let again = self.client.connection()?;
        again.go_on_from(end)?;
        Ok(again)
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

    fn is_established(&self) -> bool {
        self.is_finished()
    }

    fn is_resumed(&self) -> bool {
        self.was_resumed()
    }

    fn seal(&mut self, payload: &[u8], out: &mut Outbox) -> Result<(), Failure> {
        self.write(payload, out)
    }

    fn open(&mut self, datagram: &[u8], payload: &mut [u8]) -> Result<usize, Failure> {
        self.read(datagram, payload)
    }
}

fn main() -> ExitCode {
    run(OpenSsl::new())
}
