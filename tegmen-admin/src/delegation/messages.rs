//! The bodies of requests and responses about delegated sessions.

use crate::problem::{Code, Problem};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use tegmen_base::hex::to_hex;
use tegmen_base::secret::Secret;
use tegmen_control::delegation::{
    CertificateReport, ConnectionId, ConnectionPage, Contact, DelegatedConnection, DeviceConfig, DeviceReport,
    Introduced, Reachable, Reissue, ReplacedCertificate, ResetPreview, Unreachable,
};
use tegmen_delegation::{PSK_LEN, Refused, Status};

/// Pattern for a device key in hexadecimal digits.
const KEY: &str = "^[0-9a-f]{64}$";
/// Pattern for the identifier of a connection.
const CONNECTION: &str = "^[0-9]+-[0-9]+$";
/// Maximum number of devices in one `POST /v1/delegation/server-compromised`.
const MOST: usize = 256;

/// The configuration of a delegated device.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DelegatedDeviceConfiguration")]
pub(crate) struct WantedConfig {
    /// The address and the port at which the device receives requests from its server, such as `[fd00::17]:5684`.
    #[schemars(with = "String")]
    address: SocketAddr,
    /// The scopes that the device knows, each a list of rules such as `GET /temp`. A peer gets the first scope whose
    /// rules are all allowed by the policy.
    scopes: Vec<Vec<String>>,
    /// The tags with which rules of the policy name the device.
    #[serde(default)]
    tags: Vec<String>,
    /// Maximum number of entries in the device's list of refused connections.
    #[serde(default = "places")]
    #[schemars(range(min = 1))]
    places: u32,
    /// The duration of a delegation in seconds: at most 31 days.
    #[serde(default = "lifetime")]
    #[schemars(range(min = 1, max = 2_678_400))]
    lifetime: u32,
}

const fn places() -> u32 {
    16
}

const fn lifetime() -> u32 {
    86_400
}

impl From<WantedConfig> for DeviceConfig {
    fn from(wanted: WantedConfig) -> Self {
        let WantedConfig { address, scopes, tags, places, lifetime } = wanted;
        Self { tags, address, scopes, places, lifetime }
    }
}

/// A device to be imprinted.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewDelegatedDevice")]
pub(crate) struct Wanted {
    /// The DNS name with which peers ask for the device: a host name in lower case, of at most 64 bytes.
    pub(crate) name: String,
    /// The configuration of the device.
    pub(crate) config: WantedConfig,
}

/// A change of a device.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DelegatedDeviceChange")]
pub(crate) struct Changed {
    /// True disables the device: the server then opens no sessions in its name.
    pub(crate) disabled: bool,
}

/// The names of the devices to which the server gives new device keys, because an intruder had access to the server.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "CompromisedServer")]
pub(crate) struct Compromised {
    /// The names of 1 to 256 devices.
    devices: Vec<String>,
}

impl Compromised {
    pub(crate) fn check(self) -> Result<Vec<String>, Problem> {
        match self.devices.len() {
            1..=MOST => Ok(self.devices),
            _ => Err(Problem::new(Code::InvalidDevice, "devices has 1 to 256 names of delegated devices")),
        }
    }
}

/// A session between two devices of the server.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewIntroduction")]
pub(crate) struct Introduction {
    /// The name of the device that opens the session.
    pub(crate) opener: String,
    /// The name of the other device.
    pub(crate) other: String,
}

/// The connections of two devices that have a session with each other.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Introduction")]
pub(crate) struct ShownIntroduction {
    /// The identifier of the session's connection at the device that opens the session.
    #[schemars(extend("pattern" = CONNECTION))]
    opener: String,
    /// The identifier of the session's connection at the other device.
    #[schemars(extend("pattern" = CONNECTION))]
    other: String,
}

impl From<Introduced> for ShownIntroduction {
    fn from(Introduced { opener, other }: Introduced) -> Self {
        Self { opener: opener.to_string(), other: other.to_string() }
    }
}

/// A session of a device with a remote server. The delegation server opens the session in the name of the device, and
/// the device then resumes the session.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "NewDelegatedSession")]
pub(crate) struct WantedSession {
    /// The name of the device that resumes the session.
    pub(crate) device: String,
    /// The address and the port of the remote server, such as `[2001:db8::5]:5684`.
    #[schemars(with = "String")]
    pub(crate) address: SocketAddr,
    /// The name that the certificate of the remote server must have.
    #[schemars(length(min = 1))]
    pub(crate) server_name: String,
}

