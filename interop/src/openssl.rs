//! OpenSSL's `s_server` and `s_client`. They support DTLS but not CoAP, so this module writes and reads CoAP messages
//! byte by byte.

mod delegation;
mod public_keys;
mod resumption;

use crate::capture::Capture;
use crate::cell::{Cell, Check, Role, Scene, Trouble, free_port, holds};
use crate::connection_id;
use crate::dtls;
use crate::network::{BAD, Network};
use crate::ours::{Library, Psk, Served, names_identity_and_key, probe_record_size, start_ask, start_ask_within};
use crate::process::Process;
use crate::session::{GET_V, Plaintext};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use tegmen::coap::Code;
use tegmen_host::client::ClientError;

pub(crate) use delegation::expired_cell as expired_delegation;

pub(crate) const PROGRAM: &str = "openssl";
pub(crate) const PEER: &str = "OpenSSL";
/// The cipher suite and the security level. At a higher level OpenSSL refuses the suite, because the tag of the suite
/// has only eight bytes.
const SUITE: &str = "PSK-AES128-CCM8:@SECLEVEL=0";

/// Returns one [`Cell`] (a row of the result table) for each scenario with OpenSSL.
pub(crate) fn cells(version: &str) -> Vec<Cell> {
    let server = |scenario: &str, play: fn(&Scene) -> Check| Cell::new(PEER, version, Role::Server, scenario, play);
    let client = |scenario: &str, play: fn(&Scene) -> Check| Cell::new(PEER, version, Role::Client, scenario, play);
    vec![
        server("handshake with extended master secret, data both ways", server_handshake),
        server("AES-128-GCM, data both ways", server_gcm),
        server("minimal profile, data both ways", server_minimal),
        server("cookie exchange", server_cookie),
        server("IPv6", server_ipv6),
        server("several requests in one session", server_several),
        server("wrong key", server_wrong_key),
        server("unknown identity", server_unknown_identity),
        server("fragments from the peer, -mtu 256", server_fragments),
        server("fragments to the peer, 64-byte datagrams", server_takes_fragments),
        server("max_fragment_length", server_max_fragment_length),
        server("restart of the peer", server_restart),
        server(connection_id::ROW, |scene| {
            let server = Server::start(scene, &Psk::usual(), &[])?;
            connection_id::lacks(server.address)
        }),
        server("key of 64 bytes", |scene| server_data(scene, &Psk::with_key(&"k".repeat(64)))),
        server("identity of 128 bytes", |scene| server_data(scene, &Psk::with_identity(&"i".repeat(128)))),
        client("handshake with extended master secret, data both ways", client_handshake),
        client("without extended master secret, data both ways", client_without_extended_master_secret),
        client("AES-128-GCM, data both ways", client_gcm),
        client("cookie exchange", client_cookie),
        client("IPv6", client_ipv6),
        client("PUT, then GET of the same value", client_put_get),
        client("separate response", client_separate),
        client("ping, and what is no CoAP", client_ping),
        client("wrong key", |scene| client_refused(scene, &Psk::with_key("wrongPSK"), "its key is another one")),
        client("unknown identity", |scene| client_refused(scene, &Psk::with_identity("nobody"), "no such identity")),
        client("wrong key and unknown identity look the same", client_sees_no_difference),
        client("ClientHello in fragments, -mtu 256", client_fragments),
        client("max_fragment_length", client_max_fragment_length),
        client("restart of the peer, same port", client_restart),
        client("restart of tegmen", client_outlives_server),
        client(connection_id::ROW, client_lacks_connection_id),
        client("key of 64 bytes", |scene| client_data(scene, &Psk::with_key(&"k".repeat(64)))),
        client("identity of 128 bytes", |scene| client_data(scene, &Psk::with_identity(&"i".repeat(128)))),
    ]
    .into_iter()
    .chain(BAD.into_iter().flat_map(|(row, network)| {
        let server = Cell::new(PEER, version, Role::Server, row, move |scene| server_over(scene, network));
        [server, Cell::new(PEER, version, Role::Client, row, move |scene| client_over(scene, network))]
    }))
    .chain(public_keys::cells(version))
    .chain(resumption::cells(version))
    .chain(delegation::cells(version))
    .collect()
}

// --- s_server ---

