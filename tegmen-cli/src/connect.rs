//! Connects the request commands to a server.

use crate::edhoc::Agreeing;
use crate::map::{self, Credential};
use crate::output::Failure;
use crate::public_keys::{Servers, is_on_command_line, suites};
use clap::Args;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tegmen::dtls::{ConnectionIdConfig, Profile, Suites};
use tegmen_host::client::{ClientConfig, ClientKey, Tap};
use tegmen_host::credentials::Credentials;
use tegmen_host::hex::from_hex;
use tegmen_host::pcapng::Capture;
use tegmen_host::uri::{Scheme, Uri};
use zeroize::Zeroizing;

/// Options for the connection to a server, and for the identity that the client proves to the server.
#[derive(Args)]
pub(crate) struct Connect {
    /// PSK identity for coaps.
    #[arg(long, short = 'u', env = "TEGMEN_IDENTITY")]
    identity: Option<String>,
    /// PSK in hexadecimal. Other users of this machine can see it in the process list; use --credentials to hide it.
    #[arg(long, short = 'k', env = "TEGMEN_KEY", hide_env_values = true, conflicts_with = "credentials")]
    key: Option<String>,
    /// PSK as text, in the form that coap-client takes with -k.
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["key", "credentials"])]
    key_text: Option<String>,
    /// Credentials file. The client uses the only identity in the file, or the identity that --identity names.
    #[arg(long, env = "TEGMEN_CREDENTIALS")]
    credentials: Option<PathBuf>,
    /// Directory of an OSCORE context (made with `tegmen oscore new`, or `new-group`). This context protects all
    /// requests, over coap and coaps.
    #[arg(long, value_name = "DIR", env = "TEGMEN_OSCORE")]
    oscore: Option<PathBuf>,
    /// Name of the member that gets the request, if --oscore has the context of a group and the URI names one server.
    /// Only this member can read the request.
    #[arg(long, value_name = "NAME", requires = "oscore")]
    member: Option<String>,
    /// Map from URIs to OSCORE contexts, in the format of aiocoap; a request to a URI that no pattern matches is not
    /// sent.
    #[arg(long, value_name = "FILE", conflicts_with = "oscore")]
    credentials_map: Option<PathBuf>,
    #[command(flatten)]
    agreeing: Agreeing,
    /// Keep the DTLS session in FILE, or in a file in FILE if FILE is a directory. The next command continues this
    /// session, and performs no new handshake. The session is encrypted with the key in FILE.key, which must stay
    /// secret.
    #[arg(long, value_name = "FILE", env = "TEGMEN_SESSION")]
    session: Option<PathBuf>,
    /// Keep the secrets that resume DTLS sessions in this directory, one file per server. A resumed session needs no
    /// key exchange, and with a ticket (RFC 5077) no cookie exchange. The files must stay secret.
    #[arg(long, value_name = "DIR", env = "TEGMEN_RESUME")]
    resume: Option<PathBuf>,
    /// Do not reconnect: report an error if the server ends the session or stops answering. Without this option the
    /// client connects again, and repeats requests other than POST and PATCH.
    #[arg(long)]
    no_reconnect: bool,
    /// Request timeout in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 90, value_parser = clap::value_parser!(u64).range(1..=86400))]
    timeout: u64,
    /// Handshake timeout in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=86400))]
    handshake_timeout: u64,
    /// Send non-confirmable requests (NON).
    #[arg(long)]
    non: bool,
    /// Cipher suites to offer in order of preference, separated by commas: ccm8, gcm (the default with a pre-shared
    /// key), ecdhe-psk-ccm8, ecdhe-psk-chacha20, ecdhe-ecdsa-gcm, ecdhe-ecdsa-ccm8, ecdhe-rsa-gcm (the default with
    /// --ca or --server-key). For peers that support nothing better, this option can also name psk-cbc and rsa-cbc.
    #[arg(long, value_name = "SUITES", value_parser = suites)]
    suites: Option<Suites>,
    #[command(flatten)]
    servers: Servers,
    /// Offer no TLS extensions, to send the same bytes as the client in the Blink paper. The session is weaker, because
    /// it has no extended master secret.
    #[arg(long)]
    minimal: bool,
    /// Append the secrets of the session to this file (RFC 9850). The file must stay secret: anyone who has it can
    /// decrypt the traffic.
    #[arg(long, env = "SSLKEYLOGFILE")]
    key_log: Option<PathBuf>,
    /// Write a capture to this file, together with the secrets of the session, so that Wireshark decrypts the capture.
    /// The file must stay secret: anyone who has it can decrypt the traffic.
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Largest block to send and to request (RFC 7959): 16, 32, 64, 128, 256, 512 or 1024 bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 1024, value_parser = block_size)]
    block_size: usize,
    /// Longest response body to accept, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20)]
    max_body: usize,
    /// Longest content of a DTLS record to accept, 64 to 16384 bytes. The client announces it with record_size_limit
    /// (RFC 8449) and max_fragment_length (RFC 6066), and uses smaller blocks.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(64..=16384))]
    record_size_limit: Option<u16>,
    /// Longest datagram to send, 128 to 2048 bytes: longer handshake messages are fragmented, and blocks become
    /// smaller.
    #[arg(long, value_name = "BYTES", default_value_t = 1232, value_parser = clap::value_parser!(u16).range(128..=2048))]
    mtu: u16,
    /// Ask for connection IDs (RFC 9146), so that the session survives a change of the client's address. BYTES is the
    /// length of the client's own ID. The records of the server contain this ID. The default is 0.
    #[arg(long, value_name = "BYTES", num_args = 0..=1, require_equals = true, default_missing_value = "0",
        value_parser = clap::value_parser!(u8).range(0..=20))]
    connection_id: Option<u8>,
}

