//! `tegmen steer`: gives a device and its delegation server one common address.

use crate::connect::resolve;
use crate::output::{Failure, Output, runtime};
use crate::serve::ended;
use clap::Args;
use serde_json::json;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use tegmen_host::steering::{Steering, SteeringConfig};

#[derive(Args)]
#[command(after_help = "Example:\n  \
    tegmen steer --listen '[::]:5684' --server coaps://dlg.example.org --device 'coaps://[fd00::17]'\n\n\
    A ClientHello without a ticket or a session id goes to the server, one with either to the device. After the device\n\
    refused a ClientHello, the next one of this peer goes to the server.")]
pub(crate) struct Steer {
    /// Address to which peers send their datagrams.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: SocketAddr,
    /// The delegation server: coaps://host[:port].
    #[arg(long, value_name = "URI")]
    server: String,
    /// The device: coaps://host[:port].
    #[arg(long, value_name = "URI")]
    device: String,
    /// Maximum number of remembered peers. Each peer takes up to two sockets.
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    max_remotes: u32,
    /// Seconds after which a silent peer is forgotten.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = clap::value_parser!(u64).range(1..))]
    idle: u64,
}

impl Steer {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        runtime()?.block_on(async {
            let config = SteeringConfig {
                listen: self.listen,
                server: resolve(&self.server).await?,
                device: resolve(&self.device).await?,
                max_remotes: self.max_remotes as usize,
                idle: Duration::from_secs(self.idle),
            };
            let refused = Arc::new(move |end: SocketAddr| {
                out.line(
                    || {
                        format!(
                            "{end} takes no datagrams: is the program running, is this its port, and is there a route?"
                        )
                    },
                    || json!({ "event": "refused", "address": end.to_string() }),
                );
            });
            let steering = Steering::open(config.clone(), refused).await.map_err(Failure::new)?;
            let address = steering.address().map_err(Failure::io)?;
            out.line(
                || format!("{address} is the server {} and the device {}", config.server, config.device),
                || {
                    json!({ "event": "listening", "address": address.to_string(),
                            "server": config.server.to_string(), "device": config.device.to_string() })
                },
            );
            let totals = steering.run(ended()).await.map_err(Failure::new)?;
            out.line(
                || {
                    format!(
                        "{} peers, {} datagrams to the server, {} to the device, {} to peers, {} not sent",
                        totals.remotes, totals.to_server, totals.to_device, totals.to_remotes, totals.unsent
                    )
                },
                || {
                    json!({ "event": "ended", "remotes": totals.remotes, "to_server": totals.to_server,
                            "to_device": totals.to_device, "to_remotes": totals.to_remotes, "unsent": totals.unsent })
                },
            );
            Ok(ExitCode::SUCCESS)
        })
    }
}