pub(crate) struct Server {
    process: Process,
    pub(crate) address: SocketAddr,
    /// Number of bytes of the server's standard output that the scenario has already read.
    read: usize,
}

/// A request that `s_server` printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) message_id: [u8; 2],
    token: Vec<u8>,
}

impl Server {
    pub(crate) fn start(scene: &Scene, psk: &Psk, more: &[&str]) -> Result<Self, String> {
        Self::start_at(scene, psk, (Ipv4Addr::LOCALHOST, free_port()?).into(), more)
    }

    fn start_at(scene: &Scene, psk: &Psk, address: SocketAddr, more: &[&str]) -> Result<Self, String> {
        let (accept, key) = (address.to_string(), psk.hex());
        let arguments = ["s_server", "-dtls1_2", "-accept", &accept, "-nocert", "-cipher", SUITE, "-psk", &key];
        let identity = ["-psk_identity", &psk.identity];
        let process = scene.start(PROGRAM, &[&arguments[..], &identity, more].concat())?;
        process.await_output("ACCEPT", 0)?;
        Ok(Self { process, address, read: 0 })
    }

    fn uri(&self) -> String {
        format!("coaps://{}/question", self.address)
    }

    /// Waits for a confirmable request to `path`, which is one segment. The request must carry `payload`, and a token
    /// of `token_len` bytes.
    pub(crate) fn request(&mut self, method: u8, path: &str, payload: &[u8], token_len: u8) -> Result<Request, String> {
        let mut text = vec![0xb0 | u8::try_from(path.len()).unwrap_or(0)];
        text.extend_from_slice(path.as_bytes());
        if !payload.is_empty() {
            text.push(0xff);
            text.extend_from_slice(payload);
        }
        let at = self.process.await_output(&text, self.read)?;
        self.read = at + text.len();
        let printed = self.process.out.bytes();
        let header = at.checked_sub(4 + usize::from(token_len)).and_then(|start| printed.get(start..at));
        match header.unwrap_or(&[]) {
            &[first, code, id0, id1, ref token @ ..] if (first, code) == (0x40 | token_len, method) => {
                Ok(Request { message_id: [id0, id1], token: token.to_vec() })
            }
            other => Err(format!("no header of a confirmable request: {other:02x?}")),
        }
    }

    /// Answers with an acknowledgement that carries `code` and `payload`.
    pub(crate) fn answer(&mut self, request: &Request, code: u8, payload: &[u8]) -> Result<(), String> {
        let Request { message_id: [id0, id1], token } = request;
        let first = 0x60 | u8::try_from(token.len()).unwrap_or(0);
        self.process.write(&[&[first, code, *id0, *id1], &token[..], &[0xff], payload].concat())
    }

    /// Sends one PUT with the command `tegmen put`, and answers the PUT from `s_server`. Checks the answer that `tegmen
    /// put` prints.
    fn exchange(&mut self, scene: &Scene, psk: &Psk, more: &[&str]) -> Check {
        let uri = self.uri();
        let asked = start_ask(scene, &[&["put", &uri, "a blink"], more].concat(), Some(psk))?;
        let request = self.request(3, "question", b"a blink", 4)?;
        self.answer(&request, 0x44, b"an answer")?;
        let answer = asked.answer()?;
        match (answer.code.as_str(), answer.payload.as_str()) {
            ("2.04", "an answer") => Ok(()),
            (code, payload) => Err(format!("tegmen understood {code} {payload:?}").into()),
        }
    }

    /// Returns OpenSSL's description of the session, which `s_server` printed.
    pub(crate) fn session(&self, scene: &Scene) -> Result<String, String> {
        let printed = self.process.out.text();
        let (begin, end) = ("-----BEGIN SSL SESSION PARAMETERS-----", "-----END SSL SESSION PARAMETERS-----");
        let from = printed.find(begin).ok_or("s_server printed no session")?;
        let to = printed.find(end).ok_or("s_server printed no end of the session")? + end.len();
        let file = scene.file("session.pem", printed.get(from..to).unwrap_or_default())?;
        let output = Command::new(PROGRAM).args(["sess_id", "-text", "-noout", "-in"]).arg(file).output();
        Ok(String::from_utf8_lossy(&output.map_err(|error| error.to_string())?.stdout).into_owned())
    }
}

