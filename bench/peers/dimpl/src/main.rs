//! dimpl with its default provider: DTLS 1.2, PSK and CCM_8, cookie exchange on.
use dimpl::{Config, Dtls, Output, PskResolver, crypto::Dtls12CipherSuite};
use std::{process::ExitCode, sync::Arc, time::Instant};
use tegmen_bench_line::{DATAGRAM_MAX, End, Failure, IDENTITY, KEY, Outbox, Stack, run};

struct Dimpl {
    client: Arc<Config>,
    server: Arc<Config>,
}

struct Endpoint {
    /// The connection. It is in a `Box`, so that it counts as heap memory.
    dtls: Box<Dtls>,
    established: bool,
}

struct OneKey;

impl PskResolver for OneKey {
    fn resolve(&self, identity: &[u8]) -> Option<Vec<u8>> {
        (identity == IDENTITY.as_bytes()).then(|| KEY.to_vec())
    }
}

impl Dimpl {
    fn new() -> Result<Self, Failure> {
        let builder = || Config::builder().dtls12_cipher_suites(&[Dtls12CipherSuite::PSK_AES128_CCM_8]);
        let client = builder().with_psk_client(IDENTITY.into(), Arc::new(OneKey)).build().map_err(failure)?;
        let server = builder().with_psk_server(None, Arc::new(OneKey)).build().map_err(failure)?;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }
}

impl Stack for Dimpl {
    type Client = Endpoint;
    type Server = Endpoint;

    fn version(&self) -> String {
        "dimpl 0.9.0 (aws-lc-rs)".into()
    }

    fn client(&mut self) -> Result<Endpoint, Failure> {
        Endpoint::new(&self.client, true)
    }

    fn server(&mut self) -> Result<Endpoint, Failure> {
        Endpoint::new(&self.server, false)
    }
}

impl Endpoint {
    fn new(config: &Arc<Config>, active: bool) -> Result<Self, Failure> {
        let now = Instant::now();
        let mut dtls = Box::new(Dtls::new_12_psk(config.clone(), now));
        dtls.set_active(active);
        dtls.handle_timeout(now).map_err(failure)?; // sets its clock and starts a client
        Ok(Self { dtls, established: false })
    }

    /// Polls the connection until only a timeout is left. Returns the length of the application data that arrived; 0 if
    /// none.
    fn poll(&mut self, mut out: Option<&mut Outbox>, payload: &mut [u8]) -> Result<usize, Failure> {
        let mut buf = [0; DATAGRAM_MAX];
        let mut opened = 0;
        loop {
            match self.dtls.poll_output(&mut buf) {
                Output::Packet(datagram) => {
                    out.as_mut().ok_or_else(|| Failure::new("unexpected datagram"))?.push(datagram);
                }
                Output::Connected => self.established = true,
                Output::ApplicationData(data) => {
                    payload.get_mut(..data.len()).ok_or_else(|| Failure::new("too long"))?.copy_from_slice(data);
                    opened = data.len();
                }
                Output::Timeout(_) => return Ok(opened),
                _ => {}
            }
        }
    }
}

impl End for Endpoint {
    fn handshake(&mut self, datagram: Option<&[u8]>, out: &mut Outbox) -> Result<(), Failure> {
        if let Some(datagram) = datagram {
            self.dtls.handle_packet(datagram).map_err(failure)?;
        }
        self.poll(Some(out), &mut []).map(drop)
    }

    fn is_established(&self) -> bool {
        self.established
    }

    fn seal(&mut self, payload: &[u8], out: &mut Outbox) -> Result<(), Failure> {
        self.dtls.send_application_data(payload).map_err(failure)?;
        self.poll(Some(out), &mut []).map(drop)
    }

    fn open(&mut self, datagram: &[u8], payload: &mut [u8]) -> Result<usize, Failure> {
        self.dtls.handle_packet(datagram).map_err(failure)?;
        self.poll(None, payload)
    }
}

fn failure(error: dimpl::Error) -> Failure {
    Failure::new(error.to_string())
}

fn main() -> ExitCode {
    run(Dimpl::new())
}
