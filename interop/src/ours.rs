//! Tegmen's client and server in the scenarios. Most scenarios use the server and the client of the command line. If
//! one session must carry several requests, a scenario uses the client of Tegmen's library ([`Library`]).

use crate::cell::{Check, Scene, free_port};
use crate::process::Process;
use serde_json::Value;
use std::ffi::OsStr;
use std::future::IntoFuture as _;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;
use tegmen::coap::Code;
use tegmen::dtls::{Config, ConnectionIds};
use tegmen_host::client::{ClientConfig, ClientError, ClientKey, Response, Session};
use tegmen_host::hex::to_hex;
use tegmen_host::uri::Scheme;

/// A PSK identity and its key.
#[derive(Clone)]
pub(crate) struct Psk {
    pub(crate) identity: String,
    /// The pre-shared key. A key with a zero byte cannot be an argument of a command line.
    pub(crate) key: Vec<u8>,
}

impl Psk {
    /// Returns the identity and key that the client and the server have, unless a scenario needs others.
    pub(crate) fn usual() -> Self {
        Self { identity: "Client_identity".to_owned(), key: "secretPSK".into() }
    }

    pub(crate) fn with_key(key: &str) -> Self {
        Self { key: key.into(), ..Self::usual() }
    }

    pub(crate) fn with_identity(identity: &str) -> Self {
        Self { identity: identity.to_owned(), ..Self::usual() }
    }

    pub(crate) fn hex(&self) -> String {
        to_hex(&self.key)
    }

    /// Returns the key as an argument of a command line.
    pub(crate) fn word(&self) -> &OsStr {
        OsStr::from_bytes(&self.key)
    }
}

/// `tegmen serve` on one loopback address, or on both (IPv4 and IPv6).
pub(crate) struct Served {
    pub(crate) process: Process,
    /// The port for coaps. The next port is for coap.
    pub(crate) port: u16,
}

impl Served {
    /// Starts the server with three resources: `/v`, which GET reads and PUT writes; `/blink`; and `/slow`, whose
    /// response takes two seconds.
    pub(crate) fn start(scene: &Scene, psk: &Psk) -> Result<Self, String> {
        Self::start_at(scene, psk, free_port()?)
    }

    pub(crate) fn start_at(scene: &Scene, psk: &Psk, port: u16) -> Result<Self, String> {
        Self::start_all(scene, psk, port, &[])
    }

    pub(crate) fn start_with(scene: &Scene, psk: &Psk, more: &[&str]) -> Result<Self, String> {
        Self::start_all(scene, psk, free_port()?, more)
    }

    /// Starts the server as [`Self::start_at`] does, with the additional options `more`.
    pub(crate) fn start_beside(scene: &Scene, psk: &Psk, port: u16, more: &[&str]) -> Result<Self, String> {
        Self::start_all(scene, psk, port, more)
    }

    fn start_all(scene: &Scene, psk: &Psk, port: u16, more: &[&str]) -> Result<Self, String> {
        let entry = format!("[[psk]]\nidentity = \"{}\"\nkey = \"{}\"\n", psk.identity, psk.hex());
        scene.file("keys.toml", entry)?;
        restrict(&scene.directory().join("keys.toml"))?;
        scene.file("slow.sh", "sleep 2\nprintf slowly\n")?;
        let (secure, plain) = (port.to_string(), (port + 1).to_string());
        let arguments = ["serve", "--listen", "127.0.0.1", "--listen", "::1", "--port", &secure, "--plain"];
        let ports = ["--plain-port", &plain, "--credentials", "keys.toml", "--shards", "1"];
        let resources = ["--value", "/v=hello", "--blink", "/blink", "--command", "/slow=sh slow.sh"];
        let process = scene.tegmen(&[&arguments[..], &ports, &resources, more].concat())?;
        process.await_output(format!("coap://[::1]:{plain}/"), 0)?;
        Ok(Self { process, port })
    }
}

/// `tegmen bridge`, connected to a mote in QEMU.
pub(crate) struct Bridge {
    pub(crate) process: Process,
    /// The port at which peers reach a mote that is a server.
    pub(crate) port: u16,
}

impl Bridge {
    /// Starts a mote that is a server.
    pub(crate) fn to_server(scene: &Scene, image: &Path) -> Result<Self, String> {
        let port = free_port()?;
        Self::start(scene, image, port, &["--listen", &format!("127.0.0.1:{port}")])
    }

    /// Starts a mote that is a client of `peer`.
    pub(crate) fn to_client(scene: &Scene, image: &Path, peer: SocketAddr) -> Result<Self, String> {
        Self::start(scene, image, 0, &["--peer", &format!("coaps://{peer}")])
    }

    fn start(scene: &Scene, image: &Path, port: u16, more: &[&str]) -> Result<Self, String> {
        let image = image.to_string_lossy();
        let process = scene.tegmen(&[&["bridge", "--json", "--image", &image], more].concat())?;
        process.await_output("\"event\":\"started\"", 0)?;
        Ok(Self { process, port })
    }