fn server_handshake(scene: &Scene) -> Check {
    let psk = Psk::usual();
    let mut server = Server::start(scene, &psk, &[])?;
    server.exchange(scene, &psk, &[])?;
    let session = server.session(scene)?;
    holds(&session, &["Protocol  : DTLSv1.2", "Cipher    : PSK-AES128-CCM8", "Extended master secret: yes"])?;
    holds(&server.process.out.text(), &["Secure Renegotiation IS supported"])
}

/// Options that select a GCM suite. OpenSSL uses only the last `-cipher` on its command line, so these options replace
/// earlier ones.
const GCM: [&str; 2] = ["-cipher", "PSK-AES128-GCM-SHA256"];

fn server_gcm(scene: &Scene) -> Check {
    let psk = Psk::usual();
    let mut server = Server::start(scene, &psk, &GCM)?;
    server.exchange(scene, &psk, &[])?;
    holds(&server.session(scene)?, &["Cipher    : PSK-AES128-GCM-SHA256", "Extended master secret: yes"])
}

fn server_minimal(scene: &Scene) -> Check {
    let psk = Psk::usual();
    let mut server = Server::start(scene, &psk, &[])?;
    server.exchange(scene, &psk, &["--minimal"])?;
    holds(&server.session(scene)?, &["Cipher    : PSK-AES128-CCM8", "Extended master secret: no"])?;
    holds(&server.process.out.text(), &["Secure Renegotiation IS NOT supported"])
}

fn server_data(scene: &Scene, psk: &Psk) -> Check {
    let mut server = Server::start(scene, psk, &["-listen"])?;
    server.exchange(scene, psk, &[])?;
    holds(&server.session(scene)?, &["Extended master secret: yes"])
}

/// Checks the cookie exchange. With `-msg`, OpenSSL prints each handshake message with its type and its number in the
/// handshake.
fn server_cookie(scene: &Scene) -> Check {
    let psk = Psk::usual();
    let mut server = Server::start(scene, &psk, &["-listen", "-msg"])?;
    server.exchange(scene, &psk, &[])?;
    let printed = server.process.out.text();
    let hellos: Vec<&str> = printed.lines().filter(|line| line.starts_with("    01 00 00 ")).collect();
    let numbers: Vec<&str> = hellos.iter().filter_map(|line| line.get(16..21)).collect();
    match numbers.first().zip(numbers.last()) {
        Some((&"00 00", &"00 01")) => Ok(()),
        _ => Err(format!("ClientHello came with the numbers {numbers:?}, not first 0 and then 1").into()),
    }
}

fn server_over(scene: &Scene, network: Network) -> Check {
    let psk = Psk::usual();
    let mut server = Server::start(scene, &psk, &["-listen"])?;
    let relay = Capture::over(server.address, network)?;
    let uri = format!("coaps://127.0.0.1:{}/question", relay.port);
    let asked = start_ask_within(scene, &["put", &uri, "a blink"], Some(&psk), "20")?;
    let request = server.request(3, "question", b"a blink", 4)?;
    server.answer(&request, 0x44, b"an answer")?;
    asked.answer()?;
    relay.did_harm()
}

fn client_over(scene: &Scene, network: Network) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let relay = Capture::over((Ipv4Addr::LOCALHOST, served.port).into(), network)?;
    let mut client = Client::start(scene, "127.0.0.1", relay.port, &Psk::usual(), &[])?;
    client.established()?;
    client.get_v()?;
    relay.did_harm()
}

fn server_ipv6(scene: &Scene) -> Check {
    let psk = Psk::usual();
    let address = (std::net::Ipv6Addr::LOCALHOST, free_port()?).into();
    let mut server = Server::start_at(scene, &psk, address, &[])?;
    server.exchange(scene, &psk, &[])
}

/// Checks three requests of the client of Tegmen's library. `s_server` answers each request while the client waits.
fn server_several(scene: &Scene) -> Check {
    let psk = Psk::usual();
    let mut server = Server::start(scene, &psk, &["-listen"])?;
    let address = server.address;
    std::thread::scope(|scope| {
        let client = scope.spawn(move || -> Check {
            let client = Library::connect(address, Some(&Psk::usual()), None)?;
            client.ask_thrice(|_| ())?;
            client.close();
            Ok(())
        });
        for number in 0..3u8 {
            let request = server.request(3, "question", &[b'0' + number], 4)?;
            server.answer(&request, 0x44, &[b'A' + number])?;
        }
        client.join().map_err(|_| "the client panicked")?
    })
}

