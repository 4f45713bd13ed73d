//! The options of `tegmen serve`: one struct for each section of the configuration file. A key of the file has the
//! name of an option. A section of the file has the name of a heading under which the help lists options.

use super::group_observation::group_observation;
use super::interface::{GroupInterface, group_interface};
use super::roles::{Certified, Role, certified, role};
use super::store::Place;
use crate::connect::seconds;
use crate::log::{Format, Level};
use crate::public_keys::{Clients, suites};
use clap::Args;
use hyper::Uri;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use tegmen::dtls::Suites;
use tegmen_control::group::server::JOIN_INTERVAL;
use tegmen_host::group::Group;
use tegmen_host::proxy::{Pattern, ProxyConfig, Reverse, VirtualHost};
use tegmen_host::server::GroupObservation;
use tegmen_host::server::{HelloLimits, ServerConfig};
use tegmen_host::slab::Capacity;

/// All settings of a server, one field for each section.
#[derive(Args)]
pub(super) struct Sections {
    #[command(flatten, next_help_heading = "Addresses")]
    pub(super) addresses: Addresses,
    #[command(flatten, next_help_heading = "Keys")]
    pub(super) keys: Keys,
    #[command(flatten, next_help_heading = "Public keys")]
    pub(super) clients: Clients,
    #[command(flatten, next_help_heading = "Sessions")]
    pub(super) sessions: Sessions,
    #[command(flatten, next_help_heading = "Resources")]
    pub(super) served: Served,
    #[command(flatten, next_help_heading = "Access")]
    pub(super) access: Access,
    #[command(flatten, next_help_heading = "Resource server")]
    pub(super) resource_server: ResourceServer,
    #[command(flatten, next_help_heading = "Admin")]
    pub(super) admin: Admin,
    #[command(flatten, next_help_heading = "Groups")]
    pub(super) groups: Groups,
    #[command(flatten, next_help_heading = "Delegation")]
    pub(super) delegation: Delegation,
    #[command(flatten, next_help_heading = "Delegated")]
    pub(super) delegated: Delegated,
    #[command(flatten, next_help_heading = "Directory")]
    pub(super) directory: Directory,
    #[command(flatten, next_help_heading = "Proxy")]
    pub(super) proxy: ProxyOptions,
    #[command(flatten, next_help_heading = "Limits")]
    pub(super) limits: Limits,
    #[command(flatten, next_help_heading = "DTLS")]
    pub(super) dtls: Dtls,
    #[command(flatten, next_help_heading = "Log")]
    pub(super) log: LogOptions,
    #[command(flatten, next_help_heading = "Service")]
    pub(super) service: Service,
}

#[derive(Args)]
pub(super) struct Addresses {
    /// Local address to listen on; may be repeated. Default: all addresses of this machine.
    #[arg(long, value_name = "IP", value_parser = listen_address)]
    pub(super) listen: Vec<IpAddr>,
    /// Port for coaps (DTLS); 0 takes any free port.
    #[arg(long, default_value_t = 5684)]
    pub(super) port: u16,
    /// Also serve plain CoAP, which has no encryption: anyone may send any request, and anyone on the network path can
    /// read the messages.
    #[arg(long)]
    pub(super) plain: bool,
    /// Port for plain CoAP and OSCORE.
    #[arg(long, value_name = "PORT", default_value_t = 5683)]
    pub(super) plain_port: u16,
    /// Do not serve coaps.
    #[arg(long)]
    pub(super) no_secure: bool,
}