    pub(crate) fn uri(&self) -> String {
        format!("coaps://127.0.0.1:{}/blink", self.port)
    }
}

/// Lets only the owner of a file read it.
pub(crate) fn restrict(file: &Path) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt as _;
    let owner_only = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(file, owner_only).map_err(|error| format!("{}: {error}", file.display()))
}

/// The response that `tegmen get` or a similar command printed.
pub(crate) struct Answer {
    pub(crate) code: String,
    pub(crate) payload: String,
    pub(crate) round_trip: Duration,
    /// True if the session was resumed.
    pub(crate) resumed: bool,
}

/// A running command that sends a request.
pub(crate) struct Asked(Process);

/// Starts `tegmen METHOD URI ...`, with `--identity` and `--key` if there is a `psk`.
pub(crate) fn start_ask(scene: &Scene, words: &[&str], psk: Option<&Psk>) -> Result<Asked, String> {
    start_ask_within(scene, words, psk, "4")
}

/// Starts a request as [`start_ask`] does, with a limit in seconds for the handshake.
pub(crate) fn start_ask_within(
    scene: &Scene,
    words: &[&str],
    psk: Option<&Psk>,
    seconds: &str,
) -> Result<Asked, String> {
    let hex = psk.map(Psk::hex).unwrap_or_default();
    let mut arguments = words.to_vec();
    if let Some(psk) = psk {
        arguments.extend(["--identity", &psk.identity, "--key", &hex]);
    }
    arguments.extend(["--json", "--timeout", "15", "--handshake-timeout", seconds]);
    Ok(Asked(scene.tegmen(&arguments)?))
}

impl Asked {
    /// Waits for the end of the command. Returns the answer.
    pub(crate) fn answer(mut self) -> Result<Answer, String> {
        self.0.await_end()?;
        let text = self.0.out.text();
        let answer: Value = serde_json::from_str(&text).map_err(|_| {
            let error = self.0.err.text();
            format!("tegmen brought no answer: {}", error.trim())
        })?;
        let milliseconds = answer["round_trip_ms"].as_f64().unwrap_or(0.0);
        Ok(Answer {
            code: answer["code"].as_str().unwrap_or_default().to_owned(),
            payload: answer["payload_text"].as_str().unwrap_or_default().to_owned(),
            round_trip: Duration::from_secs_f64(milliseconds / 1e3),
            resumed: answer["resumed"] == true,
        })
    }

    /// Waits for the end of the command, which must fail. Returns its error output.
    pub(crate) fn failure(mut self) -> Result<String, String> {
        let status = self.0.await_end()?;
        if status.success() {
            return Err("tegmen succeeded where it must not".to_owned());
        }
        Ok(self.0.err.text())
    }
}

/// Sends a request with `tegmen METHOD URI ...`, and waits for the answer.
pub(crate) fn ask(scene: &Scene, words: &[&str], psk: Option<&Psk>) -> Result<Answer, String> {
    start_ask(scene, words, psk)?.answer()
}

/// Checks that `tegmen observe` prints four representations of a resource whose value is a counter. Each representation
/// must have a higher number.
pub(crate) fn observe_counting(scene: &Scene, uri: &str, more: &[&str]) -> Check {
    let mut observer = scene.tegmen(&[&["observe", uri, "--count", "4", "--json"], more].concat())?;
    if !observer.await_end()?.success() {
        return Err(format!("tegmen reports: {}", observer.err.text().trim()).into());
    }
    let text = observer.out.text();
    let count = |line: &str| {
        let line: Value = serde_json::from_str(line).ok()?;
        line["payload_text"].as_str()?.parse::<u32>().ok()
    };
    let counts: Vec<u32> = text.lines().filter_map(count).collect();
    match counts.len() == 4 && counts.is_sorted_by(|one, next| one < next) {
        true => Ok(()),
        false => Err(format!("the counts were {counts:?}").into()),
    }
}

/// Checks that `tegmen probe` finds no missing feature of the server, and that the list of resources contains `link`.
pub(crate) fn probe(scene: &Scene, server: SocketAddr, psk: &Psk, link: &str) -> Check {
    let uri = format!("coaps://{server}");
    let mut process = scene.tegmen(&["probe", &uri, "--identity", &psk.identity, "--key", &psk.hex(), "--json"])?;
    process.await_end()?;
    let text = process.out.text();
    let found: Value = serde_json::from_str(&text).map_err(|_| format!("it printed {text:?}"))?;
    let agreed = found["cipher_suite"] == "TLS_PSK_WITH_AES_128_CCM_8" && found["version"] == "DTLS 1.2";
    let all = ["established", "extended_master_secret", "renegotiation_info", "serves_minimal"];
    let missing = all.into_iter().find(|name| found[*name] != true);
    let cookie = found["cookie_bytes"].as_u64().is_some_and(|len| len > 0);
    let lists = found["resources"].as_str().is_some_and(|links| links.contains(link));
    // GnuTLS gives a session id even if it stores no sessions.
    let found_nothing_else = |findings: &Vec<Value>| findings.iter().all(|finding| *finding == NOT_RESUMED);
    let lacks_nothing = found["findings"].as_array().is_some_and(found_nothing_else);
    match missing {
        Some(name) => Err(format!("{name} is {}", found[name]).into()),
        None if agreed && cookie && lists && lacks_nothing && found["ping_ms"].is_number() => Ok(()),
        None => Err(format!("it found {text}").into()),
    }
}