/// The delegated connection of a session that a device resumes with a remote server.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DelegatedSession")]
pub(crate) struct ShownSession {
    /// The connection.
    #[schemars(extend("pattern" = CONNECTION))]
    connection: String,
}

impl From<ConnectionId> for ShownSession {
    fn from(id: ConnectionId) -> Self {
        Self { connection: id.to_string() }
    }
}

/// The state of a device, from its last response.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DelegatedDeviceStatus")]
struct ShownStatus {
    /// The number of used entries in the device's list of refused connections.
    refused: u16,
    /// Maximum number of entries in the device's list of refused connections.
    places: u16,
    /// The number of sessions that the server sent to the device, and that the device still stores.
    sessions: u16,
    /// Maximum number of sessions from the server that the device can store.
    most_sessions: u16,
    /// The number of sessions that the device refused since its start, for each reason.
    refusals: ShownRefusals,
}

/// The number of sessions that a device refused since its start, for each reason.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DelegatedDeviceRefusals")]
struct ShownRefusals {
    /// The number of sessions whose ticket was forged, was changed, or was sealed for another device.
    unknown: u16,
    /// The number of sessions whose ticket belongs to another epoch.
    epoch: u16,
    /// The number of sessions whose connection the server has revoked.
    revoked: u16,
    /// The number of sessions whose delegation has expired.
    expired: u16,
    /// The number of sessions that the device refused because, by the clock of the device, the peer authenticated more
    /// than 60 seconds in the future.
    early: u16,
    /// The number of sessions that the device refused because it did not know the present time.
    no_time: u16,
}

impl From<Status> for ShownStatus {
    fn from(status: Status) -> Self {
        let Status { refused, most_refused: places, sessions, most_sessions, refusals, .. } = status;
        let refusals = ShownRefusals {
            unknown: refusals.of(Refused::Unknown),
            epoch: refusals.of(Refused::Epoch),
            revoked: refusals.of(Refused::Revoked),
            expired: refusals.of(Refused::Expired),
            early: refusals.of(Refused::Early),
            no_time: refusals.of(Refused::NoTime),
        };
        Self { refused, places, sessions, most_sessions, refusals }
    }
}

/// The failed contacts of the server with a device that does not answer, or that refuses a request of the server.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "UnreachableDevice")]
struct ShownUnreachable {
    /// The time of the first failed contact of the server with the device after the last successful one, in seconds
    /// since 1970.
    since: u64,
    /// The number of failed contacts of the server with the device since the last successful one.
    attempts: u32,
    /// The reason why the last contact of the server with the device failed.
    why: String,
}

/// The certificate of a device.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DelegatedDeviceCertificate")]
struct ShownCertificate {
    /// The time at which the certificate expires, in seconds since 1970; null if the device has no certificate.
    expires: Option<u64>,
    /// The reason why the device has no certificate, or why the certificate is not renewed.
    problem: Option<String>,
}

/// A delegated device, without its keys.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DelegatedDevice")]
pub(crate) struct ShownDevice {
    name: String,
    tags: Vec<String>,
    /// The address at which the device receives requests from its server.
    address: String,
    scopes: Vec<Vec<String>>,
    places: u32,
    lifetime: u32,
    disabled: bool,
    /// The time at which the device key was generated, in seconds since 1970.
    imprinted: u64,
    /// The number of the present epoch; 0 before the first one.
    epoch: u16,
    /// The number of the previous epoch, if its connections continue in the present epoch.
    before: Option<u16>,
    /// The number of the next epoch, if the server has asked the device to begin it and the device has not acknowledged
    /// it.
    pending: Option<u16>,
    /// The reason why the next epoch must begin: the name of the operator who requested it, or another cause. Null if
    /// no new epoch is due.
    reset: Option<String>,
    /// The number of revoked connections that the device must refuse in the present epoch of its keys.
    refused: usize,
    /// The number of connections whose revocation the device has not acknowledged.
    untold: usize,
    /// True if the store was restored from a backup in the present epoch. The server then makes no new connections
    /// until the next epoch begins.
    restored: bool,
    /// The time of the last successful contact of the server with the device since the server started, in seconds since
    /// 1970.
    heard: Option<u64>,
    /// The state of the device at the time of the last successful contact of the server with it.
    status: Option<ShownStatus>,
    /// The failed contacts of the server with the device since the last successful one, if there were any.
    unreachable: Option<ShownUnreachable>,
    /// The certificate with which the server opens sessions in the name of the device.
    certificate: Option<ShownCertificate>,
}