#[derive(Args)]
pub(super) struct Keys {
    /// Credentials file; reloaded when it changes.
    #[arg(long, env = "TEGMEN_CREDENTIALS", value_name = "FILE", default_value = "credentials.toml")]
    pub(super) credentials: PathBuf,
    /// Give the right of this rule, such as 'GET /*', to clients without a certificate or key; may be repeated.
    /// Default: no right.
    #[arg(long, value_name = "RULE")]
    pub(super) anonymous: Vec<String>,
    /// Serve OSCORE with the context in this directory, or with all contexts in its subdirectories; may be repeated.
    /// Requests arrive at the port of plain CoAP. Without --plain, that port accepts only protected requests.
    #[arg(long, value_name = "DIR")]
    pub(super) oscore: Vec<PathBuf>,
    /// Join the multicast address ff02::3:ffXX:XXXX of each OSCORE context at this network interface; may be repeated.
    /// A client that has one of the contexts can then find this server on the link.
    #[arg(long, value_name = "INTERFACE", requires = "oscore")]
    pub(super) oscore_discovery: Vec<String>,
    /// Agree on OSCORE contexts with clients by EDHOC (RFC 9528), with the key in this file (made with `tegmen edhoc
    /// new`). Requests arrive at the port of plain CoAP, as with `--oscore`.
    #[arg(long, value_name = "FILE")]
    pub(super) edhoc: Option<PathBuf>,
    /// File with the credentials and rights of EDHOC clients: a table [[peer]] for each client, with name, credential
    /// and, optionally, allow.
    #[arg(long, value_name = "FILE", requires = "edhoc")]
    pub(super) edhoc_clients: Option<PathBuf>,
}

impl Keys {
    /// Returns true if the server has OSCORE contexts, or can make OSCORE contexts.
    pub(super) const fn have_oscore(&self) -> bool {
        !self.oscore.is_empty() || self.edhoc.is_some()
    }
}

#[derive(Args)]
pub(super) struct Sessions {
    /// Keep DTLS sessions and the sequence numbers of OSCORE contexts in this database, so that they survive a restart
    /// and a power cut. The sessions are encrypted with the key in FILE.key, which must stay secret.
    #[arg(long, value_name = "FILE")]
    pub(super) state: Option<PathBuf>,
    /// Disable session resumption; every connection performs a full handshake.
    #[arg(long)]
    pub(super) no_resumption: bool,
    /// Seconds for which a client can resume a session after a full handshake.
    #[arg(long, value_name = "SECONDS", default_value_t = 86400, conflicts_with = "no_resumption",
          value_parser = clap::value_parser!(u64).range(60..=604_800))]
    pub(super) ticket_lifetime: u64,
    /// Keep the keys of session tickets (RFC 5077) in this file, created if it does not exist: tickets then survive a
    /// restart, and servers that share the file accept each other's tickets. The file must stay secret: anyone who has
    /// it can decrypt the traffic.
    #[arg(long, value_name = "FILE", conflicts_with = "no_resumption")]
    pub(super) ticket_keys: Option<PathBuf>,
}

#[derive(Args)]
pub(super) struct Served {
    /// A value that GET reads and PUT writes: /path=text.
    #[arg(long, value_name = "PATH=TEXT")]
    pub(super) value: Vec<String>,
    /// A file that GET reads: /path=file.
    #[arg(long, value_name = "PATH=FILE")]
    pub(super) file: Vec<String>,
    /// The files of a directory, read-only: /path=directory. Links that lead out of the directory are not followed.
    #[arg(long, value_name = "PATH=DIR")]
    pub(super) dir: Vec<String>,
    /// The files of a directory; PUT writes them and DELETE removes them: /path=directory.
    #[arg(long, value_name = "PATH=DIR")]
    pub(super) dir_rw: Vec<String>,
    /// A file that GET reads and PUT writes, and that `tegmen group send-image` replaces in all members of a group:
    /// /path=file. Sign your images, because the keys of a group prove only that some member sent the image.
    #[arg(long, value_name = "PATH=FILE")]
    pub(super) image: Vec<String>,
    /// Longest image in bytes that a group may send.
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20, value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub(super) image_max: u32,
    /// A program whose output answers GET, POST, FETCH, PATCH and iPATCH: /path=program arguments.
    #[arg(long, value_name = "PATH=COMMAND")]
    pub(super) command: Vec<String>,
    /// A counter of PUT requests at this path (the Blink application): each response is the count as one byte.
    #[arg(long, value_name = "PATH")]
    pub(super) blink: Vec<String>,
}