/// Reads the URI of an access control server. Refuses a URI with a path.
pub(crate) fn access_control(text: &str) -> Result<Uri, Failure> {
    let uri = Uri::parse(text).map_err(Failure::usage)?;
    let is_server = uri.scheme == Scheme::Coaps && uri.path.is_empty() && uri.query.is_empty();
    let wrong = || format!("{text}: name the access control server alone, as coaps://host[:port]");
    is_server.then_some(uri).ok_or_else(|| Failure::usage(wrong()))
}

/// Returns the identity and the key in a credentials file that has exactly one identity. The error is a text for the
/// operator.
pub(crate) fn only_key(file: &Path) -> Result<ClientKey, String> {
    let known = Credentials::from_file(file).map_err(|error| error.to_string())?;
    let identities = known.identities();
    let [identity] = identities.as_slice() else {
        return Err(format!("{} has {} identities: give a file with one", file.display(), identities.len()));
    };
    let keys = known.keys_of(identity.as_bytes()).ok_or_else(|| format!("{} has no key", file.display()))?;
    Ok(ClientKey { identity: identity.clone(), key: keys.current.key })
}

/// Reads a time in seconds. Refuses a time of more than an hour.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=3600.0).contains(seconds));
    seconds.ok_or_else(|| "a number of seconds, 0 to 3600".to_owned())
}

fn block_size(text: &str) -> Result<usize, String> {
    let size = text.parse().ok().filter(|size: &usize| size.is_power_of_two() && (16..=1024).contains(size));
    size.ok_or_else(|| "16, 32, 64, 128, 256, 512 or 1024".to_owned())
}

impl Connect {
    /// Checks the keys on the command line against the URI of the server that receives the request. Returns an error if
    /// the request would be sent in clear although the command line gives keys.
    pub(crate) fn check(&self, server: &Uri) -> Result<(), Failure> {
        let is_in_clear =
            server.scheme == Scheme::Coap && self.oscore.is_none() && self.credentials_map.is_none() && !self.agrees();
        let has_keys = is_on_command_line(self.identity.as_ref(), "TEGMEN_IDENTITY")
            || is_on_command_line(self.key.as_ref(), "TEGMEN_KEY")
            || self.key_text.is_some()
            || is_on_command_line(self.credentials.as_ref(), "TEGMEN_CREDENTIALS")
            || self.servers.is_on_command_line();
        match is_in_clear && has_keys {
            false => Ok(()),
            true => Err(Failure::usage(format!(
                "{server}: keys and certificates protect only coaps, so this request would be sent in clear: write coaps:// in place \
                 of coap://, or leave out the options of keys and certificates"
            ))),
        }
    }

    /// Checks the options for a request to all members of a group. Returns an error if an option protects only a request
    /// to one server.
    pub(crate) fn check_group(&self) -> Result<(), Failure> {
        if let Some(name) = &self.member {
            return Err(Failure::usage(format!(
                "--member: all members of the group can read a request to its multicast address: write the address of {name} in the \
                 URI, or leave out --member"
            )));
        }
        match self.agrees() {
            false => Ok(()),
            true => Err(Failure::usage(
                "--edhoc: EDHOC is between two endpoints, so this request would be sent to the group in clear: ask each server by its \
                 own address, or use --oscore with the context of a group",
            )),
        }
    }

    /// Returns true if the requests agree on an OSCORE context by EDHOC.
    pub(crate) const fn agrees(&self) -> bool {
        self.agreeing.file().is_some()
    }

