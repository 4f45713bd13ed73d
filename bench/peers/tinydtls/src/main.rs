//! The program that measures tinydtls: PSK and CCM_8. The cookie exchange is always enabled, and debug output is
//! disabled.
mod ffi;

use ffi::{Context, PUBLIC_KEY_SUITE, Role};
use std::{process::ExitCode, rc::Rc};
use tegmen_bench_line::{Agreed, End, Failure, Outbox, PublicKeys, Stack, public_keys::RAW_PUBLIC_KEY, run};

/// The stack. It has one context for each role, as in a real program. Every session has its own port.
struct TinyDtls {
    client: Rc<Context>,
    server: Rc<Context>,
    next_port: u16,
}

struct Endpoint {
    context: Rc<Context>,
    port: u16,
    role: Role,
}

impl TinyDtls {
    fn new() -> Result<Self, Failure> {
        Ok(Self { client: Rc::new(Context::new()?), server: Rc::new(Context::new()?), next_port: 1 })
    }
}

impl Stack for TinyDtls {
    type Client = Endpoint;
    type Server = Endpoint;

    fn version(&self) -> String {
        ffi::version()
    }

    fn use_public_keys(&mut self, keys: &PublicKeys) -> Result<(), Failure> {
        self.client = Rc::new(Context::with_public_keys(keys)?);
        self.server = Rc::new(Context::with_public_keys(keys)?);
        Ok(())
    }

    fn client(&mut self) -> Result<Endpoint, Failure> {
        self.next_port = self.next_port.wrapping_add(1);
        Ok(Endpoint { context: self.client.clone(), port: self.next_port, role: Role::Client })
    }

    fn server(&mut self) -> Result<Endpoint, Failure> {
        Ok(Endpoint { context: self.server.clone(), port: self.next_port, role: Role::Server })
    }
}

impl End for Endpoint {
    fn handshake(&mut self, datagram: Option<&[u8]>, out: &mut Outbox) -> Result<(), Failure> {
        match (datagram, self.role) {
            (Some(datagram), _) => self.context.handle(self.port, datagram, Some(out), &mut []).map(drop)?,
            (None, Role::Client) => self.context.connect(self.port, out)?,
            (None, Role::Server) => return Err(Failure::new("a server does not begin")),
        }
        // A server has nothing before the cookie; a client that has nothing got an alert.
        match self.role {
            Role::Client if self.context.is_gone(self.port) => Err(Failure::new("the server sent an alert")),
            _ => Ok(()),
        }
    }

    fn retransmit(&mut self, out: &mut Outbox) -> Result<(), Failure> {
        self.context.retransmit(out);
        Ok(())
    }

    fn is_established(&self) -> bool {
        self.context.is_connected(self.port)
    }

    fn agreed(&self) -> Option<Agreed> {
        let agreed = Agreed { suite: PUBLIC_KEY_SUITE.to_owned(), peer: RAW_PUBLIC_KEY.to_owned() };
        self.context.has_public_keys().then_some(agreed)
    }

    fn seal(&mut self, payload: &[u8], out: &mut Outbox) -> Result<(), Failure> {
        self.context.write(self.port, payload, out)
    }

    fn open(&mut self, datagram: &[u8], payload: &mut [u8]) -> Result<usize, Failure> {
        self.context.handle(self.port, datagram, None, payload)
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.context.forget(self.port);
    }
}

fn main() -> ExitCode {
    run(TinyDtls::new())
}