#[derive(Args)]
pub(super) struct Access {
    /// Serve access control (ACE, RFC 9200) with the devices, policy and revocations in this store: the path of a
    /// database, which is created if it does not exist, or a cluster of etcd, written as
    /// etcd://HOST:PORT,HOST:PORT,HOST:PORT/NAME. Several servers may share a cluster. The option needs
    /// --sealing-key, --audit and --audit-key.
    #[arg(long, value_name = "PLACE")]
    pub(super) store: Option<Place>,
    /// Seal the secrets of the database under this key: a file of 64 hexadecimal digits, readable by its owner only; a
    /// credential of systemd; or tpm:FILE, a key that the TPM sealed (TEGMEN_TPM names the TPM). The first start makes
    /// FILE.
    #[arg(long, value_name = "FILE")]
    pub(super) sealing_key: Option<PathBuf>,
    /// Apply this policy at the start, if the text of the file has changed since it was last applied. Without this option
    /// the policy of the database stays in force.
    #[arg(long, value_name = "FILE")]
    pub(super) policy: Option<PathBuf>,
    /// Append each decision to this audit log. FILE.head receives signed heads, each with the number and the hash of
    /// the last line.
    #[arg(long, value_name = "FILE")]
    pub(super) audit: Option<PathBuf>,
    /// Sign the heads of the audit log with this private key in PEM, or a key in a TPM as for --cert-key. A head
    /// contains the number and the hash of the last line of the log.
    #[arg(long, value_name = "FILE")]
    pub(super) audit_key: Option<PathBuf>,
}

#[derive(Args)]
pub(super) struct ResourceServer {
    /// Take access tokens of the OSCORE profile of ACE (RFC 9203) at /authz-info, as the resource server of this
    /// name: a client has the rights of its token. Requests arrive at the port of plain CoAP, as with --oscore. The
    /// option needs --token-key. With --edhoc the server also takes tokens that are bound to public keys.
    #[arg(long, value_name = "NAME")]
    pub(super) resource_server: Option<String>,
    /// The key under which the access control server seals tokens for this server: a file of 64 hexadecimal digits,
    /// readable by its owner only (`tegmen device add --kind oscore`).
    #[arg(long, value_name = "FILE")]
    pub(super) token_key: Option<PathBuf>,
    /// Maximum number of tokens at the same time. The maximum for one client is a quarter of this number, but at least
    /// two. If a client has its maximum, a newer token ends its oldest token.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) tokens_max: u32,
    /// Give clients without a token this URI of the access control server, such as coaps://access.example/token. The
    /// option excludes --plain.
    #[arg(long, value_name = "URI")]
    pub(super) access_server: Option<String>,
    /// Read the list of revoked tokens (RFC 9770) from the access control server at this URI, such as
    /// coaps://access.example. A revoked token loses its rights, and the server does not accept it again. The key of
    /// the session with the access control server is derived from --token-key.
    #[arg(long, value_name = "URI")]
    pub(super) revocations: Option<String>,
}

#[derive(Args)]
pub(super) struct Admin {
    /// Serve the interface for administrators of access control at https://ADDRESS:PORT/v1/. The option needs
    /// --store, --admin-cert, --admin-cert-key and --bootstrap.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(super) admin: Option<SocketAddr>,
    /// The certificate of the interface for administrators in PEM, followed by the certificates of its authorities.
    #[arg(long, value_name = "FILE")]
    pub(super) admin_cert: Option<PathBuf>,
    /// The private key of --admin-cert in PEM, readable by its owner only.
    #[arg(long, value_name = "FILE")]
    pub(super) admin_cert_key: Option<PathBuf>,
    /// Write the bootstrap token, which creates the first API key, to this file, readable by its owner only. While no
    /// valid API key has the scope keys:write, each start of the server writes another token.
    #[arg(long, value_name = "FILE")]
    pub(super) bootstrap: Option<PathBuf>,
    /// Accept clients that have either an API key or a certificate of one of these authorities (PEM).
    #[arg(long, value_name = "FILE")]
    pub(super) admin_ca: Option<PathBuf>,
    /// Define a role, which is a name for scopes: ROLE=SCOPE,SCOPE; may be repeated.
    #[arg(long, value_name = "ROLE=SCOPES", value_parser = role)]
    pub(super) admin_role: Vec<Role>,
    /// Give a role to a client certificate with this SHA-256: DIGEST=ROLE; may be repeated. The server refuses a
    /// certificate without a role.
    #[arg(long, value_name = "DIGEST=ROLE", value_parser = certified)]
    pub(super) admin_client: Vec<Certified>,
}

