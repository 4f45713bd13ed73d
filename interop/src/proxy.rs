//! Proxies: third-party clients use Tegmen's proxy, and Tegmen's client uses the proxies of aiocoap and Californium.

mod deterministic;

use crate::capture::Capture;
use crate::cell::{Cell, Check, LOOPBACK, Role, Scene, Trouble, free_port};
use crate::libcoap::{self, Build};
use crate::objects::{self, OURS, THEIRS};
use crate::ours::{Psk, Served, ask, observe_counting};
use crate::peers::{self, Built, Places};
use crate::plain::{big, is};
use crate::process::Process;
use std::net::SocketAddr;
use std::sync::Arc;
use tegmen::coap::OptionNumber;

/// Returns one [`Cell`] (a row of the result table) for each scenario with a proxy, and the programs that must be built
/// only for these scenarios.
pub(crate) fn all(places: &Places, aiocoap: &Arc<Built>, java: &Arc<Built>) -> (Vec<Cell>, Vec<Arc<Built>>) {
    let theirs = places.java_example("californium-proxy", peers::source("californium-proxy/Proxy.java"));
    let mut cells = cells(aiocoap, java);
    let program = Arc::clone(&theirs);
    let row = "proxy: GET from its cache, PUT, GET";
    cells.push(Cell::new("Californium", "3.9.1", Role::Server, row, move |scene| {
        program.ready()?;
        through_that_of_californium(&scene.with_new_deadline(), &program)
    }));
    let (of_groups, members) = deterministic::all(places);
    cells.extend(of_groups);
    (cells, vec![theirs, members])
}

fn cells(aiocoap: &Arc<Built>, java: &Arc<Built>) -> Vec<Cell> {
    let mut cells = Vec::new();
    let mut add = |scenario: &str, play: fn(&Scene, &Built) -> Check| {
        let program = Arc::clone(java);
        cells.push(Cell::new("Californium", "3.14.0", Role::Client, &format!("proxy: {scenario}"), move |scene| {
            program.ready()?;
            play(&scene.with_new_deadline(), &program)
        }));
    };
    add("GET from the cache, PUT, GET", californium_methods);
    add("GET and PUT over coaps", californium_over_coaps);
    add("block-wise, 5000 bytes both ways", californium_blocks);
    add("observe", californium_observes);
    let mut add = |role, scenario: &str, play: fn(&Scene, &Built) -> Check| {
        let program = Arc::clone(aiocoap);
        cells.push(Cell::new("aiocoap", "0.4.17", role, &format!("proxy: {scenario}"), move |scene| {
            program.ready()?;
            play(&scene.with_new_deadline(), &program)
        }));
    };
    add(Role::Client, "GET from the cache, PUT, GET", aiocoap_methods);
    add(Role::Client, "block-wise, 5000 bytes both ways", aiocoap_blocks);
    add(Role::Client, "observe", aiocoap_observes);
    add(Role::Client, "observe with OSCORE through ours", aiocoap_observes_with_oscore);
    add(Role::Client, "observe with OSCORE through ours, by Uri-Host", aiocoap_observes_a_virtual_host);
    add(Role::Server, "OSCORE through ours, also in blocks", oscore_through_ours);
    add(Role::Server, "observe with OSCORE through ours", observe_with_oscore);
    add(Role::Server, "GET, PUT through its", through_that_of_aiocoap);
    let Some(version) = libcoap::version() else { return cells };
    let mut add = |build: Build, scenario: &str, play: fn(&Scene, Build) -> Check| {
        let scenario = format!("proxy: {scenario}");
        cells.push(Cell::new(&build.peer(), &version, Role::Client, &scenario, move |scene| play(scene, build)));
    };
    for build in [Build::NoTls, Build::OpenSsl] {
        add(build, "GET from the cache, PUT, GET", libcoap_methods);
        add(build, "block-wise, 5000 bytes both ways", libcoap_blocks);
        add(build, "observe", libcoap_observes);
    }
    add(Build::NoTls, "of others' origin", libcoap_both);
    cells
}