fn server_wrong_key(scene: &Scene) -> Check {
    let server = Server::start(scene, &Psk::usual(), &["-listen"])?;
    let asked = start_ask(scene, &["get", &server.uri()], Some(&Psk::with_key("wrongPSK")))?;
    names_identity_and_key(&asked.failure()?)
}

/// Checks an unknown identity. `s_server` compares identities and prints a warning, but continues with its only key.
fn server_unknown_identity(scene: &Scene) -> Check {
    let mut server = Server::start(scene, &Psk::usual(), &["-listen"])?;
    server.exchange(scene, &Psk::with_identity("nobody"), &[])?;
    let warning = "PSK warning: client identity not what we expected (got 'nobody' expected 'Client_identity')";
    holds(&server.process.out.text(), &[warning])?;
    Err(Trouble::Lacks(format!("s_server accepts every identity and only prints \"{warning}\"")))
}

/// Checks a fragmented handshake message. `s_server` sends datagrams of at most 256 bytes. The identity hint is too
/// long for one such datagram, so the ServerKeyExchange has two fragments.
fn server_fragments(scene: &Scene) -> Check {
    let psk = Psk::usual();
    let hint = "h".repeat(250);
    let mut server = Server::start(scene, &psk, &["-listen", "-mtu", "256", "-psk_hint", &hint, "-msg"])?;
    server.exchange(scene, &psk, &[])?;
    let printed = server.process.out.text();
    let sent: Vec<&str> = printed.lines().filter(|line| line.contains(" 0c 00 00 fc 00 02 ")).collect();
    match sent.iter().any(|line| !line.contains("0c 00 00 fc 00 02 00 00 00 00 00 fc")) {
        true => Ok(()),
        false => Err(format!("ServerKeyExchange came in one piece: {sent:?}").into()),
    }
}

/// Checks fragments from Tegmen's client, which sends datagrams of at most 64 bytes. Its ClientHello needs two
/// datagrams, and its ClientKeyExchange needs more, because the identity is long.
fn server_takes_fragments(scene: &Scene) -> Check {
    let psk = Psk::with_identity(&"i".repeat(100));
    // With -listen the server would refuse the first fragment: a server without state cannot reassemble fragments.
    let mut server = Server::start(scene, &psk, &["-msg"])?;
    let address = server.address;
    std::thread::scope(|scope| {
        let client = scope.spawn({
            let psk = psk.clone();
            move || -> Check {
                let client = Library::connect(address, Some(&psk), Some(64))?;
                let reply = client.request(Code::GET, "question", &[]).map_err(|error| error.to_string())?;
                if reply.payload != b"an answer" {
                    return Err(format!("the answer was {:?}", reply.payload).into());
                }
                client.close();
                Ok(())
            }
        });
        if let Ok(request) = server.request(1, "question", &[], 4) {
            server.answer(&request, 0x45, b"an answer")?;
        }
        client.join().map_err(|_| "the client panicked")?
    })?;
    // Headers of records that hold a handshake message in the clear: none may be longer than 64 - 13.
    let printed = server.process.out.text();
    let whole = "16 fe fd 00 00 00 00 00 00 00 ";
    let received = printed.split("<<<").skip(1).filter_map(|message| message.lines().nth(1));
    let lens = received.filter_map(|line| line.trim().strip_prefix(whole)?.get(3..8)).collect::<Vec<_>>();
    let short = lens.iter().all(|len| len.strip_prefix("00 ").is_some_and(|len| len <= "33"));
    if short && lens.len() >= 4 { Ok(()) } else { Err(format!("records came with the lengths {lens:?}").into()) }
}

/// Checks max_fragment_length. OpenSSL does not support record_size_limit, so it accepts the max_fragment_length that
/// Tegmen's client also offers.
fn server_max_fragment_length(scene: &Scene) -> Check {
    let psk = Psk::usual();
    let server = Server::start(scene, &psk, &[])?;
    probe_record_size(scene, server.address, "600", "max_fragment_length", 512)?;
    Server::start(scene, &psk, &[])?.exchange(scene, &psk, &["--record-size-limit", "4096"])
}

