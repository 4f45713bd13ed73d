//! Motes: the images of the Blink example, which run on an emulated Cortex-M3. `tegmen bridge` connects the motes to
//! the peers. One image is a client that sends a PUT every second, and the other image is a server that counts the
//! PUTs.

use crate::cell::{Cell, Check, Role, Scene, Trouble, holds};
use crate::libcoap::{self, Build};
use crate::openssl;
use crate::ours::{Bridge, Psk, Served, ask};
use crate::session::Plaintext as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

/// Returns the first missing tool, and the package that contains it.
pub(crate) fn missing_tool() -> Option<(&'static str, &'static str)> {
    let tools = [
        (RUSTC, "rustc-web"),
        (CARGO, "cargo-web"),
        ("/usr/lib/rustlib/src/rust/library/core/src/lib.rs", "rust-web-src"),
        ("/usr/bin/arm-none-eabi-ld", "binutils-arm-none-eabi"),
        ("/usr/bin/qemu-system-arm", "qemu-system-arm"),
    ];
    tools.into_iter().find(|(file, _)| !Path::new(file).exists())
}

/// Returns one [`Cell`] (a row of the result table) for each scenario with a mote.
pub(crate) fn cells(images: &Arc<Images>) -> Vec<Cell> {
    let openssl = openssl::version().unwrap_or_default();
    let libcoap = libcoap::version().unwrap_or_default();
    let tegmen = env!("CARGO_PKG_VERSION");
    let cell = |peer: &str, version: &str, role, scenario: &str, play: fn(&Scene, &Path) -> Check| {
        let images = images.clone();
        // A peer that is a client connects to the mote that is a server.
        let name = if role == Role::Client { "blink_server" } else { "blink_client" };
        Cell::new(peer, version, role, scenario, move |scene| {
            let image = images.image(name)?;
            play(&scene.with_new_deadline(), &image)
        })
    };
    let (for_client, for_server) =
        ("mote blink_client: handshake, three blinks", "mote blink_server: handshake, blinks");
    vec![
        cell(openssl::PEER, &openssl, Role::Server, for_client, openssl_serves),
        cell(&Build::OpenSsl.peer(), &libcoap, Role::Server, for_client, |scene, image| {
            libcoap_serves(scene, image, Build::OpenSsl)
        }),
        cell(&Build::GnuTls.peer(), &libcoap, Role::Server, for_client, |scene, image| {
            libcoap_serves(scene, image, Build::GnuTls)
        }),
        cell("tegmen", tegmen, Role::Server, for_client, tegmen_serves),
        cell(openssl::PEER, &openssl, Role::Client, for_server, openssl_asks),
        cell(&Build::OpenSsl.peer(), &libcoap, Role::Client, for_server, |scene, image| {
            libcoap_asks(scene, image, Build::OpenSsl)
        }),
        cell(&Build::GnuTls.peer(), &libcoap, Role::Client, for_server, |scene, image| {
            libcoap_asks(scene, image, Build::GnuTls)
        }),
        cell("tegmen", tegmen, Role::Client, for_server, tegmen_asks),
        cell(openssl::PEER, &openssl, Role::Client, "mote blink_server: wrong key, unknown identity", mote_refuses),
        cell("OpenSSL, tegmen", &openssl, Role::Client, "mote blink_server: two peers at once", two_ask),
        cell("tegmen mote", tegmen, Role::Client, "mote to mote", {
            // This scenario needs both images, which are in one directory.
            |scene, server| mote_asks_mote(scene, server, &server.with_file_name("blink_client"))
        }),
    ]
}

/// The images of the motes, which are built once.
pub(crate) struct Images {
    target: PathBuf,
    built: OnceLock<Result<PathBuf, String>>,
}

impl Images {
    pub(crate) fn new(target: &Path) -> Arc<Self> {
        Arc::new(Self { target: target.join("interop-firmware"), built: OnceLock::new() })
    }

    /// Builds the images in a thread while scenarios without motes run, so that no scenario waits long for the images.
    pub(crate) fn build_ahead(self: Arc<Self>) {
        std::thread::spawn(move || self.image(""));
    }