#[derive(Args)]
pub(super) struct Groups {
    /// Join a multicast group; may be repeated. Unprotected requests to the group need --plain. Requests that Group
    /// OSCORE protects need --oscore with the context of a member. 224.0.1.187%eth0 and ff02::fd%eth0 are the groups
    /// of all CoAP nodes on eth0. For IPv4, an address of the interface can replace its name, as in
    /// 224.0.1.187%127.0.0.1.
    #[arg(long, value_name = "ADDRESS[%INTERFACE]")]
    pub(super) group: Vec<Group>,
    /// Delay answers to a request to a group by a random time, at most by this number of seconds, so that not all
    /// members answer at once.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = seconds)]
    pub(super) leisure: f64,
    /// Send one notification of a resource to a multicast group, in place of one to each observer
    /// (draft-ietf-core-observe-multicast-notifications); may be repeated. With coap://239.255.79.2%eth0:61616/temp the
    /// notifications of /temp are sent to this group and port on eth0. They are in clear, which needs --plain, and anyone
    /// can forge them. With lights= in front of the URI, the OSCORE group lights protects them, which needs --oscore.
    #[arg(long, value_name = "[GROUP=]URI", value_parser = group_observation)]
    pub(super) group_observation: Vec<GroupObservation>,
    /// Control Axiom groups: admit devices over coaps (RFC 9594), evict them, and rekey the groups. The rules of the
    /// policy decide which devices may join; in these rules this server is the publisher NAME. The option needs
    /// --store, which keeps the groups.
    #[arg(long, value_name = "NAME")]
    pub(super) group_controller: Option<String>,
    /// Sign rekey messages with this private key on secp256r1 in PEM, or a key in a TPM as for --cert-key. Without this
    /// key the server sends separate rekey messages to each member.
    #[arg(long, value_name = "FILE")]
    pub(super) group_key: Option<PathBuf>,
    /// Send rekey messages from this network interface; GROUP=INTERFACE sets the interface of one group; may be
    /// repeated. The interface is a name such as eth0, or for IPv4 an address of the interface. Default: the choice
    /// of the system.
    #[arg(long, value_name = "[GROUP=]INTERFACE", value_parser = group_interface)]
    pub(super) group_interface: Vec<GroupInterface>,
    /// Milliseconds between two rekey messages, so that a radio network can carry them.
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=60_000))]
    pub(super) rekey_interval: u64,
    /// Repeat the rekey messages of each new epoch N times, for members that missed a message.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u8).range(0..=16))]
    pub(super) rekey_repetitions: u8,
    /// Seconds before the first repetition of rekey messages; each later wait is twice as long.
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0, value_parser = seconds)]
    pub(super) rekey_wait: f64,
    /// Rekey each group when its epoch is this number of seconds old; with 0 only an admission or an eviction rekeys a
    /// group.
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub(super) rekey_period: u64,
    /// Let a device join a group four times in a row, and then once in this number of seconds; 0 sets no limit. Each
    /// join begins a new epoch of the group.
    #[arg(long, value_name = "SECONDS", default_value_t = JOIN_INTERVAL.as_secs(), value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub(super) join_interval: u64,
    /// Be a member of an Axiom group, and answer requests to the group: DIR is the directory in which `tegmen group
    /// join` stored the membership; may be repeated.
    #[arg(long, value_name = "DIR")]
    pub(super) member: Vec<PathBuf>,
    /// Ask the controllers of groups for the keys of a missed epoch, with the pre-shared key in this credentials file.
    #[arg(long, value_name = "FILE")]
    pub(super) member_credentials: Option<PathBuf>,
    /// The identity in --member-credentials. Default: the only identity in that file.
    #[arg(long, value_name = "NAME", requires = "member_credentials")]
    pub(super) member_identity: Option<String>,
}

