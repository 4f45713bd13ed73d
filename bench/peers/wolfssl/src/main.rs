//! The program that measures wolfSSL: DTLS 1.2 with PSK and CCM_8. The cookie exchange is enabled. Tickets and the
//! session cache are disabled, unless the driver requests resumption.
mod ffi;

use ffi::{Connection, Context, Role};
use std::process::ExitCode;
use tegmen_bench_line::{Agreed, End, Failure, Outbox, PublicKeys, Resumption, Stack, run};

struct WolfSsl {
    client: Context,
    server: Context,
    connection_id: Option<usize>,
    resumption: Option<Resumption>,
}

impl WolfSsl {
    fn new() -> Result<Self, Failure> {
        Ok(Self {
            client: Context::new(Role::Client, None)?,
            server: Context::new(Role::Server, None)?,
            connection_id: None,
            resumption: None,
        })
    }
}

impl Stack for WolfSsl {
    type Client = Connection;
    type Server = Connection;

    fn version(&self) -> String {
        ffi::version()
    }

    fn use_connection_id(&mut self, len: usize) -> Result<(), Failure> {
        self.connection_id = Some(len);
        Ok(())
    }

    fn use_public_keys(&mut self, keys: &PublicKeys) -> Result<(), Failure> {
        self.client = Context::new(Role::Client, self.resumption)?;
        self.server = Context::new(Role::Server, self.resumption)?;
        self.client.use_public_keys(keys)?;
        self.server.use_public_keys(keys)
    }

    fn use_suite(&mut self, suite: &str) -> Result<(), Failure> {
        self.client.use_suite(suite)?;
        self.server.use_suite(suite)
    }

    fn use_resumption(&mut self, by: Resumption) -> Result<(), Failure> {
        self.resumption = Some(by);
        self.client = Context::new(Role::Client, Some(by))?;
        self.server = Context::new(Role::Server, Some(by))?;
        Ok(())
    }

    fn use_server_name(&mut self, name: &str) -> Result<(), Failure> {
        self.client.use_server_name(name)
    }

    fn again(&mut self, end: &Connection) -> Result<Connection, Failure> {
        let again = self.client.connection(self.connection_id)?;
        again.go_on_from(end)?;
        Ok(again)
    }

    fn suites(&self) -> Vec<String> {
        ffi::suites()
    }

    fn client(&mut self) -> Result<Connection, Failure> {
        self.client.connection(self.connection_id)
    }

    fn server(&mut self) -> Result<Connection, Failure> {
        self.server.connection(self.connection_id)
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

    fn is_resumed(&self) -> bool {
        self.was_resumed()
    }

    fn agreed(&self) -> Option<Agreed> {
        self.tells_what_was_agreed().then(|| Connection::agreed(self))
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