    /// Returns the path of an image.
    pub(crate) fn image(&self, name: &str) -> Result<PathBuf, Trouble> {
        Ok(self.built.get_or_init(|| self.build()).clone()?.join(name))
    }

    fn build(&self) -> Result<PathBuf, String> {
        let mut cargo = Command::new(CARGO);
        cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../firmware"));
        cargo.args(["build", "--release", "--quiet", "--locked", "--bin", "blink_client", "--bin", "blink_server"]);
        cargo.args(["--bin", "publisher"]);
        cargo.env("RUSTC", RUSTC).env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_DIR", &self.target);
        for name in CALLER {
            cargo.env_remove(name);
        }
        let output = cargo.output().map_err(|error| format!("{CARGO}: {error}"))?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("the images do not build: {}", errors.lines().next().unwrap_or_default()));
        }
        Ok(self.target.join("thumbv7m-none-eabi/release"))
    }
}

/// Environment variables that may be set for the build of this program. They would change the images, so they are
/// removed.
const CALLER: [&str; 6] = [
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_PROFILE_RELEASE_LTO",
    "RUSTC_WRAPPER",
    "RUSTUP_TOOLCHAIN",
];
const RUSTC: &str = "/usr/bin/rustc";
const CARGO: &str = "/usr/bin/cargo";

// --- blink_client and its servers ---

/// Checks that the mote has processed each answer: the next PUT of the mote must be a new request, not the old request
/// again.
fn openssl_serves(scene: &Scene, image: &Path) -> Check {
    let mut server = openssl::Server::start(scene, &Psk::usual(), &["-listen"])?;
    let _bridge = Bridge::to_client(scene, image, server.address)?;
    let mut known = Vec::new();
    for count in 1..=3 {
        let request = server.request(3, "blink", &[], 2)?;
        if known.contains(&request) {
            return Err("the mote asks again for what was answered".into());
        }
        server.answer(&request, 0x44, &[count])?;
        known.push(request);
    }
    holds(&server.session(scene)?, &["Cipher    : PSK-AES128-CCM8", "Extended master secret: yes"])
}

fn libcoap_serves(scene: &Scene, image: &Path, build: Build) -> Check {
    let server = libcoap::Server::start(scene, build)?;
    let _bridge = Bridge::to_client(scene, image, server.address)?;
    // It creates the resource at the first blink and changes it at the others.
    let mut from = 0;
    for answer in ["t:ACK c:2.01 i:0000", "t:ACK c:2.04 i:0001", "t:ACK c:2.04 i:0002"] {
        from = server.process.await_output(answer, from)?;
    }
    Ok(())
}

fn tegmen_serves(scene: &Scene, image: &Path) -> Check {
    let served = Served::start(scene, &Psk::usual())?;
    let _bridge = Bridge::to_client(scene, image, (std::net::Ipv4Addr::LOCALHOST, served.port).into())?;
    let blink = "(Client_identity) PUT /blink: 2.04";
    let mut from = 0;
    for _ in 0..3 {
        from = served.process.await_output(blink, from)? + blink.len();
    }
    Ok(())
}

// --- blink_server and its clients ---

/// Sends a PUT to `/blink` with the Message ID `id`, and checks that the answer contains the number `count`.
fn blink(client: &mut openssl::Client, id: u8, count: u8) -> Result<(), String> {
    let put = [b"\x44\x03\x00", &[id][..], b"abcd\xb5blink"].concat();
    let changed = [b"\x64\x44\x00", &[id][..], b"abcd\xff", &[count]].concat();
    client.exchange(&put, &changed)
}

fn openssl_asks(scene: &Scene, image: &Path) -> Check {
    let bridge = Bridge::to_server(scene, image)?;
    let mut client = openssl::Client::start(scene, "127.0.0.1", bridge.port, &Psk::usual(), &[])?;
    holds(&client.established()?, &["Cipher is PSK-AES128-CCM8", "Extended master secret: yes"])?;
    for count in 1..=3 {
        blink(&mut client, count, count)?;
    }
    // The last Message ID again: the same answer, and no fourth blink.
    blink(&mut client, 3, 3)?;
    Ok(client.exchange(b"\x44\x01\x00\x10abcd\xb5blink", b"\x64\x45\x00\x10abcd\xff\x03")?)
}