/// Checks a restart of the server. The restarted server has no sessions, so it cannot send an authenticated alert. The
/// client reports that no response came, and a new session works.
fn server_restart(scene: &Scene) -> Check {
    let psk = Psk::usual();
    let mut server = Server::start(scene, &psk, &[])?;
    let address = server.address;
    let client = std::thread::scope(|scope| -> Result<Library, Trouble> {
        let client = scope.spawn(|| -> Result<Library, String> {
            let client = Library::connect(address, Some(&Psk::usual()), None)?;
            client.request(Code::GET, "question", &[]).map_err(|error| error.to_string())?;
            Ok(client)
        });
        let request = server.request(1, "question", &[], 4)?;
        server.answer(&request, 0x45, b"before")?;
        Ok(client.join().map_err(|_| "the client panicked")??)
    })?;
    server.process.kill();
    let mut server = Server::start_at(scene, &psk, address, &["-listen"])?;
    match client.request(Code::GET, "question", &[]) {
        // The client gave the request up before it treated the server as silent.
        Err(ClientError::NoResponse { .. }) => {}
        Err(other) => return Err(format!("the client reports: {other}").into()),
        Ok(_) => return Err("the old session brought an answer".into()),
    }
    server.exchange(scene, &psk, &[])
}

// --- s_client ---

pub(crate) struct Client {
    pub(crate) process: Process,
    /// Number of bytes of the client's standard output that the scenario has already read. The application data after
    /// these bytes is still to be read.
    read: usize,
}

impl Client {
    pub(crate) fn start(scene: &Scene, host: &str, port: u16, psk: &Psk, more: &[&str]) -> Result<Self, String> {
        let mut command = Command::new(PROGRAM);
        Self::arguments(&mut command, host, port, psk, more);
        Ok(Self { process: scene.start_command(command)?, read: 0 })
    }

    fn arguments(command: &mut Command, host: &str, port: u16, psk: &Psk, more: &[&str]) {
        command.args(["s_client", "-dtls1_2", "-connect", &format!("{host}:{port}"), "-cipher", SUITE, "-nocommands"]);
        command.args(["-psk", &psk.hex(), "-psk_identity", &psk.identity]).args(more);
    }

    /// Waits until the session is established. Returns OpenSSL's description of the session.
    pub(crate) fn established(&mut self) -> Result<String, String> {
        let last = "    Extended master secret: ";
        let at = self.process.await_output(last, 0)?;
        let end = "\n---\n";
        self.read = self.process.await_output(end, at)? + end.len();
        Ok(self.process.out.text())
    }

    /// Sends a message that gets no answer, and waits until the client has sent it. With `-msg` the client prints each
    /// record. Without the wait, the client could put this message and the next one into one record.
    fn send_alone(&mut self, message: &[u8]) -> Result<(), String> {
        let before = self.process.out.len();
        self.process.write(message)?;
        self.process.await_output("    17 fe fd 00 01 ", before).map(|_| ())
    }
}

impl Plaintext for Client {
    fn send(&mut self, message: &[u8]) -> Result<(), String> {
        self.process.write(message)
    }

    fn head(&mut self, len: usize, tail: &[u8]) -> Result<Vec<u8>, String> {
        let at = self.process.await_output(tail, self.read)?;
        let from = at.checked_sub(len).filter(|from| *from >= self.read).ok_or("the message is too short")?;
        self.read = at.saturating_add(tail.len());
        Ok(self.process.out.bytes().get(from..at).unwrap_or_default().to_vec())
    }

    fn close(&mut self) {
        self.process.close_input();
    }
}

/// Opens a session with the key of [`Psk::usual`], and sends one GET in it.
fn client_get(scene: &Scene, served: &Served, more: &[&str]) -> Result<(Client, String), String> {
    let mut client = Client::start(scene, "127.0.0.1", served.port, &Psk::usual(), more)?;
    let session = client.established()?;
    client.get_v()?;
    Ok((client, session))
}

fn client_lacks_connection_id(scene: &Scene) -> Check {
    connection_id::client_lacks(scene, |server| {
        let mut client = Client::start(scene, "127.0.0.1", server.port(), &Psk::usual(), &[])?;
        client.established()?;
        Ok(Box::new(client))
    })
}