/// Tegmen's proxy, and the relay between the proxy and the origin.
pub(crate) struct Proxied {
    _served: Served,
    port: u16,
    address: SocketAddr,
    origin: Capture,
}

impl Proxied {
    /// Starts a proxy in front of the origin at `address`.
    fn before(scene: &Scene, address: SocketAddr) -> Result<Self, String> {
        Self::with(scene, address, &[])
    }

    /// Starts a proxy as [`Self::before`] does, with the additional options `more`.
    pub(crate) fn with(scene: &Scene, address: SocketAddr, more: &[&str]) -> Result<Self, String> {
        let origin = Capture::start(address)?;
        let options = [&["--proxy-to", "coap://127.0.0.1:*"], more].concat();
        let served = Served::start_with(scene, &Psk::usual(), &options)?;
        Ok(Self { port: served.port, _served: served, address, origin })
    }

    fn plain(&self) -> String {
        format!("coap://127.0.0.1:{}", self.port + 1)
    }

    /// Returns the URI of a resource of the origin.
    pub(crate) fn uri(&self, path: &str) -> String {
        format!("coap://127.0.0.1:{}/{path}", self.origin.port)
    }

    /// Returns the URI with which a client requests a resource directly from the origin, without the proxy and the
    /// relay.
    fn direct(&self, path: &str) -> String {
        format!("coap://{}/{path}", self.address)
    }

    pub(crate) fn came(&self, expected: usize) -> Check {
        came(&self.origin, expected)
    }
}

/// Returns the number of requests that arrived at the origin.
fn requests(origin: &Capture) -> usize {
    let is_request =
        |datagram: &crate::capture::Datagram| datagram.bytes.get(1).is_some_and(|code| (1..=7).contains(code));
    origin.datagrams().iter().filter(|datagram| is_request(datagram)).count()
}

fn came(origin: &Capture, expected: usize) -> Check {
    match requests(origin) {
        came if came == expected => Ok(()),
        came => Err(format!("{came} requests came to the origin, not {expected}").into()),
    }
}

/// Starts a server of aiocoap.
pub(crate) fn origin(scene: &Scene, peer: &Built) -> Result<(Process, SocketAddr), String> {
    let address = SocketAddr::new(LOOPBACK, free_port()?);
    let mut command = peer.command()?;
    command.args(["coap-server", &address.ip().to_string(), &address.port().to_string()]);
    let process = scene.start_command(command)?;
    process.await_output("listening\n", 0)?;
    Ok((process, address))
}

/// Checks the output of a client that sends an unprotected request to Tegmen's proxy.
fn asks(scene: &Scene, peer: &Built, proxied: &Proxied, words: &[&str], expected: &str) -> Check {
    asks_at(scene, peer, &proxied.plain(), words, expected)
}

fn asks_at(scene: &Scene, peer: &Built, proxy: &str, words: &[&str], expected: &str) -> Check {
    let mut command = peer.command()?;
    command.args(["proxied-client", proxy]).args(words);
    let mut process = scene.start_command(command)?;
    process.await_end()?;
    let printed = process.out.text();
    match printed.trim() == expected {
        true => Ok(()),
        false => Err(format!("the client printed {printed:?}, not {expected:?}: {}", process.err.text()).into()),
    }
}

fn aiocoap_methods(scene: &Scene, peer: &Built) -> Check {
    let (_origin, address) = origin(scene, peer)?;
    let proxied = Proxied::before(scene, address)?;
    let uri = proxied.uri("v");
    asks(scene, peer, &proxied, &["get", &uri], "2.05 hello")?;
    asks(scene, peer, &proxied, &["get", &uri], "2.05 hello")?;
    proxied.came(1)?;
    asks(scene, peer, &proxied, &["put", &uri, "new"], "2.04")?;
    asks(scene, peer, &proxied, &["get", &uri], "2.05 new")?;
    proxied.came(3)
}

