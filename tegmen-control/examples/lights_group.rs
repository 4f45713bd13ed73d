//! Three lamps and a switch in a group that Axiom protects, and their controller. They run in one process, and use IPv4
//! multicast on the loopback interface of this machine. One lamp is evicted, and does not answer any more.

use std::error::Error;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tegmen::coap::Code;
use tegmen::identity::Identity;
use tegmen_control::group::server::{Authority, Event, GroupServer};
use tegmen_control::group::{Controller, GroupConfig, Outgoing, Rekeying};
use tegmen_host::client::{ClientConfig, Request, ask_members};
use tegmen_host::controller::{Controller as AtController, Joining};
use tegmen_host::credentials::Credentials;
use tegmen_host::group::{MemberSettings, Membership};
use tegmen_host::server::{Router, Server, ServerConfig};
use tegmen_host::x509::signer::SoftwareKey;
use tegmen_store::{Database, Options, SealingKey};

const GROUP: &str = "239.255.79.1:20791";
const LAMPS: [&str; 3] = ["hall", "porch", "attic"];
/// The longest time for which a lamp waits before it sends its response.
const LEISURE: Duration = Duration::from_millis(200);
const WAIT: Duration = Duration::from_millis(1500);

/// Returns the address of a member. `member` is 1 to 3 for the lamps, and 9 for the switch.
fn address(member: u8) -> IpAddr {
    IpAddr::from([127, 0, 79, member])
}

/// The rights at the controller: each device with a key may join and send.
struct Everybody(Credentials);

impl Authority for Everybody {
    fn client(&self, identity: &Identity) -> Option<String> {
        self.0.name_of(identity.principal)
    }

    fn may(&self, _: &Identity, _: Code, _: &str) -> bool {
        true
    }
}

/// A socket that sends the messages of the controller to the group and to single members.
struct Sender(UdpSocket);

impl Sender {
    fn open() -> std::io::Result<Self> {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        socket2::SockRef::from(&socket).set_multicast_if_v4(&[127, 0, 0, 1].into())?;
        Ok(Self(socket))
    }

    fn send(&self, rekeying: &Rekeying) {
        for Outgoing { to, bytes } in &rekeying.messages {
            // A member that misses a message asks for its keys.
            let _ = self.0.send_to(bytes, to);
        }
    }
}

/// Writes a credentials file with a key for each device.
fn credentials(dir: &Path) -> Result<Credentials, Box<dyn Error>> {
    let text: String = LAMPS
        .iter()
        .chain([&"switch"])
        .map(|device| format!("[[psk]]\nidentity = \"{device}\"\nkey_text = \"the secret of {device}\"\n"))
        .collect();
    let file = dir.join("credentials.toml");
    private(&file, &text)?;
    Ok(Credentials::from_file(&file)?)
}

