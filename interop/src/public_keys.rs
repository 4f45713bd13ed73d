//! Tegmen's client and server in scenarios with public keys: certificates of a CA that `tegmen ca` creates, or raw
//! public keys.

use crate::capture::{Capture, Datagram};
use crate::cell::{Check, LOOPBACK, Scene, Trouble, holds};
use crate::hello::Hello;
use crate::ours::{Psk, Served, start_ask};
use crate::process::Process;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A cipher suite, with its registered name and its name for `--suites`.
#[derive(Clone, Copy)]
pub(crate) struct Suite {
    pub(crate) name: &'static str,
    pub(crate) ours: &'static str,
    /// True if certificates are signed with RSA.
    pub(crate) rsa: bool,
}

pub(crate) const ECDSA_CCM_8: Suite =
    Suite { name: "TLS_ECDHE_ECDSA_WITH_AES_128_CCM_8", ours: "ecdhe-ecdsa-ccm8", rsa: false };
pub(crate) const ECDSA_GCM: Suite =
    Suite { name: "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", ours: "ecdhe-ecdsa-gcm", rsa: false };
pub(crate) const RSA_GCM: Suite =
    Suite { name: "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", ours: "ecdhe-rsa-gcm", rsa: true };

/// The suites of scenarios with certificates of the client and of the server.
pub(crate) const MUTUAL: [(&str, Suite); 3] =
    [("mutual ECDSA, CCM_8", ECDSA_CCM_8), ("mutual ECDSA, GCM", ECDSA_GCM), ("mutual RSA, GCM", RSA_GCM)];
pub(crate) const RAW: &str = "raw public keys";

/// A scenario with a pre-shared key and a key agreement.
#[derive(Clone, Copy)]
pub(crate) struct EcdhePsk {
    pub(crate) scenario: &'static str,
    pub(crate) suite: Suite,
    /// Two spellings of the cipher of this scenario. If a peer has the suite, its name for the suite contains one of
    /// the two spellings.
    marks: [&'static str; 2],
}

pub(crate) const ECDHE_PSK_CCM_8: EcdhePsk = EcdhePsk {
    scenario: "ECDHE-PSK, CCM_8",
    suite: Suite { name: "TLS_ECDHE_PSK_WITH_AES_128_CCM_8_SHA256", ours: "ecdhe-psk-ccm8", rsa: false },
    marks: ["CCM_8", "CCM8"],
};
pub(crate) const ECDHE_PSK_CHACHA20: EcdhePsk = EcdhePsk {
    scenario: "ECDHE-PSK, ChaCha20-Poly1305",
    suite: Suite { name: "TLS_ECDHE_PSK_WITH_CHACHA20_POLY1305_SHA256", ours: "ecdhe-psk-chacha20", rsa: false },
    marks: ["CHACHA20", "ChaCha20"],
};

/// A suite with a pre-shared key alone, for peers that support no better suite.
pub(crate) const PSK_CBC: Suite = Suite { name: "TLS_PSK_WITH_AES_128_CBC_SHA256", ours: "psk-cbc", rsa: false };

/// A suite for peers that support no better suite. The client encrypts the premaster secret with the RSA key of the
/// server. The client and the server have certificates.
pub(crate) const RSA_CBC: Suite = Suite { name: "TLS_RSA_WITH_AES_128_CBC_SHA", ours: "rsa-cbc", rsa: true };

/// Order of encryption and MAC in records of [`PSK_CBC`] and [`RSA_CBC`].
#[derive(Clone, Copy)]
pub(crate) enum Cbc {
    EncryptThenMac,
    MacThenEncrypt,
}

impl Cbc {
    pub(crate) const fn scenario(self) -> &'static str {
        match self {
            Self::EncryptThenMac => "PSK, CBC, encrypt-then-MAC",
            Self::MacThenEncrypt => "PSK, CBC, MAC-then-encrypt",
        }
    }