    pub(crate) fn key(&self) -> Result<Option<ClientKey>, Failure> {
        let key = match (&self.key, &self.key_text) {
            (Some(hex), _) => Some(from_hex(hex).filter(|key| !key.is_empty()).ok_or_else(|| {
                Failure::usage(
                    "--key is not hexadecimal, or has an odd number of digits; a key that is text goes with --key-text",
                )
            })?),
            (None, text) => text.as_ref().map(|text| text.clone().into_bytes()),
        };
        if let Some(key) = key {
            let identity = self.identity.clone().ok_or_else(|| Failure::usage("a key goes with --identity NAME"))?;
            return Ok(Some(ClientKey { identity, key: Zeroizing::new(key) }));
        }
        let Some(file) = &self.credentials else { return Ok(None) };
        let known = Credentials::from_file(file).map_err(Failure::usage)?;
        let name = file.display();
        let identity = match (&self.identity, known.identities().as_slice()) {
            (Some(identity), _) => identity.clone(),
            (None, [only]) => only.clone(),
            (None, []) => {
                return Err(Failure::usage(format!(
                    "{name} holds no identity: tegmen keys new --file {name} --identity NAME"
                )));
            }
            (None, several) => {
                return Err(Failure::usage(format!("{name} holds {}: choose one with --identity", several.join(", "))));
            }
        };
        let keys = known.keys_of(identity.as_bytes()).ok_or_else(|| {
            Failure::usage(format!("{name} has no identity {identity}; it holds {}", known.identities().join(", ")))
        })?;
        Ok(Some(ClientKey { identity, key: keys.current.key }))
    }

    fn tap(&self) -> Result<Option<Tap>, Failure> {
        let Some(file) = &self.pcap else { return Ok(None) };
        let name = file.display().to_string();
        let failed = |error| Failure::usage(format!("the capture {name} cannot be written: {error}"));
        let capture = Capture::create(file).map_err(failed)?;
        let name = name.clone();
        Ok(Some(capture.tap(move |error| eprintln!("tegmen: the capture {name} ends here: {error}"))))
    }

    /// Returns the directory of the OSCORE context that protects requests to `uri`; `None` if no context protects them.
    pub(crate) fn context(&self, uri: &Uri) -> Result<Option<PathBuf>, Failure> {
        let Some(map) = &self.credentials_map else { return Ok(self.oscore.clone()) };
        Ok(match map::find(map, uri)? {
            Credential::Oscore(dir) => Some(dir),
            Credential::Unprotected => None,
        })
    }

    /// Returns the configuration of a client of the controller of a group. Returns an error if the command line asks for
    /// OSCORE, which the controller does not accept from members.
    pub(crate) fn of_member(&self, uri: &str) -> Result<ClientConfig, Failure> {
        let has_oscore = is_on_command_line(self.oscore.as_ref(), "TEGMEN_OSCORE")
            || self.credentials_map.is_some()
            || is_on_command_line(self.agreeing.file(), "TEGMEN_EDHOC");
        if has_oscore {
            return Err(Failure::usage(
                "--oscore, --credentials-map and --edhoc are not supported here, because members ask the controller over DTLS: give \
                 --credentials, or --ca with --cert and --cert-key",
            ));
        }
        let mut config = self.config(&Uri::parse(uri).map_err(Failure::usage)?)?;
        (config.oscore, config.edhoc) = (None, None);
        Ok(config)
    }

    pub(crate) fn config(&self, uri: &Uri) -> Result<ClientConfig, Failure> {
        let mut config = ClientConfig::default();
        config.oscore = self.context(uri)?;
        config.oscore_member = self.member.clone();
        config.edhoc = self.agreeing.keys()?;
        config.state.session = self.session.clone();
        config.state.resume = self.resume.clone();
        config.trust.key = self.key()?;
        config.trust.public_keys = self.servers.keys(self.suites)?;
        config.coap.timeout = Duration::from_secs(self.timeout);
        config.coap.confirmable = !self.non;
        config.recovery.reconnect = !self.no_reconnect;
        config.log.key_log = self.key_log.clone();
        config.coap.block_size = self.block_size;
        config.coap.max_body = self.max_body;
        config.log.tap = self.tap()?;
        if let (Some(_), Some(dir)) = (&self.pcap, &config.oscore) {
            let dir = dir.display();
            eprintln!(
                "the capture holds no secrets of OSCORE: `tegmen oscore export --to wireshark {dir} FILE` writes the line of \
                 Wireshark's table oscore_contexts that decrypts it; anyone with FILE can decrypt the traffic"
            );
        }
        config.dtls.handshake_timeout = Duration::from_secs(self.handshake_timeout);
        config.dtls.suites = self.suites.unwrap_or(config.dtls.suites);
        config.dtls.mtu = self.mtu;
        config.dtls.record_size_limit = self.record_size_limit.unwrap_or(0);
        // A session that is kept is to be found from whatever address we have next.
        let len = self.connection_id.or(self.session.as_ref().map(|_| 0));
        config.dtls.connection_id = len.map(|len| ConnectionIdConfig { len, ..ConnectionIdConfig::default() });
        if self.minimal {
            config.dtls.profile = Profile::Minimal;
        }
        Ok(config)
    }
}

/// Resolves the address of coaps://host[:port].
///
/// # Errors
/// A malformed URI, or the error of the resolver.
pub(crate) async fn resolve(text: &str) -> Result<SocketAddr, Failure> {
    let uri = Uri::parse(text).map_err(Failure::usage)?;
    let resolved = tegmen_host::udp::resolve(&uri.host, uri.port).await;
    resolved.map_err(|error| Failure::new(format!("{} cannot be resolved: {error}", uri.host)))
}