#[derive(Args)]
pub(super) struct Delegation {
    /// Be a delegation server with the CA in this directory: open sessions in the name of devices, and let the devices
    /// resume these sessions. `tegmen ca init` makes the CA, which issues the certificates of the devices. The option
    /// needs --store, which keeps the devices.
    #[arg(long, value_name = "DIR")]
    pub(super) delegation_ca: Option<PathBuf>,
    /// Be a delegation server, with certificates of the authority whose ACME directory (RFC 8555) is at this URL. The
    /// server proves the names of devices with the challenge http-01, and you agree to the terms of the authority.
    /// The option needs --store and --delegation-acme-dir.
    #[arg(long, value_name = "URL", conflicts_with = "delegation_ca")]
    pub(super) delegation_acme: Option<Uri>,
    /// Keep the account at the authority, the certificates of devices and their private keys in this directory.
    #[arg(long, value_name = "DIR")]
    pub(super) delegation_acme_dir: Option<PathBuf>,
    /// Listen for the challenges of the authority at this address, and answer them. The authority connects to port 80 of
    /// the name of each device, so connections to that port must be forwarded to this address.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "[::]:80")]
    pub(super) delegation_acme_listen: SocketAddr,
    /// URL at which the authority can reach you, such as mailto:ops@example.org.
    #[arg(long, value_name = "URL")]
    pub(super) delegation_acme_contact: Option<String>,
    /// Trust the ACME server if one of these authorities (PEM) issued its certificate.
    #[arg(long, value_name = "FILE", default_value = "/etc/ssl/certs/ca-certificates.crt")]
    pub(super) delegation_acme_trust: PathBuf,
    /// Bind the new ACME account to an account that you have at the authority (RFC 8555, section 7.3.4): a file with
    /// the key identifier from the authority, a space, and the key in base64url, readable by its owner only.
    #[arg(long, value_name = "FILE")]
    pub(super) delegation_acme_binding: Option<PathBuf>,
    /// Open sessions between devices and servers outside this installation, if these authorities (PEM) issued the
    /// certificates of those servers. Without this option, no device can have a session with such a server.
    #[arg(long, value_name = "FILE")]
    pub(super) delegation_trust: Vec<PathBuf>,
    /// Revocation list of one of the authorities in --delegation-trust, PEM or DER.
    #[arg(long, value_name = "FILE")]
    pub(super) delegation_crl: Vec<PathBuf>,
}

#[derive(Args)]
pub(super) struct Directory {
    /// Be a resource directory (RFC 9176): endpoints register their links at /rd, and clients look them up at
    /// /rd-lookup/res and /rd-lookup/ep. The policy decides which client may send requests to these paths.
    #[arg(long)]
    pub(super) directory: bool,
    /// Let this identity, a commissioning tool, register other endpoints at any address. May be repeated.
    #[arg(long, value_name = "NAME", requires = "directory")]
    pub(super) directory_tool: Vec<String>,
    /// Maximum number of registrations.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) directory_max: u32,
    /// Register the resources of this server at the resource directory at this URI, such as coaps://rd.example.org,
    /// and renew the registration.
    #[arg(long, value_name = "URI")]
    pub(super) register: Option<String>,
    /// The name of this server in the directory. Default: the identity in --register-credentials.
    #[arg(long, value_name = "NAME", requires = "register")]
    pub(super) register_name: Option<String>,
    /// Clients of the directory find this server at this URI, such as coaps://[2001:db8::1]:5684. Default: the
    /// address and port from which the registration is sent. That port differs from the port of this server.
    #[arg(long, value_name = "URI", requires = "register")]
    pub(super) register_base: Option<String>,
    /// Seconds for which a registration is valid.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u32).range(60..))]
    pub(super) register_lifetime: u32,
    /// Register with the pre-shared key in this credentials file, which has one identity.
    #[arg(long, value_name = "FILE", requires = "register")]
    pub(super) register_credentials: Option<PathBuf>,
}