    /// Returns the scenario of [`RSA_CBC`].
    pub(crate) const fn rsa_scenario(self) -> &'static str {
        match self {
            Self::EncryptThenMac => "mutual RSA key exchange, CBC, encrypt-then-MAC",
            Self::MacThenEncrypt => "mutual RSA key exchange, CBC, MAC-then-encrypt",
        }
    }

    /// Reads the ServerHello that the relay recorded. Checks that client and server agreed on `self`, the order of
    /// encryption and MAC: the ServerHello has the extension encrypt_then_mac only for [`Self::EncryptThenMac`].
    pub(crate) fn was_agreed(self, relay: &Capture) -> Check {
        relay.agreed(("encrypt_then_mac", 22), matches!(self, Self::EncryptThenMac))
    }
}

/// Options of `tegmen get` for its certificate and for the CA that it trusts.
pub(crate) const AS_DEVICE: [&str; 6] =
    ["--ca", "ca/ca.pem", "--cert", "ca/device1.pem", "--cert-key", "ca/device1.key"];
/// Options of `tegmen serve` for its certificate and for the CA of its clients.
pub(crate) const AS_SERVER: [&str; 6] =
    ["--cert", "ca/server.pem", "--cert-key", "ca/server.key", "--client-ca", "ca/ca.pem"];

/// Creates a CA in `ca`, with certificates of a server and of a client.
pub(crate) fn certificates(scene: &Scene, rsa: bool) -> Check {
    tegmen(scene, &["ca", "init", "ca", "--name", "Works CA"])?;
    let key: &[&str] = if rsa { &["--rsa"] } else { &[] };
    let issue = ["ca", "issue", "ca", "--name"];
    tegmen(scene, &[&issue[..], &["server", "--server", "--dns", "localhost", "--ip", "127.0.0.1"], key].concat())?;
    tegmen(scene, &[&issue[..], &["device1", "--client"], key].concat())
}

pub(crate) fn tegmen(scene: &Scene, words: &[&str]) -> Check {
    ends_well(scene.tegmen(words)?)
}

fn ends_well(mut process: Process) -> Check {
    match process.await_end()?.success() {
        true => Ok(()),
        false => Err(process.err.text().into()),
    }
}

/// The digests with which `tegmen` identifies raw public keys.
pub(crate) struct RawKeys {
    server: String,
    device: String,
}

impl RawKeys {
    /// Creates the keys of [`certificates`], and exports them in the formats that peers read. For the key `server` the
    /// files are `server.pub` (the public key in PEM), `server.pub.der` and `server.key.der` (the public and the
    /// private key in DER). The key `device1` has files in the same formats.
    pub(crate) fn new(scene: &Scene) -> Result<Self, Trouble> {
        certificates(scene, false)?;
        let exported = |name: &str| -> Result<String, Trouble> {
            let key = format!("ca/{name}.key");
            let forms: [(&str, &[&str]); 3] = [
                ("pub", &["pkey", "-pubout"]),
                ("pub.der", &["pkey", "-pubout", "-outform", "DER"]),
                ("key.der", &["pkcs8", "-topk8", "-nocrypt", "-outform", "DER"]),
            ];
            for (ending, form) in forms {
                let file = format!("{name}.{ending}");
                ends_well(scene.start("openssl", &[form, &["-in", &key, "-out", &file]].concat())?)?;
            }
            let mut shown = scene.tegmen(&["keys", "show", &key, "--json"])?;
            shown.await_end()?;
            let text: serde_json::Value = serde_json::from_str(&shown.out.text()).map_err(|error| error.to_string())?;
            let digest = text["public_key_digest"].as_str();
            Ok(digest.ok_or("tegmen keys show prints no digest")?.to_owned())
        };
        Ok(Self { server: exported("server")?, device: exported("device1")? })
    }

    /// Returns the options of `tegmen get` for its own key and for the server key that it trusts.
    pub(crate) fn device(&self) -> [&str; 4] {
        ["--cert-key", "ca/device1.key", "--server-key", &self.server]
    }

