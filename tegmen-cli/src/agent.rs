//! `tegmen agent`: an agent that gives keys of publishers to the programs of one user of this machine, over a Unix
//! socket.

use crate::connect::Connect;
use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  \
        tegmen agent coaps://access.example --credentials display.toml --socket /run/user/1000/tegmen.sock\n  \
        tegmen agent ask --socket /run/user/1000/tegmen.sock session 'oven;AAECAwQFBgcI'\n\n\
        SIGTERM or Ctrl-C ends the agent, which then removes the socket; the exit code is 0."
)]
pub(crate) struct Agent {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    serve: Serve,
}

#[derive(Subcommand)]
enum Command {
    /// Ask an agent for a key, as a program would.
    #[command(after_help = "Examples:\n  \
        tegmen agent ask --socket agent.sock session 'oven;AAECAwQFBgcI'   # prints KEY\n  \
        tegmen agent ask --socket agent.sock publisher oven                # prints IDENTITY KEY")]
    Ask(Ask),
}

#[derive(Args)]
struct Serve {
    /// The access control server: coaps://host[:port].
    #[arg(required = true)]
    uri: Option<String>,
    /// Path of the socket. Other users must not be able to write to its directory, or to a directory above it.
    #[arg(long, value_name = "PATH", required = true)]
    socket: Option<PathBuf>,
    /// Number of the user who may ask, instead of the user who runs the agent. Only root can name another user.
    #[arg(long, value_name = "N")]
    uid: Option<u32>,
    #[command(flatten)]
    connect: Connect,
}

#[derive(Args)]
struct Ask {
    /// Path of the socket.
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    #[command(subcommand)]
    key: Key,
}

/// The key that a program asks for.
#[derive(Subcommand)]
enum Key {
    /// Print the key of a session in hexadecimal.
    Session {
        /// The session identity that the publisher shows in its handshake, such as `oven;AAECAwQFBgcI`.
        identity: String,
    },
    /// Print a fresh session identity for a handshake with a publisher, and its key in hexadecimal.
    Publisher {
        /// Name of the publisher, such as `oven`.
        name: String,
    },
}

#[cfg(not(unix))]
impl Agent {
    pub(crate) fn run(self, _: crate::output::Output) -> Result<std::process::ExitCode, crate::output::Failure> {
        Err(crate::output::Failure::new("the agent needs a UNIX system: programs ask it over a Unix socket"))
    }
}

#[cfg(unix)]
mod unix {
    use super::{Agent, Ask, Command, Key, Serve};
    use crate::connect::access_control;
    use crate::log::{Format, Level, Log};
    use crate::output::{Failure, Output, runtime};
    use crate::serve::ended;
    use crate::serve::systemd::Manager;
    use serde_json::json;
    use std::process::ExitCode;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tegmen_control::agent::{self, Answer, Event, Question};
    use tegmen_host::client::Session;
    use tegmen_host::hex::to_hex;

    impl Agent {
        pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
            match self.command {
                Some(Command::Ask(ask)) => ask.run(out),
                None => self.serve.run(out),
            }
        }
    }

    impl Serve {
        fn run(self, out: Output) -> Result<ExitCode, Failure> {
            let (Some(address), Some(path)) = (&self.uri, &self.socket) else {
                return Err(Failure::usage("give the URI of the access control server and --socket PATH"));
            };
            let uri = access_control(address)?;
            let manager = Manager::of_environment()?;
            let config = self.connect.config(&uri)?;
            let log =
                Log::start(Level::Info, if out.json { Format::Json } else { Format::Text }).map_err(Failure::io)?;
            runtime()?.block_on(async {
                let mut end = std::pin::pin!(ended());
                let server = tokio::select! {
                    () = &mut end => return Ok(()),
                    session = Session::connect(&uri, config) => session.map_err(Failure::request)?,
                };
                let agent = agent::Agent::bind(path, self.uid).map_err(Failure::usage)?;
                let socket = path.display().to_string();
                log.always(
                    || format!("programs may ask for keys of {address} at {socket}"),
                    || json!({ "event": "listening", "server": address, "socket": socket }),
                );
                manager.report("READY=1");
                tokio::select! {
                    () = &mut end => {}
                    () = agent.serve(server.clone(), sink(log.clone(), server.clone())) => {}
                }
                manager.report("STOPPING=1");
                drop(agent);
                server.close();
                log.always(|| "the agent ends".to_owned(), || json!({ "event": "ended" }));
                Ok::<_, Failure>(())
            })?;
            log.end();
            Ok(ExitCode::SUCCESS)
        }
    }

    /// Returns a function that logs each answer of an agent. The log contains no key.
    fn sink(log: Log, server: Session) -> impl Fn(Event) + Send + Sync {
        let reconnects = AtomicU32::new(0);
        move |Event { code, identity, process, text }| {
            let now = server.reconnects();
            if reconnects.swap(now, Ordering::Relaxed) != now {
                let text = "connected to the access control server again, in a new session";
                log.event(Level::Info, || text.to_owned(), || json!({ "event": "reconnected", "sessions": now }));
            }
            let level = if code == "given" { Level::Info } else { Level::Warn };
            let told = || {
                let asked = identity.as_ref().map(|identity| format!("{identity}: ")).unwrap_or_default();
                let process = process.map(|process| format!("process {process}: ")).unwrap_or_default();
                let text = if text.is_empty() { text.clone() } else { format!(": {text}") };
                format!("{process}{asked}{code}{text}")
            };
            let object =
                || json!({ "event": "asked", "code": code, "identity": identity, "process": process, "text": text });
            log.event(level, told, object);
        }
    }

    impl Ask {
        fn run(self, out: Output) -> Result<ExitCode, Failure> {
            let (line, wrong) = match &self.key {
                Key::Session { identity } => (
                    format!("session {identity}"),
                    format!(
                        "{identity:?} is no session identity: write the name of the publisher, a semicolon and at least 9 random \
                         bytes in base64url"
                    ),
                ),
                Key::Publisher { name } => {
                    (format!("publisher {name}"), format!("{name:?} is no name of a publisher: correct the name"))
                }
            };
            let question = Question::parse(line.as_bytes()).ok_or_else(|| Failure::usage(wrong))?;
            let (identity, key) = match agent::ask(&self.socket, &question).map_err(Failure::new)? {
                Answer::Key { identity, key } => (identity, key),
                Answer::Error { code, text } => return Err(Failure::new(format!("{code}: {text}"))),
            };
            let hex = to_hex(&key.key);
            out.line(
                || match question {
                    Question::Session(_) => hex.clone(),
                    Question::Publisher(_) => format!("{identity} {hex}"),
                },
                || json!({ "identity": identity, "key": hex, "expires_in": key.expires_in }),
            );
            Ok(ExitCode::SUCCESS)
        }
    }
}