fn aiocoap_blocks(scene: &Scene, peer: &Built) -> Check {
    let (server, address) = origin(scene, peer)?;
    let proxied = Proxied::before(scene, address)?;
    let uri = proxied.uri("big");
    asks(scene, peer, &proxied, &["get", &uri], "2.05 BIG")?;
    asks(scene, peer, &proxied, &["put", &uri, "BIG"], "2.04")?;
    server.await_output("took 5000 bytes\n", 0)?;
    Ok(())
}

fn californium_methods(scene: &Scene, peer: &Built) -> Check {
    let (_origin, proxied) = behind(scene, &[])?;
    let uri = proxied.uri("v");
    asks(scene, peer, &proxied, &["get", &uri], "2.05 hello")?;
    asks(scene, peer, &proxied, &["get", &uri], "2.05 hello")?;
    proxied.came(1)?;
    asks(scene, peer, &proxied, &["put", &uri, "new"], "2.04")?;
    asks(scene, peer, &proxied, &["get", &uri], "2.05 new")?;
    proxied.came(3)
}

fn californium_over_coaps(scene: &Scene, peer: &Built) -> Check {
    let (_origin, proxied) = behind(scene, &[])?;
    let (uri, psk) = (proxied.uri("v"), Psk::usual());
    let proxy = format!("coaps://127.0.0.1:{}", proxied.port);
    asks_at(scene, peer, &proxy, &["put", &uri, "new", &psk.identity, &psk.hex()], "2.04")?;
    asks_at(scene, peer, &proxy, &["get", &uri, "", &psk.identity, &psk.hex()], "2.05 new")
}

fn californium_blocks(scene: &Scene, peer: &Built) -> Check {
    let (_origin, proxied) = behind(scene, &[])?;
    let uri = proxied.uri("v");
    asks(scene, peer, &proxied, &["put", &uri, "BIG"], "2.04")?;
    is(scene, &["get", &proxied.direct("v")], "2.05", &big())?;
    asks(scene, peer, &proxied, &["get", &uri], "2.05 BIG")
}

fn californium_observes(scene: &Scene, peer: &Built) -> Check {
    let (_origin, proxied) = behind(scene, &[])?;
    let (uri, proxy, direct) = (proxied.uri("v"), proxied.plain(), proxied.direct("v"));
    let mut command = peer.command()?;
    command.args(["proxied-client", &proxy, "observe", &uri]);
    let observer = scene.start_command(command)?;
    let mut from = observer.await_output("2.05 hello\n", 0)?;
    for value in ["one", "two", "three"] {
        is(scene, &["put", &direct, value], "2.04", "")?;
        from = observer.await_output(format!("2.05 {value}\n"), from)?;
    }
    observer.await_output("cancelled\n", from)?;
    Ok(())
}

fn aiocoap_observes(scene: &Scene, peer: &Built) -> Check {
    let (server, address) = origin(scene, peer)?;
    let proxied = Proxied::before(scene, address)?;
    let (uri, proxy) = (proxied.uri("count"), proxied.plain());
    let mut clients = Vec::new();
    for _ in 0..2 {
        let mut command = peer.command()?;
        command.args(["proxied-client", &proxy, "observe", &uri]);
        clients.push(scene.start_command(command)?);
    }
    for client in &clients {
        client.await_output("cancelled\n", 0)?;
    }
    match server.out.text().contains("observers 2") {
        true => Err("the proxy observes twice".into()),
        false => Ok(()),
    }
}