fn private(file: &Path, text: &str) -> std::io::Result<()> {
    std::fs::write(file, text)?;
    #[cfg(unix)]
    std::fs::set_permissions(file, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    Ok(())
}

/// Lets a device join the group over DTLS. The membership of the device is stored in a directory.
async fn join(dir: &Path, controller: SocketAddr, device: &str, member: u8) -> Result<Membership, Box<dyn Error>> {
    let config = ClientConfig::psk(device, format!("the secret of {device}"));
    let controller = AtController::of_group(&format!("coaps://{controller}/ace-group/lights"), config)?;
    let joining = Joining { address: Some(address(member)), listens: true, sends: device == "switch" };
    Ok(controller.join(&dir.join(device), joining, &MemberSettings::default()).await?)
}

/// Starts a lamp, which answers requests to the group.
fn lamp(device: &'static str, membership: Membership) -> Result<Server, Box<dyn Error>> {
    let config = ServerConfig::default().with(|config| (config.shards, config.coap.leisure) = (1, LEISURE));
    let router = Router::new().put("/light", move |request, response| {
        response.payload(format!("{device} is {}", String::from_utf8_lossy(request.payload())).as_bytes())
    });
    Ok(Server::with(config).member_of(membership).serve(router)?)
}

/// Sends a request to the lamps. Prints each response, and the lamps that sent no response. Returns the number of
/// responses.
async fn switch(membership: &Membership, value: &str) -> Result<usize, Box<dyn Error>> {
    println!("PUT {value} to the group, in epoch {}", membership.epoch());
    let request = Request::new(Code::PUT, "/light").payload(value.as_bytes());
    let asked = ask_members(membership, &request, WAIT, |from, response| {
        println!("  {}: {}", from.ip(), String::from_utf8_lossy(&response.payload));
    });
    let asked = asked.await?;
    asked.missing.iter().for_each(|member| println!("  {member} is missing"));
    Ok(asked.responded.len())
}

/// Runs the example with files in a directory. Returns the number of responses before and after the eviction.
pub(crate) async fn run(dir: &Path) -> Result<(usize, usize), Box<dyn Error>> {
    // The controller, in a store whose rows are sealed.
    private(&dir.join("sealing.key"), &"4".repeat(64))?;
    let sealing = SealingKey::from_file(&dir.join("sealing.key"))?;
    let options = Options { sealing: Some(Arc::new(sealing)), ..Options::default() };
    let store = Database::open_with(&dir.join("groups.db"), options)?;
    let key = SoftwareKey::from_pem(rcgen::KeyPair::generate()?.serialize_pem().as_bytes())?;
    let controller = Arc::new(Controller::new(store, Some(Arc::new(key)))?);
    controller.create("lights", GroupConfig::at(GROUP.parse()?), &[]).await?;
    let (credentials, sender) = (credentials(dir)?, Arc::new(Sender::open()?));
    let events = {
        let sender = Arc::clone(&sender);
        move |event: Event<'_>| match event {
            Event::Rekeying { rekeying, message, .. } => {
                println!("{message}: epoch {}, {} messages", rekeying.epoch, rekeying.messages.len());
                sender.send(rekeying);
            }
            Event::Refused { message, .. } => println!("{message}"),
        }
    };
    let authority = Arc::new(Everybody(credentials.clone()));
    let application = GroupServer::new(Arc::clone(&controller), authority, Arc::new(events));
    let builder = Server::builder().listen("coaps://127.0.0.1:0").shards(1).credentials(credentials);
    let server = builder.serve(application)?;
    let at = server.addresses().first().ok_or("no address")?.address;

    // The lamps and the switch.
    let (mut lamps, mut members) = (Vec::new(), Vec::new());
    for (device, number) in LAMPS.into_iter().zip(1..) {
        let membership = join(dir, at, device, number).await?;
        members.push(membership.clone());
        lamps.push(lamp(device, membership)?);
    }
    let of_switch = join(dir, at, "switch", 9).await?;
    in_epoch(&members, of_switch.epoch()).await?;
    let before = switch(&of_switch, "on").await?;

    // A lamp is evicted. The others and the switch get the next epoch; the switch asks for it, because it hears no messages.
    println!("The controller evicts the attic.");
    let rekeying = controller.evict("lights", "attic").await?;
    sender.send(&rekeying);
    let config = ClientConfig::psk("switch", "the secret of switch");
    let uri = format!("coaps://{at}/ace-group/lights");
    AtController::of_group(&uri, config)?.catch_up(&of_switch).await?;
    members.truncate(2);
    in_epoch(&members, rekeying.epoch).await?;
    let after = switch(&of_switch, "off").await?;
    for lamp in lamps {
        lamp.stop();
    }
    server.stop();
    Ok((before, after))
}

/// Waits until all members have received the messages of the controller, and are in this epoch.
async fn in_epoch(members: &[Membership], epoch: u16) -> Result<(), Box<dyn Error>> {
    for _ in 0..500 {
        if members.iter().all(|member| member.epoch() == epoch) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Err("the lamps hear no messages: is multicast possible at the loopback interface?".into())
}

#[allow(dead_code, reason = "a test plays the scene, too")]
fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::temp_dir().join(format!("tegmen-lights-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answers = runtime.block_on(run(&dir));
    std::fs::remove_dir_all(&dir)?;
    match answers? {
        (3, 2) => Ok(()),
        (before, after) => Err(format!("{before} answers before the eviction and {after} afterwards").into()),
    }
}
