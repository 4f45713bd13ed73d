//! The command `tegmen up`. First it runs a demonstration on one machine, which is called the tour. The steps of the
//! tour show an access control server with a publisher and subscribers, a group of lamps with a switch, and a device
//! with delegated sessions. Then a server and a client run, and other clients can join.

mod delegated;
mod folder;
mod group;
mod lamps;
mod outsider;
mod parties;
mod step;
mod tour;

use crate::log::{Format, Level, Log};
use crate::output::{Failure, Output, runtime};
use crate::random;
use crate::serve::{ended, event_sink, hangups};
use clap::Args;
use folder::Folder;
use parties::AccessControl;
use serde_json::json;
use std::future::IntoFuture as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tegmen::coap::Code;
use tegmen_host::client::{ClientConfig, ClientKey, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::hex::to_hex;
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::server::{Event, Server};
use tegmen_host::uri::Scheme;
use tour::Tour;
use zeroize::Zeroizing;

/// The PSK identity of the client in the Blink paper.
const IDENTITY: &str = "Client_identity";

#[derive(Args)]
#[command(after_help = "Examples:\n  tegmen up\n  tegmen up --once 20 --json\n  tegmen up --port 0 --period 100")]
pub(crate) struct Up {
    /// Stop after the steps of the demonstration and N requests of the client, and print a summary; the exit code is 0
    /// if all requests succeeded.
    #[arg(long, value_name = "N")]
    once: Option<u64>,
    /// Port of the server; 0 takes any free port. Other clients can also use this port.
    #[arg(long, default_value_t = 5684)]
    port: u16,
    /// Milliseconds from one request of the client to the next.
    #[arg(long)]
    period: Option<u64>,
}

#[derive(Default)]
struct Tally {
    sent: u64,
    answered: u64,
    round_trips: Vec<Duration>,
    /// Number of handshake flights that the client or the server retransmitted.
    retransmitted: u32,
}

impl Up {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        let runtime = runtime()?;
        let mut end = {
            // From before the first file with a key, so that no signal leaves one behind.
            let _context = runtime.enter();
            ending()
        };
        let key = Zeroizing::new(fresh_text_key()?.into_bytes());
        let credentials = Credentials::single(IDENTITY, &key);
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let resources = Resources::new([("blink".to_owned(), Resource::Blink(Arc::default()))]);
        let log = Log::start(Level::Info, if out.json { Format::Json } else { Format::Text }).map_err(Failure::io)?;
        let builder = Server::builder().listen(&format!("coaps://{address}")).shards(1);
        let server = builder.credentials(credentials).on_event(guests(log.clone()));
        let server = server.serve(resources).map_err(Failure::new)?;
        let address = server.addresses().first().map_or(address, |listen| listen.address);
        let folder = Folder::new()?;
        let access = AccessControl::start(&folder, &log)?;
        let key = ClientKey { identity: IDENTITY.to_owned(), key };
        let mut tally = runtime.block_on(async {
            let mut tour = Tour::start(access, folder, guests(log.clone())).await?;
            let tally = self.show(out, &mut tour, address, key, &mut end).await?;
            let retransmitted = tally.retransmitted + tour.stop().await;
            Ok::<_, Failure>(Tally { retransmitted, ..tally })
        })?;
        tally.retransmitted += server.stop().counters.retransmitted;
        log.end();
        Ok(self.summarize(out, &tally))
    }

    /// Runs the steps of the tour, which is the demonstration of `tegmen up`. Then sends the requests of a client. The
    /// parties of the tour continue to run, because the commands that the tour prints need them.
    async fn show(
        &self,
        out: Output,
        tour: &mut Tour,
        address: SocketAddr,
        key: ClientKey,
        end: &mut Ending,
    ) -> Result<Tally, Failure> {
        tokio::select! {
            () = &mut *end => return Ok(Tally::default()),
            walked = tour.walk(out) => walked?,
        }
        if self.once.is_none() {
            tour.suggest(out)?;
        }
        self.introduce(out, address, &key.key);
        let blinks = self.blink(out, address, key, end);
        if self.once.is_some() {
            return blinks.await;
        }
        tokio::select! {
            tally = blinks => tally,
            failure = tour.publish(out) => match failure? {},
        }
    }

    fn introduce(&self, out: Output, address: SocketAddr, key: &[u8]) {
        let hex = to_hex(key);
        let (ip, port) = (address.ip(), address.port());
        if out.json {
            return out.line(
                String::new,
                || json!({ "event": "listening", "address": address.to_string(), "identity": IDENTITY, "key": hex }),
            );
        }
        out.text(format!(
            "\nA CoAP server behind DTLS listens at coaps://{address}/blink, and a client blinks against it."
        ));
        if self.once.is_some() {
            return;
        }
        let text = String::from_utf8_lossy(key);
        out.text(format!(
            "Join in from another terminal; the key is fresh and ends with this program:\n\n  \
             tegmen put -u {IDENTITY} -k {hex} coaps://{address}/blink 1\n  \
             coap-client-openssl -m put -e 1 -u {IDENTITY} -k {text} coaps://{address}/blink\n  \
             openssl s_client -dtls1_2 -connect {ip}:{port} -psk_identity {IDENTITY} -psk {hex} \
             -cipher PSK-AES128-CCM8:@SECLEVEL=0\n\n\
             Ctrl-C ends it.\n"
        ));
    }

    async fn blink(
        &self,
        out: Output,
        address: SocketAddr,
        key: ClientKey,
        end: &mut Ending,
    ) -> Result<Tally, Failure> {
        let mut config = ClientConfig::default();
        config.trust.key = Some(key);
        config.coap.token_len = 1;
        let client = Session::connect_to(address, Scheme::Coaps, config).await.map_err(Failure::new)?;
        let handshake = client.handshake_time();
        out.line(
            || format!("handshake with {} done in {:.2} ms", client.remote(), handshake.as_secs_f64() * 1e3),
            || json!({ "event": "handshake", "ms": handshake.as_secs_f64() * 1e3 }),
        );
        let period = self.period.unwrap_or(if self.once.is_some() { 20 } else { 1000 });
        let mut every = tokio::time::interval(Duration::from_millis(period.max(1)));
        every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut tally = Tally::default();
        while self.once.is_none_or(|once| tally.sent < once) {
            tokio::select! {
                () = &mut *end => break,
                _ = every.tick() => {}
            }
            // A request that the signal interrupts does not count: it did not fail.
            let reply = tokio::select! {
                () = &mut *end => break,
                reply = client.put("/blink", b"1").into_future() => reply.map_err(Failure::new)?,
            };
            tally.sent += 1;
            let counter = reply.payload.first().copied().unwrap_or(0);
            if reply.code == Code::CHANGED && reply.payload.len() == 1 {
                tally.answered += 1;
                tally.round_trips.push(reply.round_trip);
            }
            out.line(
                || format!("  {}  {:>3}   {:.2} ms", leds(counter), counter, reply.round_trip.as_secs_f64() * 1e3),
                || json!({ "event": "blink", "counter": counter, "code": reply.code.to_string(), "ms": reply.round_trip.as_secs_f64() * 1e3 }),
            );
        }
        tally.retransmitted = client.counters().retransmitted;
        client.close();
        Ok(tally)
    }

    fn summarize(&self, out: Output, tally: &Tally) -> ExitCode {
        let mut sorted = tally.round_trips.clone();
        sorted.sort();
        let median = sorted.get(sorted.len() / 2).map_or(0.0, |median| median.as_secs_f64() * 1e3);
        let complete = tally.answered == tally.sent && self.once.is_none_or(|once| tally.answered == once);
        out.line(
            || {
                format!(
                    "\n{} of {} protected exchanges (TLS_PSK_WITH_AES_128_CCM_8), median round trip {median:.2} ms, \
                     {} handshake flights retransmitted",
                    tally.answered, tally.sent, tally.retransmitted
                )
            },
            || {
                json!({ "event": "summary", "exchanges": tally.answered, "sent": tally.sent, "protected": true,
                        "cipher_suite": "TLS_PSK_WITH_AES_128_CCM_8", "median_ms": median,
                        "retransmitted": tally.retransmitted })
            },
        );
        if complete { ExitCode::SUCCESS } else { ExitCode::from(1) }
    }
}