/// Starts a server of aiocoap with OSCORE, and Tegmen's proxy in front of it.
fn behind_with_oscore(scene: &Scene, peer: &Built) -> Result<(Process, Proxied), Trouble> {
    objects::ends(scene, "aiocoap", &[])?;
    let address = SocketAddr::new(LOOPBACK, free_port()?);
    let mut command = peer.command()?;
    command.args(["oscore-server", THEIRS, &address.ip().to_string(), &address.port().to_string()]);
    let server = scene.start_command(command)?;
    server.await_output("listening\n", 0)?;
    Ok((server, Proxied::before(scene, address)?))
}

/// Checks that each message at the origin, except an Empty message, has an OSCORE option.
fn is_protected(origin: &Capture) -> Check {
    let is_protected = |datagram: &crate::capture::Datagram| {
        let message = tegmen::coap::MessageRef::parse(&datagram.bytes);
        message.is_ok_and(|message| {
            message.code() == tegmen::coap::Code::EMPTY || message.option(OptionNumber::OSCORE).is_some()
        })
    };
    match origin.datagrams().iter().all(is_protected) {
        true => Ok(()),
        false => Err("something went to the origin in clear".into()),
    }
}

/// Checks that aiocoap, with OSCORE, observes a resource of a Tegmen server through the proxy. The test changes the
/// resource with requests that do not pass through the proxy.
fn aiocoap_observes_with_oscore(scene: &Scene, peer: &Built) -> Check {
    objects::ends(scene, "aiocoap", &[])?;
    let port = free_port()?;
    let _origin = objects::serve(scene, port)?;
    let proxied = Proxied::before(scene, SocketAddr::new(LOOPBACK, port))?;
    observes_writes(
        scene,
        peer,
        port,
        &["oscore-proxied-client", &proxied.plain(), THEIRS, "observe", &proxied.uri("v"), "4"],
    )?;
    is_protected(&proxied.origin)
}

/// Starts a client with the arguments `words`. Checks that it observes a resource of Tegmen's server at `port` while
/// the test writes the resource.
fn observes_writes(scene: &Scene, peer: &Built, port: u16, words: &[&str]) -> Check {
    let mut command = peer.command()?;
    command.args(words);
    let observer = scene.start_command(command)?;
    let mut from = observer.await_output("2.05 hello\n", 0)?;
    for value in ["one", "two", "three"] {
        objects::write(scene, port, value)?;
        from = observer.await_output(format!("2.05 {value}\n"), from)?;
    }
    Ok(())
}

/// Checks an observation through a reverse proxy. Uri-Host, which OSCORE does not encrypt, selects the origin.
fn aiocoap_observes_a_virtual_host(scene: &Scene, peer: &Built) -> Check {
    objects::ends(scene, "aiocoap", &[])?;
    let port = free_port()?;
    let _server = objects::serve(scene, port)?;
    let origin = Capture::start(SocketAddr::new(LOOPBACK, port))?;
    let host = format!("attic.example=coap://127.0.0.1:{}", origin.port);
    let served = Served::start_with(scene, &Psk::usual(), &["--proxy-host", &host])?;
    let uri = format!("coap://127.0.0.1:{}/v", served.port + 1);
    observes_writes(scene, peer, port, &["oscore-host-client", "attic.example", THEIRS, "observe", &uri, "4"])?;
    is_protected(&origin)
}

/// Checks that Tegmen's client observes a counter of aiocoap's server. When the client cancels the observation, the
/// server must report that it has no observers.
fn observe_with_oscore(scene: &Scene, peer: &Built) -> Check {
    let (server, proxied) = behind_with_oscore(scene, peer)?;
    observe_counting(scene, &proxied.uri("count"), &["--proxy", &proxied.plain(), "--oscore", OURS])?;
    server.await_output("observers 0", 0)?;
    is_protected(&proxied.origin)
}