impl From<DeviceReport> for ShownDevice {
    fn from(report: DeviceReport) -> Self {
        let Contact { heard, status, unreachable } = report.contact;
        let unreachable =
            unreachable.map(|Unreachable { since, attempts, why }| ShownUnreachable { since, attempts, why });
        Self {
            name: report.name,
            tags: report.tags,
            address: report.address.to_string(),
            scopes: report.scopes,
            places: report.places,
            lifetime: report.lifetime,
            disabled: report.disabled,
            imprinted: report.imprinted,
            epoch: report.epoch,
            before: report.before,
            pending: report.pending,
            reset: report.reset,
            refused: report.refused,
            untold: report.untold,
            restored: report.restored,
            heard,
            status: status.map(ShownStatus::from),
            unreachable,
            certificate: report
                .certificate
                .map(|CertificateReport { expires, problem }| ShownCertificate { expires, problem }),
        }
    }
}

/// A page of delegated devices in the order of their names.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DelegatedDevices")]
pub(crate) struct ShownDevices {
    /// The devices.
    pub(crate) devices: Vec<ShownDevice>,
    /// The cursor of the next page; null on the last page.
    pub(crate) next: Option<String>,
}

/// A device that got a new device key.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ImprintedDevice")]
pub(crate) struct Imprinted {
    name: String,
    /// The device key in hexadecimal digits. The response to a repeated request does not contain it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = KEY))]
    key: Option<String>,
}

impl Imprinted {
    pub(crate) fn new(name: String, key: &Secret<PSK_LEN>) -> Self {
        Self { name, key: Some(to_hex(key.expose())) }
    }
}

/// A delegated connection.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DelegatedConnection")]
pub(crate) struct ShownConnection {
    /// The identifier of the connection: the number of its epoch, and the number of the connection in this epoch.
    #[schemars(extend("pattern" = CONNECTION))]
    id: String,
    /// The name that the peer has proved.
    peer: String,
    /// The index of the scope at the device.
    scope: u8,
    /// The time at which the peer and the server authenticated each other, in seconds since 1970.
    since: u32,
    /// The time from which the device refuses the connection, in seconds since 1970.
    expires: u32,
    /// The way in which the device gets the session. `ticket`: the peer sends a ticket to the device. `id`: the server
    /// sends the session to the device, and the peer resumes it by its session id. `device`: the server sends the
    /// session to the device, and the device resumes it with the peer.
    #[schemars(extend("enum" = ["ticket", "id", "device"]))]
    carrier: &'static str,
    /// The connection of the previous epoch that this connection replaces.
    #[schemars(extend("pattern" = CONNECTION))]
    of: Option<String>,
    revoked: bool,
}

impl From<DelegatedConnection> for ShownConnection {
    fn from(connection: DelegatedConnection) -> Self {
        let DelegatedConnection { id, peer, scope, since, expires, carrier, of, revoked } = connection;
        let (id, of, carrier) = (id.to_string(), of.map(|of| of.to_string()), carrier.word());
        Self { id, peer, scope, since, expires, carrier, of, revoked }
    }
}

/// A page of the connections of a device. The connections of the previous epoch come first.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "DelegatedConnections")]
pub(crate) struct ShownConnections {
    /// The connections.
    connections: Vec<ShownConnection>,
    /// The cursor of the next page; null on the last page.
    next: Option<String>,
}

impl From<ConnectionPage> for ShownConnections {
    fn from(page: ConnectionPage) -> Self {
        let next = page.next.map(|next| to_hex(next.to_string().as_bytes()));
        Self { connections: page.connections.into_iter().map(Into::into).collect(), next }
    }
}

/// The reserved connection numbers for which the store has no connection.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "UnaccountedConnections")]
pub(crate) struct Unaccounted {
    /// Identifiers of connections that a server may have given to peers before it was killed. An operator can revoke
    /// each of these connections.
    connections: Vec<String>,
}

impl From<Vec<ConnectionId>> for Unaccounted {
    fn from(ids: Vec<ConnectionId>) -> Self {
        Self { connections: ids.iter().map(ToString::to_string).collect() }
    }
}

/// A connection that was revoked, and the connections that were revoked with it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RevokedConnections")]
pub(crate) struct ShownRevoked {
    /// The identifiers of the revoked connection, of the connection that it replaced, and of the connections that
    /// replaced it.
    connections: Vec<String>,
    /// True if the device gets the revocation only with the next epoch.
    by_reset: bool,
    /// True if the device has confirmed within 2 seconds that it refuses the connections. If false, the device may still
    /// accept them, until the server has reached the device.
    confirmed: bool,
}

impl ShownRevoked {
    pub(crate) fn new(revoked: &tegmen_control::delegation::Revoked, confirmed: bool) -> Self {
        let connections = revoked.connections.iter().map(ToString::to_string).collect();
        Self { connections, by_reset: revoked.by_reset, confirmed }
    }
}