#[derive(Args)]
pub(super) struct Delegated {
    /// Let peers resume sessions that a delegation server opened for the device of this name. The device has no
    /// certificate and no private key. The option needs --device-state and --device-scope, and at the first start
    /// --device-key.
    #[arg(long, value_name = "NAME")]
    pub(super) delegated: Option<String>,
    /// The device key that `tegmen device imprint` wrote, readable by its owner only. The first start copies the key
    /// to --device-state. Remove this file then, because the keys of all epochs can be derived from it.
    #[arg(long, value_name = "FILE")]
    pub(super) device_key: Option<PathBuf>,
    /// Keep the epoch, its keys and the refused connections of the device in this file, which the first start makes.
    /// The file is a secret.
    #[arg(long, value_name = "FILE")]
    pub(super) device_state: Option<PathBuf>,
    /// A scope, as in `tegmen device imprint --scope`: rules with a comma between them, such as 'GET /temp,PUT /light'.
    /// May be repeated: give the scopes in the same order as to `tegmen device imprint`. A peer has only the rights of
    /// the scope in its ticket.
    #[arg(long, value_name = "RULES")]
    pub(super) device_scope: Vec<String>,
}

#[derive(Args)]
pub(super) struct ProxyOptions {
    /// Be a forward proxy for the servers that match this pattern, such as coap://sensor.local,
    /// coaps://*.example.org, coap://[2001:db8::1]:* or https://api.example.org:8443; may be repeated. A client needs
    /// the right to the path /proxy/coap/HOST:PORT/PATH, or /proxy/http/..., and asks with Proxy-Uri or Proxy-Scheme.
    #[arg(long, value_name = "PATTERN")]
    pub(super) proxy_to: Vec<Pattern>,
    /// Be a reverse proxy: the resources of the origin at this URI are below this path, such as
    /// /house=coap://sensor.local; may be repeated.
    #[arg(long, value_name = "PATH=URI")]
    pub(super) proxy_reverse: Vec<Reverse>,
    /// Be a reverse proxy for requests with this Uri-Host, and forward them to the origin at this URI, such as
    /// sensor.example=coap://192.0.2.1; may be repeated. NAME= without a URI is a name of this server itself. With this
    /// option, a request is refused with 4.04 if its Uri-Host is neither an address nor a NAME of this option. A client
    /// needs the right to the path /proxy/host/NAME/PATH.
    #[arg(long, value_name = "NAME=URI")]
    pub(super) proxy_host: Vec<VirtualHost>,
    /// Let HTTP clients use the forward proxy at http://ADDRESS:PORT/hc/ followed by the URI of a resource, such as
    /// http://127.0.0.1:8080/hc/coap://sensor.local/temp. HTTP clients count as unprotected clients, so the option
    /// needs --plain: anyone who can reach the address has the rights of unprotected clients. Choose an address of
    /// this machine or of a network that you trust.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(super) proxy_http: Option<SocketAddr>,
    /// Maximum number of bytes of stored responses; 0 stores nothing.
    #[arg(long, value_name = "BYTES", default_value_t = ProxyConfig::default().cache)]
    pub(super) proxy_cache: usize,
    /// Maximum number of bytes of stored responses to the requests of one client. If a client has no name, its
    /// address identifies it.
    #[arg(long, value_name = "BYTES", default_value_t = ProxyConfig::default().cache_of_client)]
    pub(super) proxy_cache_client: usize,
    /// Maximum number of requests that wait for a response of one origin at the same time (NSTART, RFC 7252). Further
    /// requests wait in a queue.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(super) proxy_nstart: u16,
    /// Open sessions with coaps origins with the pre-shared key in this credentials file, which has one identity.
    #[arg(long, value_name = "FILE")]
    pub(super) proxy_credentials: Option<PathBuf>,
    /// Trust coaps and https origins whose certificates these authorities (PEM) issued; may be repeated.
    #[arg(long, value_name = "FILE")]
    pub(super) proxy_ca: Vec<PathBuf>,
    /// The name of this proxy in the diagnostic payload of 5.08 (RFC 8768).
    #[arg(long, value_name = "NAME", default_value = "tegmen")]
    pub(super) proxy_name: String,
}