/// Checks requests with OSCORE from Tegmen's client to aiocoap's server. Tegmen's proxy between them cannot read the
/// content.
fn oscore_through_ours(scene: &Scene, peer: &Built) -> Check {
    let (_server, proxied) = behind_with_oscore(scene, peer)?;
    let proxy = proxied.plain();
    let through = ["--proxy", &proxy, "--oscore", OURS];
    let asks = |words: &[&str], code: &str, payload: &str| is(scene, &[words, &through].concat(), code, payload);
    asks(&["get", &proxied.uri("v")], "2.05", "hello")?;
    asks(&["put", &proxied.uri("v"), "new"], "2.04", "")?;
    asks(&["get", &proxied.uri("v")], "2.05", "new")?;
    asks(&["get", &proxied.uri("big")], "2.05", &big())?;
    let file = scene.file("big", big())?;
    asks(&["put", &proxied.uri("big"), "--file", &file.to_string_lossy()], "2.04", "")?;
    is_protected(&proxied.origin)
}

/// Checks requests of Tegmen's client through the forward proxy of aiocoap. No scenario observes a resource through
/// this proxy, because aiocoap then fails with the assertion "Remote has no netloc set".
fn through_that_of_aiocoap(scene: &Scene, peer: &Built) -> Check {
    let address = SocketAddr::new(LOOPBACK, free_port()?);
    let mut command = peer.command()?;
    command.args(["forward-proxy", &address.ip().to_string(), &address.port().to_string()]);
    let process = scene.start_command(command)?;
    process.await_output("listening\n", 0)?;
    let (_origin, at) = origin(scene, peer)?;
    let proxy = format!("coap://{address}");
    let uri = |path: &str| format!("coap://{at}/{path}");
    is(scene, &["get", &uri("v"), "--proxy", &proxy], "2.05", "hello")?;
    is(scene, &["put", &uri("v"), "new", "--proxy", &proxy], "2.04", "")?;
    is(scene, &["get", &uri("v"), "--proxy", &proxy], "2.05", "new")
}

/// Checks requests of Tegmen's client to a Tegmen server through the reverse proxy of Californium. The proxy stores the
/// response.
fn through_that_of_californium(scene: &Scene, peer: &Built) -> Check {
    let (_origin, address) = serve(scene, &[])?;
    let origin = Capture::start(address)?;
    let port = free_port()?;
    let mut command = peer.command()?;
    command.args([&port.to_string(), "v", &format!("coap://127.0.0.1:{}/v", origin.port)]);
    let process = scene.start_command(command)?;
    process.await_output("listening\n", 0)?;
    let uri = format!("coap://127.0.0.1:{port}/v");
    is(scene, &["get", &uri], "2.05", "hello")?;
    is(scene, &["get", &uri], "2.05", "hello")?;
    came(&origin, 1)?;
    is(scene, &["put", &uri, "new"], "2.04", "")?;
    is(scene, &["get", &uri], "2.05", "new")
}

/// Runs libcoap's client through Tegmen's proxy. Returns the code and the payload of each response that the client
/// logs.
fn libcoap(scene: &Scene, build: Build, proxied: &Proxied, words: &[&str]) -> Result<Vec<String>, String> {
    let secure = format!("coaps://127.0.0.1:{}", proxied.port);
    let psk = Psk::usual();
    let key = String::from_utf8_lossy(&psk.key).into_owned();
    let to = match build {
        Build::NoTls => vec!["-P".to_owned(), proxied.plain()],
        _ => ["-u", &psk.identity, "-k", &key, "-P", &secure].map(str::to_owned).to_vec(),
    };
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    let mut process = scene.start(&build.client(), &[&["-B", "15", "-v", "7"], &to[..], words].concat())?;
    process.await_end()?;
    let printed = [process.out.text(), process.err.text()].concat();
    Ok(libcoap::responses(&printed))
}

fn libcoap_expects(scene: &Scene, build: Build, proxied: &Proxied, words: &[&str], expected: &[&str]) -> Check {
    let responses = libcoap(scene, build, proxied, words)?;
    match responses == expected {
        true => Ok(()),
        false => Err(format!("the client saw {responses:?}, not {expected:?}").into()),
    }
}

