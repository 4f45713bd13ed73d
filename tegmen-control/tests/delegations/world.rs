//! A server of delegated sessions with a device, and peers of this device.

pub(crate) use crate::disk::{Counting, Moment, Scene, wait};
use crate::recorder::{Recording, Seals};
use std::cell::Cell;
use std::sync::Arc;
use tegmen::buf::Writer;
use tegmen::dtls::{CipherSuite, MASTER_LEN, SessionState};
use tegmen::identity::Principal;
use tegmen_base::secret::Secret;
use tegmen_base::time::Instant;
use tegmen_coap::Rule;
use tegmen_control::access::policy::{Party, Policy, TestedPolicy};
use tegmen_control::audit::{AuditBounds, AuditLog};
use tegmen_control::delegation::{ConnectionId, Delegations, DeviceConfig, NextEpoch, Rights};
use tegmen_delegation::{
    Connection, Delegation, Device, DeviceKey, Epoch, LONGEST_TICKET, Lost, Memory, Refused, Ticket,
};
use tegmen_host::delegate::Proved;
use tegmen_store::Store;
use tegmen_trust::provider::HostCrypto;
use tegmen_trust::x509::signer::SoftwareKey;

/// The name of the device in the tests.
pub(crate) const LAMP: &str = "lamp.example";
/// The name of another device. The policy lets the lamp open a session with it.
pub(crate) const DOOR: &str = "door.example";
const START: Instant = Instant::from_micros(1_000_000);
/// The time at which each test begins, in seconds since 1970.
pub(crate) const TIME: u64 = 1_800_000_000;

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(TIME) };
}

fn clock() -> u64 {
    NOW.get()
}

/// Moves the clock of the server forward.
pub(crate) fn pass(seconds: u64) {
    NOW.set(NOW.get() + seconds);
}

const POLICY: &str = r#"
[[rule]]
subject = ["reader-*", "writer"]
publisher = "tag:lamp"
allow = "read /*"

[[rule]]
subject = "writer"
publisher = "tag:lamp"
allow = "PUT /light"

[[rule]]
subject = "lamp.example"
publisher = "door.example"
allow = "GET /light"

[[rule]]
subject = "reader-9"
publisher = "*"
deny = "GET /light"

[[test]]
subject = "writer"
publisher = ["lamp.example", "tag:lamp"]
request = "PUT /light"
expect = "allow"
"#;

struct OnePolicy(TestedPolicy);

impl Rights for OnePolicy {
    fn allow(&self, peer: &str, device: &Party<'_>, rules: &[Rule<'_>]) -> bool {
        rules.iter().all(|rule| self.0.allows_all(&Party::named(peer), device, rule))
    }
}

/// Returns the configuration of the device. A peer that may write the light gets the scope 0, and a peer that may only
/// read it gets the scope 1.
pub(crate) fn config() -> DeviceConfig {
    let scopes = [vec!["GET /light".to_owned(), "PUT /light".to_owned()], vec!["GET /light".to_owned()]];
    DeviceConfig {
        tags: vec!["lamp".to_owned()],
        address: "[fd00::1]:5684".parse().unwrap(),
        scopes: scopes.into(),
        places: 4,
        lifetime: 3600,
    }
}

pub(crate) type Server<S> = Delegations<S, Recording>;

/// Opens the server on a store.
pub(crate) fn server<S: Store>(scene: &Scene, store: S, seals: &Seals) -> Server<S> {
    server_with(scene, store, seals, POLICY)
}

/// Opens the server on a store, with this policy in force.
pub(crate) fn server_with<S: Store>(scene: &Scene, store: S, seals: &Seals, policy: &str) -> Server<S> {
    let signer = SoftwareKey::from_pem(rcgen::KeyPair::generate().unwrap().serialize_pem().as_bytes()).unwrap();
    let log = scene.0.join(format!("audit-{}", rand()));
    let audit = AuditLog::open(&log, Arc::new(signer), AuditBounds::default()).unwrap();
    let rights = OnePolicy(Policy::parse("policy.toml", policy).unwrap().tested().unwrap());
    let crypto = Recording::new(seals, HostCrypto::from_os().unwrap());
    wait(Delegations::with(store, Arc::new(rights), audit, crypto, clock)).unwrap()
}

fn rand() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

fn secret() -> [u8; 32] {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).unwrap();
    bytes
}

/// The durable memory of a device that does not restart. It contains only the device key of epoch 0, and writing never
/// fails.
pub(crate) struct Ram(Secret<32>);

impl Memory for Ram {
    type Error = ();

    fn load(&mut self, epoch: &mut Epoch, _: &mut [u32]) -> Result<usize, Lost> {
        *epoch = Epoch::first(DeviceKey(Secret::new(*self.0.expose())));
        Ok(0)
    }

    fn keep_epoch(&mut self, _: &Epoch) -> Result<(), ()> {
        Ok(())
    }

    fn keep_refused(&mut self, _: u16, _: u32) -> Result<(), ()> {
        Ok(())
    }
}

pub(crate) type Lamp = Device<Ram, 4, 2, 64>;