/// A future that is ready when the program must end.
type Ending = Pin<Box<dyn Future<Output = ()>>>;

/// Returns a future that is ready after an interrupt, a termination signal or a hangup that arrives after this call.
/// Call this function in the context of a runtime.
fn ending() -> Ending {
    let (ended, mut hangups) = (ended(), hangups());
    Box::pin(async move {
        tokio::select! { () = ended => {} _ = hangups.next() => {} }
    })
}

/// Formats the low three bits of the counter as three LEDs. The motes of the Blink paper have such LEDs.
fn leds(counter: u8) -> String {
    [4, 2, 1].map(|bit| if counter & bit > 0 { '●' } else { '○' }).iter().collect()
}

/// Makes a new key with 130 random bits. It consists of letters and digits, because some clients accept a key only as
/// text.
fn fresh_text_key() -> Result<String, Failure> {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnopqrstuvwxyz2345678";
    Ok(random::bytes::<26>()?.iter().map(|byte| char::from(LETTERS[usize::from(byte % 32)])).collect())
}

/// Returns a function that logs events of other clients. It leaves out the client of this program, which prints its own
/// requests.
fn guests(log: Log) -> impl Fn(Event) + Send + Sync {
    let print = event_sink(log);
    move |event| match event {
        Event::Request(_) => {}
        other => print(other),
    }
}