/// Starts a Tegmen server, and Tegmen's proxy in front of it.
fn behind(scene: &Scene, more: &[&str]) -> Result<(Process, Proxied), String> {
    let (process, address) = serve(scene, more)?;
    Ok((process, Proxied::before(scene, address)?))
}

/// Starts a Tegmen server without protection.
fn serve(scene: &Scene, more: &[&str]) -> Result<(Process, SocketAddr), String> {
    let port = free_port()?;
    let plain = port.to_string();
    let words =
        ["serve", "--listen", "127.0.0.1", "--plain", "--plain-port", &plain, "--no-secure", "--value", "/v=hello"];
    let process = scene.tegmen(&[&words[..], more].concat())?;
    process.await_output("listening at coap://", 0)?;
    Ok((process, SocketAddr::new(LOOPBACK, port)))
}

fn libcoap_methods(scene: &Scene, build: Build) -> Check {
    let (_origin, proxied) = behind(scene, &[])?;
    let uri = proxied.uri("v");
    libcoap_expects(scene, build, &proxied, &[&uri], &["2.05 hello"])?;
    libcoap_expects(scene, build, &proxied, &[&uri], &["2.05 hello"])?;
    proxied.came(1)?;
    libcoap_expects(scene, build, &proxied, &["-m", "put", "-e", "new", &uri], &["2.04"])?;
    libcoap_expects(scene, build, &proxied, &[&uri], &["2.05 new"])?;
    proxied.came(3)
}

fn libcoap_blocks(scene: &Scene, build: Build) -> Check {
    let (_origin, proxied) = behind(scene, &[])?;
    let (file, uri) = (scene.file("big", big())?, proxied.uri("v"));
    libcoap(scene, build, &proxied, &["-m", "put", "-f", &file.to_string_lossy(), &uri])?;
    is(scene, &["get", &proxied.direct("v")], "2.05", &big())?;
    let got = scene.directory().join("got");
    libcoap(scene, build, &proxied, &["-o", &got.to_string_lossy(), &uri])?;
    let got = std::fs::read(got).map_err(|error| error.to_string())?;
    match got == big().into_bytes() {
        true => Ok(()),
        false => Err(format!("{} bytes came, or others", got.len()).into()),
    }
}

fn libcoap_observes(scene: &Scene, build: Build) -> Check {
    let (_origin, proxied) = behind(scene, &[])?;
    let uri = proxied.uri("v");
    std::thread::scope(|scope| {
        let observes = scope.spawn(|| libcoap(scene, build, &proxied, &["-s", "3", &uri]));
        while requests(&proxied.origin) == 0 {
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        std::thread::sleep(std::time::Duration::from_millis(500));
        ask(scene, &["put", &proxied.direct("v"), "new"], None)?;
        let seen = observes.join().map_err(|_| "the observer panicked".to_owned())??;
        match seen.starts_with(&["2.05 hello".to_owned(), "2.05 new".to_owned()]) {
            true => Ok(()),
            false => Err(format!("the observer saw {seen:?}").into()),
        }
    })
}

/// Checks requests of libcoap's client to libcoap's server through Tegmen's proxy.
fn libcoap_both(scene: &Scene, build: Build) -> Check {
    let server = libcoap::Server::start(scene, Build::NoTls)?;
    let proxied = Proxied::before(scene, server.address)?;
    let put = ["-m", "put", "-e", "proxied", &proxied.uri("example_data")];
    libcoap_expects(scene, build, &proxied, &put, &["2.01"])?;
    let uri = proxied.uri("example_data");
    libcoap_expects(scene, build, &proxied, &[&uri], &["2.05 proxied"])?;
    libcoap_expects(scene, build, &proxied, &[&uri], &["2.05 proxied"])?;
    proxied.came(2)
}