#[derive(Args)]
pub(super) struct Limits {
    /// Number of threads, each with its own sockets; 0 means one thread per core or, if the process inherited
    /// sockets, as many threads as inherited sockets of the same address.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) shards: usize,
    /// Maximum number of peers that are not in a handshake.
    #[arg(long, value_name = "N", default_value_t = Capacity::default().peers)]
    pub(super) max_peers: usize,
    /// Maximum number of handshakes under way at the same time, about 8 KiB each. While this number is reached, the
    /// server ignores further ClientHellos; clients repeat them.
    #[arg(long, value_name = "N", default_value_t = Capacity::default().handshakes)]
    pub(super) max_handshakes: usize,
    /// Longest request body in bytes; a longer body is answered with 4.13, which states this limit.
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 20, value_parser = body_size)]
    pub(super) max_body: usize,
    /// Total bytes of bodies held at once for all clients, at least four times --max-body; a request that would
    /// exceed this total is answered with 5.03. All clients without DTLS together can use half of this total.
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 20, value_parser = body_size)]
    pub(super) max_bodies: usize,
    /// Total bytes of replies and messages that are kept to be sent again, for all clients. A reply is kept for 247
    /// seconds, so that a repeated request is not executed twice; a POST or PATCH for which there is no space is
    /// answered with 5.03.
    #[arg(long, value_name = "BYTES", default_value_t = 256 << 20, value_parser = body_size)]
    pub(super) max_exchange_bytes: usize,
    /// Send up to N notifications in a row as non-confirmable: faster, but some may be lost. A notification to a client
    /// that does not respond is confirmable in any case if the server would otherwise send more than one byte per
    /// second to this client (PROBING_RATE, RFC 7252).
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) unconfirmed: u8,
    /// Require plain clients to prove their address with the Echo option (RFC 9175) before they get a long answer.
    /// Clients without Echo support are not served.
    #[arg(long)]
    pub(super) verify_addresses: bool,
    /// Answer at most N requests per peer and second, and further requests with 4.29; 0 sets no limit.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(super) requests_per_second: u32,
    /// Maximum number of ClientHellos answered per second, for each network prefix (/24 or /56) and in total; a burst
    /// may be twice as large. 0 sets no limit.
    #[arg(long, value_name = "N,N", value_parser = hello_limits, default_value = "2000,20000")]
    pub(super) hello_limits: HelloLimits,
    /// Maximum number of signatures and decryptions per second with an RSA key or a key in a TPM, for unauthenticated
    /// clients; 0 sets no limit. Further handshakes wait, and a client begins again if it waits too long.
    #[arg(long, value_name = "N", default_value_t = ServerConfig::default().sessions.signatures_per_second)]
    pub(super) signatures_per_second: u32,
}