/// The effects of the next epoch of a device.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "EpochPreview")]
pub(crate) struct ShownPreview {
    /// The number of the present epoch.
    epoch: u16,
    /// The number of connections whose peers get another ticket when they return to the server.
    return_by_ticket: usize,
    /// The number of connections whose session the server sent to the device. The next epoch ends these connections.
    end: usize,
    /// The number of connections of the previous epoch whose peers have not returned. These peers must authenticate
    /// themselves again.
    end_unreturned: usize,
    /// The number of connections that are revoked now. The next epoch removes them from the device's list of refused
    /// connections.
    revoked: usize,
}

impl From<ResetPreview> for ShownPreview {
    fn from(preview: ResetPreview) -> Self {
        let ResetPreview { epoch, return_by_ticket, end, end_unreturned, revoked } = preview;
        Self { epoch, return_by_ticket, end, end_unreturned, revoked }
    }
}

/// A connection of the previous epoch that is not replaced in the present epoch.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReissuedConnection")]
pub(crate) struct ShownReissue {
    /// The connection of the previous epoch, or a connection of the present epoch whose scope the policy no longer allows.
    before: ShownConnection,
    /// The way in which the connection `before` continues. `again`: the server gives a new session to both devices.
    /// `returns`: the peer gets another ticket when it returns to the server. `ends`: the connection does not continue.
    /// `no-rights`: the policy no longer allows the scope of the connection, so revoke the connection.
    #[schemars(extend("enum" = ["again", "returns", "ends", "no-rights"]))]
    way: &'static str,
    /// The identifier of the new connection that replaces the connection `before`; null if the server made no new
    /// connection.
    #[schemars(extend("pattern" = CONNECTION))]
    given: Option<String>,
    /// The code of the reason why the server could not replace the connection `before`; null if there was no failure.
    failed: Option<&'static str>,
}

/// The connections of the previous epoch that are not replaced in the present epoch.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReissuedConnections")]
pub(crate) struct ShownReissues {
    /// The connections.
    connections: Vec<ShownReissue>,
}

impl From<Vec<Reissue>> for ShownReissues {
    fn from(reissues: Vec<Reissue>) -> Self {
        let shown = |Reissue { before, way, given, failed }: Reissue| ShownReissue {
            before: before.into(),
            way: way.word(),
            given: given.map(|given| given.to_string()),
            failed,
        };
        Self { connections: reissues.into_iter().map(shown).collect() }
    }
}

/// A device that has a new device key, because an intruder had access to its server.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReachableDevice")]
pub(crate) struct ShownReachable {
    name: String,
    /// The new device key in hexadecimal digits, which an operator brings to the device.
    #[schemars(extend("pattern" = KEY))]
    key: String,
    /// The connections of the device that have not expired. Until the device gets the new device key in `key`, an
    /// intruder with the old keys can read the records of these connections and resume their sessions.
    connections: Vec<ShownConnection>,
    /// The certificates of the device that the server replaced, without those that have expired.
    certificates: Vec<ShownReplaced>,
}

/// A certificate of a device that the server no longer uses, because an intruder may have a copy of its private key.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReplacedCertificate")]
pub(crate) struct ShownReplaced {
    /// The serial number in hexadecimal digits.
    serial: String,
    /// The issuer of the certificate (RFC 4514).
    issuer: String,
    /// The time at which the certificate expires, in seconds since 1970.
    expires: u64,
    /// True if the certificate is in the revocation list of its authority. If this is false, the operator must ask the
    /// authority to revoke the certificate.
    revoked: bool,
}

impl From<ReplacedCertificate> for ShownReplaced {
    fn from(ReplacedCertificate { serial, issuer, expires, revoked }: ReplacedCertificate) -> Self {
        Self { serial, issuer, expires, revoked }
    }
}

/// The new device keys that the server generated, because an intruder had access to the server.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ReachableDevices")]
pub(crate) struct ShownDrill {
    /// The devices with their new device keys. The response to a repeated request does not contain this list.
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<Vec<ShownReachable>>,
}

impl From<Vec<Reachable>> for ShownDrill {
    fn from(reachable: Vec<Reachable>) -> Self {
        let shown = |Reachable { device, key, connections, certificates }: Reachable| ShownReachable {
            name: device,
            key: to_hex(key.expose()),
            connections: connections.into_iter().map(Into::into).collect(),
            certificates: certificates.into_iter().map(Into::into).collect(),
        };
        Self { devices: Some(reachable.into_iter().map(shown).collect()) }
    }
}