fn libcoap_asks(scene: &Scene, image: &Path, build: Build) -> Check {
    let bridge = Bridge::to_server(scene, image)?;
    for count in ["\x01", "\x02"] {
        let key = ["-u", "Client_identity", "-k", "secretPSK", "-B", "15", "-v", "7", "-m", "put", "-e", "1"];
        let mut client = scene.start(&build.client(), &[&key[..], &[&bridge.uri()]].concat())?;
        client.await_end()?;
        libcoap::printed(&client, "c:2.04")?;
        libcoap::printed(&client, count)?;
    }
    Ok(())
}

fn tegmen_asks(scene: &Scene, image: &Path) -> Check {
    let bridge = Bridge::to_server(scene, image)?;
    let uri = bridge.uri();
    // A blink is a PUT without a payload.
    let put = ["put", &uri, ""];
    for (words, count) in [(&put[..], "\x01"), (&put, "\x02"), (&["get", &uri], "\x02")] {
        let answer = ask(scene, words, Some(&Psk::usual()))?;
        if answer.payload != count {
            let method = words[0];
            return Err(format!("{method} brought {:?}, not {count:?}", answer.payload).into());
        }
    }
    Ok(())
}

fn mote_refuses(scene: &Scene, image: &Path) -> Check {
    let bridge = Bridge::to_server(scene, image)?;
    for psk in [Psk::with_key("wrongPSK"), Psk::with_identity("nobody")] {
        let mut client = openssl::Client::start(scene, "127.0.0.1", bridge.port, &psk, &[])?;
        client.process.await_error("alert decrypt error", 0)?;
        client.process.await_end()?;
    }
    let mut client = openssl::Client::start(scene, "127.0.0.1", bridge.port, &Psk::usual(), &[])?;
    client.established()?;
    Ok(blink(&mut client, 1, 1)?)
}

/// Checks one mote with two peers. The session of the first peer stays open while the second peer opens a session. The
/// mote counts the PUTs of both peers.
fn two_ask(scene: &Scene, image: &Path) -> Check {
    let bridge = Bridge::to_server(scene, image)?;
    let mut first = openssl::Client::start(scene, "127.0.0.1", bridge.port, &Psk::usual(), &[])?;
    first.established()?;
    blink(&mut first, 1, 1)?;
    let mut second = openssl::Client::start(scene, "127.0.0.1", bridge.port, &Psk::usual(), &[])?;
    second.established()?;
    blink(&mut second, 1, 2)?;
    blink(&mut first, 2, 3)?;
    blink(&mut second, 2, 4)?;
    let answer = ask(scene, &["put", &bridge.uri(), ""], Some(&Psk::usual()))?;
    if answer.payload != "\x05" {
        return Err(format!("the third peer's blink was counted as {:?}", answer.payload).into());
    }
    Ok(blink(&mut first, 3, 6)?)
}

/// Checks two motes, each with a bridge, and UDP between the bridges. Another client then reads the count from the mote
/// that is the server.
fn mote_asks_mote(scene: &Scene, server: &Path, client: &Path) -> Check {
    let server = Bridge::to_server(scene, server)?;
    let client = Bridge::to_client(scene, client, (std::net::Ipv4Addr::LOCALHOST, server.port).into())?;
    loop {
        std::thread::sleep(std::time::Duration::from_millis(500));
        let answer = ask(scene, &["get", &server.uri()], Some(&Psk::usual()))?;
        if answer.payload.as_bytes().first().is_some_and(|count| *count >= 3) {
            return Ok(());
        }
        if std::time::Instant::now() > scene.deadline {
            let printed = client.process.out.text();
            return Err(format!("the count is {:?}; the bridge printed {printed}", answer.payload).into());
        }
    }
}