#[derive(Args)]
pub(super) struct Dtls {
    /// Accepted cipher suites in order of preference, separated by commas: ccm8, gcm (the default without --cert-key),
    /// ecdhe-psk-ccm8, ecdhe-psk-chacha20, ecdhe-ecdsa-gcm, ecdhe-ecdsa-ccm8, ecdhe-rsa-gcm (with --cert-key, the
    /// default begins with the last three). For peers that support nothing better, this option can also name psk-cbc
    /// and rsa-cbc.
    #[arg(long, value_name = "SUITES", value_parser = suites)]
    pub(super) suites: Option<Suites>,
    /// Longest content of a received DTLS record, 64 to 16384 bytes; announced to clients that send a record_size_limit
    /// themselves (RFC 8449).
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(64..=16384))]
    pub(super) record_size_limit: Option<u16>,
    /// Longest handshake datagram to send, 128 to 2048 bytes; longer messages are fragmented. The option does not limit
    /// responses, because clients choose the size of blocks.
    #[arg(long, value_name = "BYTES", default_value_t = 1232, value_parser = clap::value_parser!(u16).range(128..=2048))]
    pub(super) mtu: u16,
    /// Disable connection IDs (RFC 9146); clients must reconnect when their address changes.
    #[arg(long)]
    pub(super) no_connection_id: bool,
    /// Follow a client to a new address even if it does not support the return routability check (RFC 9853). An
    /// attacker who forwards records of the client faster than the network does can then redirect the answers.
    #[arg(long, conflicts_with = "no_connection_id")]
    pub(super) follow_unchecked: bool,
    /// Pad the content of each record to a multiple of this number of bytes, if the client has a connection ID.
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=1024))]
    pub(super) padding: u16,
    /// Append the secrets of all sessions to this file (RFC 9850). The file must stay secret: anyone who has it can
    /// decrypt the traffic.
    #[arg(long, value_name = "FILE")]
    pub(super) key_log: Option<PathBuf>,
}

#[derive(Args)]
pub(super) struct LogOptions {
    /// Log events of this level and above: `error` asks the operator to act; `warn` adds refused clients and requests
    /// that failed because of the server; `info` adds sessions and one line per request; `debug` adds each block of a
    /// block-wise transfer.
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = Level::Info)]
    pub(super) log_level: Level,
    /// Format of the log on standard output: text, or one JSON object per line, as with --json.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Text)]
    pub(super) log: Format,
    /// Do not log sessions or successful requests: the same as --log-level warn.
    #[arg(long, short, conflicts_with = "log_level")]
    pub(super) quiet: bool,
}

#[derive(Args)]
pub(super) struct Service {
    /// Serve counters as OpenMetrics at http://ADDRESS:PORT/metrics, and the health of the server at /live and
    /// /ready, on at most 16 connections at once. Anyone who can reach the address can read all three pages.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(super) metrics: Option<SocketAddr>,
    /// When the server ends, wait at most this number of seconds for the responses of commands that still run.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    pub(super) drain: f64,
}

impl LogOptions {
    /// Returns the level of the log.
    pub(super) const fn level(&self) -> Level {
        if self.quiet { Level::Warn } else { self.log_level }
    }
}

pub(super) fn listen_address(text: &str) -> Result<IpAddr, String> {
    text.parse().map_err(|_| match text.parse::<SocketAddr>() {
        Ok(both) => format!("give the address alone, {}; ports are --port {} and --plain-port", both.ip(), both.port()),
        Err(_) => "an IP address of this machine, as 127.0.0.1 or ::1".to_owned(),
    })
}

fn body_size(text: &str) -> Result<usize, String> {
    // A Size1 option has four bytes.
    let size = text.parse().ok().filter(|size| (1..=u32::MAX as usize).contains(size));
    size.ok_or_else(|| "a number of bytes, 1 to 4294967295".to_owned())
}

fn hello_limits(text: &str) -> Result<HelloLimits, String> {
    let numbers = text.split_once(',').map(|(prefix, all)| (prefix.trim().parse(), all.trim().parse()));
    match numbers {
        Some((Ok(per_prefix), Ok(total))) => Ok(HelloLimits { per_prefix, total }),
        _ => Err("write it as PER_PREFIX,IN_ALL: two numbers".to_owned()),
    }
}