/// A finding of `tegmen probe` that is not counted as a missing feature of the server.
const NOT_RESUMED: &str = "it gave something to resume the session with, and did not take it";

/// Checks the answer of the server to a record size limit that `tegmen probe` offers. The server's extension `name`
/// must contain `expected`.
pub(crate) fn probe_record_size(scene: &Scene, server: SocketAddr, limit: &str, name: &str, expected: u64) -> Check {
    let (uri, psk) = (format!("coaps://{server}"), Psk::usual());
    let key = ["--identity", &psk.identity, "--key", &psk.hex(), "--json", "--timeout", "1"];
    let mut process = scene.tegmen(&[&["probe", &uri, "--record-size-limit", limit][..], &key].concat())?;
    process.await_end()?;
    let text = process.out.text();
    let found: Value = serde_json::from_str(&text).map_err(|_| format!("it printed {text:?}"))?;
    match found["established"] == true && found[name] == expected {
        true => Ok(()),
        false => Err(format!("{name} is {}, not {expected}: {text}", found[name]).into()),
    }
}

/// Checks that the error names the two likely causes of a failed handshake, because the client cannot know which of
/// them applies. If the server did not answer, the two causes are: the server is too busy, or identity and key do not
/// match. If the server sent an alert, the two causes are: the server does not know the identity, or the server has
/// another key.
pub(crate) fn names_identity_and_key(failure: &str) -> Check {
    let both = (failure.contains("too busy") && failure.contains("Compare identity and key"))
        || (failure.contains("does not know the identity") && failure.contains("has another key"));
    if both { Ok(()) } else { Err(format!("the error does not name both possibilities: {}", failure.trim()).into()) }
}

/// A client of Tegmen's library, with its own event loop.
pub(crate) struct Library {
    runtime: tokio::runtime::Runtime,
    session: Session,
}

impl Library {
    pub(crate) fn connect(address: SocketAddr, psk: Option<&Psk>, mtu: Option<u16>) -> Result<Self, String> {
        Self::connect_with(address, psk, |dtls| dtls.mtu = mtu.unwrap_or(dtls.mtu))
    }

    pub(crate) fn connect_with(
        address: SocketAddr,
        psk: Option<&Psk>,
        set: impl FnOnce(&mut Config),
    ) -> Result<Self, String> {
        Self::connect_as(address, psk, |config| set(&mut config.dtls))
    }

    pub(crate) fn connect_as(
        address: SocketAddr,
        psk: Option<&Psk>,
        set: impl FnOnce(&mut ClientConfig),
    ) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let key =
            psk.map(|psk| ClientKey { identity: psk.identity.clone(), key: zeroize::Zeroizing::new(psk.key.clone()) });
        let scheme = if psk.is_some() { Scheme::Coaps } else { Scheme::Coap };
        let mut config = ClientConfig::default();
        config.trust.key = key;
        config.coap.timeout = Duration::from_secs(5);
        config.dtls.handshake_timeout = Duration::from_secs(8);
        set(&mut config);
        let session = runtime.block_on(Session::connect_to(address, scheme, config));
        Ok(Self { session: session.map_err(|error| error.to_string())?, runtime })
    }

    pub(crate) fn request(&self, method: Code, path: &str, payload: &[u8]) -> Result<Response, ClientError> {
        self.runtime.block_on(self.session.request(method, path).payload(payload).into_future())
    }

    /// Sends PUTs with the payloads 0, 1 and 2 to `/question`. The answers must be A, B and C. Calls `before` before
    /// each request.
    pub(crate) fn ask_thrice(&self, before: impl Fn(u8)) -> Check {
        for number in 0..3u8 {
            before(number);
            let reply = self.request(Code::PUT, "question", &[b'0' + number]).map_err(|error| error.to_string())?;
            if (reply.code, reply.payload.as_slice()) != (Code::CHANGED, &[b'A' + number]) {
                return Err(format!("answer {number} was {} {:?}", reply.code, reply.payload).into());
            }
        }
        Ok(())
    }

    pub(crate) fn is_resumed(&self) -> bool {
        self.session.is_resumed()
    }

    pub(crate) fn connection_ids(&self) -> Option<ConnectionIds> {
        self.session.connection_ids()
    }

    pub(crate) fn close(self) {
        self.session.close();
    }
}