    /// Starts `tegmen serve` with the key of the server. The server accepts only the key of the device.
    pub(crate) fn serve(&self, scene: &Scene) -> Result<Served, String> {
        let named = format!("{}=device1", self.device);
        Served::start_with(scene, &Psk::usual(), &["--cert-key", "ca/server.key", "--client-key", &named])
    }
}

// --- peers without raw public keys ---

/// Reports that a server does not support raw public keys: its ServerHello does not name a certificate type, which
/// means X.509. Tegmen's client, which offered only a raw public key, ends the handshake.
pub(crate) fn server_lacks_raw(scene: &Scene, keys: &RawKeys, server: SocketAddr) -> Check {
    let relay = Capture::start(server)?;
    let uri = format!("coaps://127.0.0.1:{}/question", relay.port);
    let failure = start_ask(scene, &[&["get", &uri], &keys.device()[..]].concat(), None)?.failure()?;
    holds(&failure, &["the server chose what was not offered"])?;
    relay.lacks(Hello::Server, CERTIFICATE_TYPE)
}

/// Reports that a client does not support raw public keys: its ClientHello does not name certificate types, which means
/// X.509. Tegmen's server, which has only a raw public key, refuses the handshake.
pub(crate) fn client_lacks_raw(
    scene: &Scene,
    keys: &RawKeys,
    connect: impl FnOnce(SocketAddr) -> Result<Process, String>,
) -> Check {
    let served = keys.serve(scene)?;
    let relay = Capture::start((LOOPBACK, served.port).into())?;
    let _client = connect((LOOPBACK, relay.port).into())?;
    let refused = |datagram: &Datagram| !datagram.to_server && datagram.bytes.ends_with(&UNSUPPORTED_CERTIFICATE);
    while !relay.datagrams().iter().any(refused) {
        if Instant::now() > scene.deadline {
            return Err("ours did not refuse it".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    relay.lacks(Hello::Client, CERTIFICATE_TYPE)
}

/// Reports that a list of suites contains suites with ECDHE_PSK, but none with the cipher of the scenario `of`.
pub(crate) fn lacks_suite(list: &str, of: EcdhePsk, command: &str) -> Check {
    let names = list.split(|c: char| c.is_whitespace() || c == ':').filter(|name| !name.is_empty());
    let near: Vec<&str> = names.filter(|name| name.contains("ECDHE") && name.contains("PSK")).collect();
    let [mark, other] = of.marks;
    match near.iter().find(|name| name.contains(mark) || name.contains(other)) {
        Some(name) => Err(format!("it has {name}, and no row tries it").into()),
        None if near.is_empty() => {
            Err(format!("{command} names no suite of ECDHE_PSK: is the list what it was?").into())
        }
        None => Err(Trouble::Lacks(format!("{command}: {} with ECDHE_PSK, none with {mark}", near.len()))),
    }
}

/// Reports that a list of suites contains other suites, but not [`RSA_CBC`].
pub(crate) fn lacks_rsa_cbc(list: &str, command: &str) -> Check {
    let names: Vec<&str> =
        list.split(|c: char| c.is_whitespace() || c == ':').filter(|name| !name.is_empty()).collect();
    if let Some(name) = names.iter().find(|name| name.contains("TLS_RSA_WITH_AES_128_CBC_SHA")) {
        return Err(format!("it has {name}, and no row tries it").into());
    }
    match names.iter().filter(|name| name.contains("ECDHE")).count() {
        0 => Err(format!("{command} names no suite of ECDHE: is the list what it was?").into()),
        others => {
            Err(Trouble::Lacks(format!("{command}: {others} with ECDHE, none with RSA as the key exchange and CBC")))
        }
    }
}

/// The extension for the type of the server's certificate (RFC 7250, section 3).
const CERTIFICATE_TYPE: (&str, u16) = ("server_certificate_type", 20);
/// The fatal alert unsupported_certificate: its level and its description.
const UNSUPPORTED_CERTIFICATE: [u8; 2] = [2, 43];