fn client_handshake(scene: &Scene) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let (mut client, session) = client_get(scene, &served, &[])?;
    holds(
        &session,
        &["Cipher is PSK-AES128-CCM8", "Extended master secret: yes", "Secure Renegotiation IS supported"],
    )?;
    // The server receives the close_notify of an orderly end.
    client.process.close_input();
    served.process.await_output("disconnected (close_notify)", 0)?;
    Ok(())
}

fn client_max_fragment_length(scene: &Scene) -> Check {
    let served = dtls::serve_long(scene)?;
    let more = ["-maxfraglen", "512", "-tlsextdebug"];
    let mut client = Client::start(scene, "127.0.0.1", served.port, &Psk::usual(), &more)?;
    let session = client.established()?;
    holds(&session, &["TLS server extension \"max fragment length\" (id=1), len=1"])?;
    dtls::get_block(&mut client, 256)
}

fn client_gcm(scene: &Scene) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let (_, session) = client_get(scene, &served, &GCM)?;
    holds(&session, &["Cipher is PSK-AES128-GCM-SHA256", "Extended master secret: yes"])
}

/// Checks a client without the extended master secret. The command line of OpenSSL has no option for this, but its
/// configuration file has one.
fn client_without_extended_master_secret(scene: &Scene) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let settings = "openssl_conf = all\n[all]\nssl_conf = ssl\n[ssl]\nsystem_default = tls\n\
                    [tls]\nOptions = -ExtendedMasterSecret\n";
    let file = scene.file("openssl.cnf", settings)?;
    let mut command = Command::new(PROGRAM);
    Client::arguments(&mut command, "127.0.0.1", served.port, &Psk::usual(), &[]);
    let mut client = Client {
        process: {
            command.env("OPENSSL_CONF", file);
            scene.start_command(command)?
        },
        read: 0,
    };
    let session = client.established()?;
    client.get_v()?;
    holds(&session, &["Cipher is PSK-AES128-CCM8", "Extended master secret: no"])
}

fn client_cookie(scene: &Scene) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let (_client, session) = client_get(scene, &served, &["-msg"])?;
    // HelloVerifyRequest, and a second ClientHello with the number 1.
    holds(&session, &["\n    03 00 00 ", "\n    01 00 00 7e 00 01 "])
}

fn client_ipv6(scene: &Scene) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let mut client = Client::start(scene, "[::1]", served.port, &Psk::usual(), &[])?;
    client.established()?;
    Ok(client.get_v()?)
}

fn client_data(scene: &Scene, psk: &Psk) -> Check {
    let served = Served::start(scene, psk)?;
    let mut client = Client::start(scene, "127.0.0.1", served.port, psk, &[])?;
    holds(&client.established()?, &["Extended master secret: yes", &psk.identity])?;
    Ok(client.get_v()?)
}

fn client_put_get(scene: &Scene) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let (mut client, _) = client_get(scene, &served, &[])?;
    client.exchange(b"\x44\x03\x12\x35abce\xb1v\xffa new value", b"\x64\x44\x12\x35abce")?;
    client.get(b"\x44\x01\x12\x36abcf\xb1v", b"\x64\x45\x12\x36abcf", b"a new value")?;
    // The same Message ID again: the same answer, though the value could have changed meanwhile.
    Ok(client.get(b"\x44\x01\x12\x36abcf\xb1v", b"\x64\x45\x12\x36abcf", b"a new value")?)
}

fn client_separate(scene: &Scene) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let (mut client, _) = client_get(scene, &served, &["-msg"])?;
    client.exchange(b"\x44\x01\x12\x40tokn\xb4slow", b"\x60\x00\x12\x40")?;
    // After the token: Content-Format 0 and the payload.
    let at = client.process.await_output(b"tokn\xc0\xffslowly", client.read)?;
    let printed = client.process.out.bytes();
    match at.checked_sub(4).and_then(|header| printed.get(header..at)) {
        Some(&[0x44, 0x45, id0, id1]) => {
            client.send_alone(&[0x60, 0, id0, id1])?;
            // The server received the acknowledgement: it still answers, and does not repeat the response.
            Ok(client.get(b"\x44\x01\x12\x41abcd\xb1v", b"\x64\x45\x12\x41abcd", b"hello")?)
        }
        other => Err(format!("no confirmable response: {other:02x?}").into()),
    }
}