/// Makes a device that has this device key and knows the time.
pub(crate) fn lamp(key: &Secret<32>) -> Lamp {
    let mut device = Device::load(Ram(Secret::new(*key.expose()))).unwrap();
    tell_time(&mut device);
    device
}

/// Sets the clock of a device to the time of the server.
pub(crate) fn tell_time(device: &mut Lamp) {
    device.set_time(START, u32::try_from(clock()).unwrap());
}

/// Lets the server ask the device to begin the next epoch, and lets the device begin it. The server does not receive
/// the response.
pub(crate) fn ask<S: Store>(server: &Server<S>, device: &mut Lamp) -> NextEpoch {
    ask_named(server, LAMP, device)
}

fn ask_named<S: Store>(server: &Server<S>, name: &str, device: &mut Lamp) -> NextEpoch {
    let exported = Secret::new(secret());
    let next = wait(server.begin_epoch(name, &exported)).unwrap();
    device.begin_epoch::<HostCrypto>(next.number, &exported, &next.check).unwrap();
    next
}

/// Begins the next epoch at the device and at the server. Also reserves the first numbers of this epoch.
pub(crate) fn next_epoch<S: Store>(server: &Server<S>, device: &mut Lamp) {
    next_epoch_of(server, LAMP, device);
}

/// Begins the next epoch as [`next_epoch`] does, for the device with this name.
pub(crate) fn next_epoch_of<S: Store>(server: &Server<S>, name: &str, device: &mut Lamp) {
    let next = ask_named(server, name, device);
    wait(server.epoch_begun(name, next)).unwrap();
    settle(server);
}

pub(crate) fn settle<S: Store>(server: &Server<S>) {
    wait(server.settle()).unwrap();
}

/// Adds the device to the server, and begins epoch 1. Returns the device.
pub(crate) fn imprinted<S: Store>(server: &Server<S>) -> Lamp {
    let mut device = lamp(&wait(server.imprint(LAMP, config(), "root")).unwrap());
    next_epoch(server, &mut device);
    device
}

/// Makes a lamp and a door. The lamp has a session with the door, which the server opened between the two devices.
pub(crate) fn introduced<S: Store>(server: &Server<S>) -> (Lamp, Lamp) {
    let device = imprinted(server);
    let config = DeviceConfig { tags: Vec::new(), ..config() };
    let mut door = lamp(&wait(server.imprint(DOOR, config, "root")).unwrap());
    next_epoch_of(server, DOOR, &mut door);
    wait(server.introduce(LAMP, DOOR)).unwrap();
    (device, door)
}

/// Returns the state of a session that a peer opened at the server with a certificate.
pub(crate) fn session() -> SessionState {
    let mut master = [0; MASTER_LEN];
    getrandom::fill(&mut master).unwrap();
    let cipher_suite = CipherSuite::ECDHE_ECDSA_WITH_AES_128_CCM_8;
    SessionState { cipher_suite, master: Secret::new(master), principal: Principal::NOBODY, since: None }
}

/// Seals a ticket for a session, and returns it; `None` if the peer gets no ticket.
pub(crate) fn seal<S: Store>(server: &Server<S>, peer: Option<Proved<'_>>, session: &SessionState) -> Option<Vec<u8>> {
    let device = server.device(LAMP.as_bytes())?;
    let mut room = [0; LONGEST_TICKET];
    let mut ticket = Writer::new(&mut room);
    server.seal_ticket(device, peer, session, &mut ticket)?;
    Some(ticket.written().to_vec())
}

/// Returns the ticket that a peer gets when it authenticates itself; `None` if it gets no ticket.
pub(crate) fn ticket<S: Store>(server: &Server<S>, peer: &str) -> Option<Vec<u8>> {
    seal(server, Some(peer.into()), &session())
}

/// Returns the new ticket that a peer gets when it returns with an earlier ticket; `None` if it gets no ticket.
pub(crate) fn renew<S: Store>(server: &Server<S>, ticket: &[u8]) -> Option<Vec<u8>> {
    let found = server.open_ticket(server.device(LAMP.as_bytes())?, ticket)?;
    assert!(found.renew);
    seal(server, None, &found.session)
}

/// Returns the new ticket of a peer that returns with a ticket to a faulty server. This server treats the peer like a
/// peer that authenticates itself now.
pub(crate) fn authenticated_again<S: Store>(server: &Server<S>, peer: &str, ticket: &[u8]) -> Option<Vec<u8>> {
    let found = server.open_ticket(server.device(LAMP.as_bytes())?, ticket)?;
    let session = SessionState { principal: Principal::NOBODY, since: None, ..found.session };
    seal(server, Some(peer.into()), &session)
}

/// Opens a ticket at the device.
pub(crate) fn open(device: &mut Lamp, ticket: &[u8]) -> Result<(Connection, Delegation), Refused> {
    let delegation = device.open(START, &mut HostCrypto::from_os().unwrap(), Ticket(ticket))?;
    Ok((delegation.connection().unwrap(), delegation))
}

/// Revokes a connection.
pub(crate) fn revoke<S: Store>(server: &Server<S>, id: ConnectionId) {
    wait(server.revoke(LAMP, id, "root")).unwrap();
}