fn client_ping(scene: &Scene) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let (mut client, _) = client_get(scene, &served, &["-msg"])?;
    client.exchange(b"\x40\x00\x77\x01", b"\x70\x00\x77\x01")?;
    // A token of nine bytes is a format error, so the server sends a Reset with its Message ID (RFC 7252, section 4.2).
    client.exchange(b"\x49\x01\x77\x02abcdefghi", b"\x70\x00\x77\x02")?;
    // The server ignores a message of another version, and the session continues.
    client.send_alone(b"\x84\x01\x77\x03abcd")?;
    Ok(client.get(b"\x44\x01\x77\x04abcd\xb1v", b"\x64\x45\x77\x04abcd", b"hello")?)
}

/// Checks a refused client. The client gets only the alert decrypt_error. The log of the server names the cause.
fn client_refused(scene: &Scene, psk: &Psk, operator_reads: &str) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let mut client = Client::start(scene, "127.0.0.1", served.port, psk, &[])?;
    client.process.await_error("alert decrypt error", 0)?;
    if client.process.await_end()?.success() {
        return Err("s_client ended as if all was well".into());
    }
    served.process.await_output(operator_reads, 0)?;
    Ok(())
}

fn client_sees_no_difference(scene: &Scene) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let mut seen = Vec::new();
    // Identities of one length, so that the counts of bytes can be compared.
    for psk in [Psk::with_key("wrongPSK"), Psk { identity: "Nobody_identity".to_owned(), key: "wrongPSK".into() }] {
        let mut client = Client::start(scene, "127.0.0.1", served.port, &psk, &[])?;
        let at = client.process.await_error(":error:", 0)?;
        client.process.await_end()?;
        let errors = client.process.err.text();
        let printed = client.process.out.text();
        let bytes = printed.lines().find(|line| line.starts_with("SSL handshake has read")).unwrap_or_default();
        let error = errors.get(at..).unwrap_or_default().lines().next().unwrap_or_default();
        seen.push(format!("{error} | {bytes}"));
    }
    match seen.as_slice() {
        [key, identity] if key == identity && key.contains("SSL handshake has read") => Ok(()),
        _ => Err(format!("the peer can tell them apart: {}", seen.join(" / ")).into()),
    }
}

/// Checks fragmented ClientHellos. The client sends datagrams of at most 256 bytes. A ClientHello with a long server
/// name needs two of these datagrams. Both ClientHellos arrive in fragments. The cookie of the second ClientHello is in
/// its first fragment.
fn client_fragments(scene: &Scene) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let name = ["n", "a", "m", "e"].map(|letter| letter.repeat(60)).join(".");
    let (client, _) = client_get(scene, &served, &["-mtu", "256", "-servername", &name, "-msg"])?;
    // The header of each record whose version is that of a hello.
    match client.process.out.text().matches("    16 fe ff ").count() {
        fragments if fragments >= 3 => Ok(()),
        fragments => Err(format!("its hellos came in {fragments} records, not in fragments").into()),
    }
}

/// Checks a client that loses power and connects again from the same port. The new handshake replaces the old session
/// (RFC 6347, section 4.2.8).
fn client_restart(scene: &Scene) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let own = format!("127.0.0.1:{}", free_port()?);
    let (mut client, _) = client_get(scene, &served, &["-bind", &own])?;
    client.process.kill();
    client_get(scene, &served, &["-bind", &own])?;
    Ok(())
}

/// Checks that the server, after a restart, does not answer a request in the old session and accepts no record of this
/// session. A new session works at once.
fn client_outlives_server(scene: &Scene) -> Check {
    let mut served = Served::start(scene, &Psk::usual())?;
    let (mut client, _) = client_get(scene, &served, &[])?;
    served.process.kill();
    let served = Served::start_at(scene, &Psk::usual(), served.port)?;
    client.process.write(GET_V)?;
    client_get(scene, &served, &[])?;
    match client.process.out.len() {
        len if len == client.read => Ok(()),
        _ => Err("the old session was answered".into()),
    }
}

/// Returns the version that OpenSSL prints.
pub(crate) fn version() -> Option<String> {
    let output = Command::new(PROGRAM).arg("version").output().ok()?;
    String::from_utf8_lossy(&output.stdout).split_whitespace().nth(1).map(str::to_owned)
}
