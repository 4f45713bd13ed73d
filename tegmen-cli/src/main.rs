//! The `tegmen` command.

mod admin;
mod agent;
mod ask;
mod audit;
mod backup;
mod bridge;
mod ca;
mod connect;
mod delegation;
mod device;
mod edhoc;
mod enrol;
mod events;
mod files;
mod group;
mod https;
mod key;
mod keys;
mod lab;
mod log;
mod login;
mod map;
mod members;
mod ndn;
mod observe;
mod oscore;
mod output;
mod password;
mod pem;
mod policy;
mod probe;
mod public_keys;
mod random;
mod revoke;
mod sealing;
mod serve;
mod steer;
mod token;
mod up;
mod user;

use clap::{CommandFactory as _, Parser, Subcommand};
use std::process::ExitCode;

/// Secured CoAP for constrained devices: serve, ask, and measure.
#[derive(Parser)]
#[command(
    name = "tegmen",
    version,
    propagate_version = true,
    after_help = "Examples:\n  \
        tegmen up                                   a tour of access control, a group and a server, on this machine\n  \
        tegmen keys new --identity sensor-17        a fresh key, in a file that only you can read\n  \
        tegmen serve --value /temp=21.5             a server of your own\n  \
        tegmen get coaps://localhost/temp           read a value of it\n  \
        tegmen observe coaps://localhost/temp       print it whenever it changes\n\n\
        Every command takes --json; `tegmen help COMMAND` shows examples.\n\n\
        Exit codes:\n  \
        0    a response 2.xx, or the work is done\n  \
        1    an error response, no response, or the work failed after it began\n  \
        2    the command cannot begin as it was called: arguments, a file, a key, a port\n  \
        3    refused by a policy (`policy explain`)\n  \
        130  ended by Ctrl-C, as shells report it; but 0 of commands that run until they are\n       ended, such as `serve`, `observe` and `group watch`"
)]
struct Cli {
    /// Print JSON, one object per line, instead of text.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Take a tour on this machine: access control that allows, refuses and revokes, then a secured server and its client.
    Up(up::Up),
    /// Serve values, files and commands as CoAP resources.
    Serve(Box<serve::Serve>),
    /// Read a resource.
    Get(ask::Get),
    /// Write a resource.
    Put(ask::WithPayload),
    /// Send a payload to a resource (POST).
    Post(ask::WithPayload),
    /// Remove a resource.
    Delete(ask::Get),
    /// Query a resource with a request body (FETCH, RFC 8132).
    Fetch(ask::WithPayload),
    /// Update part of a resource (PATCH, RFC 8132).
    Patch(ask::WithPayload),
    /// Update part of a resource idempotently (iPATCH, RFC 8132).
    Ipatch(ask::WithPayload),
    /// Observe a resource: print its representation whenever it changes (RFC 7641).
    Observe(observe::Observe),
    /// Examine a server: show each flight of its handshake, the parameters that it negotiates, and the features that
    /// it lacks.
    Probe(probe::Probe),
    /// Create keys, and show the digests of public keys.
    Keys(keys::Keys),
    /// Run a small built-in certification authority, for testing and small fleets.
    Ca(ca::Ca),
    /// Create, show, import and export OSCORE security contexts.
    Oscore(oscore::Oscore),
    /// Create keys with which two endpoints agree on an OSCORE context (EDHOC, RFC 9528).
    Edhoc(edhoc::Edhoc),
    /// Test, explain and compare policies (files that state the rights of devices), and apply a policy at an access
    /// control server.
    Policy(policy::Policy),
    /// Add, show, change and remove the devices of an access control server.
    Device(device::Devices),
    /// Register this device at an access control server, with a one-time key.
    Enrol(enrol::Enrol),
    /// Get an access token from an access control server, and post it at a resource server. OSCORE requests then have
    /// the rights of the token.
    Token(token::Token),
    /// Create protected groups, add and evict their members; join a group, send requests to all its members, and leave it.
    Group(Box<group::Group>),
    /// List and revoke the delegated sessions of devices, and begin new epochs of devices.
    Delegation(delegation::Delegation),
    /// Revoke the key of a session, or a token, at an access control server.
    Revoke(revoke::Revoke),
    /// Follow what happens at an access control server: changes of devices, policy, revocations, groups and keys.
    Events(events::Follow),
    /// Create, list and remove the API keys of an access control server.
    Key(key::Key),
    /// Add, list, change and remove the users of a delegation server, who log in with a password.
    User(user::Users),
    /// Log in at a delegation server with a password: get a certificate, with which a DTLS client opens delegated sessions.
    Login(login::Login),
    /// Make, verify and restore backups of a server's database.
    Backup(backup::Backup),
    /// Verify the audit log of an access control server.
    Audit(audit::Audit),
    /// Run an agent that gives keys of publishers to the programs of one user of this machine, over a Unix socket.
    Agent(Box<agent::Agent>),
    /// Connect a mote on a serial line to real sockets.
    Bridge(bridge::Bridge),
    /// Give a device and its delegation server one common address, for peers that identify a session by the address of
    /// the server.
    Steer(steer::Steer),
    /// Run a forwarder of Named Data Networking, or fetch and publish signed packets by name.
    Ndn(ndn::Ndn),
    /// Run the laboratory: reproduce the measurements of papers, and measure the motes.
    Lab(lab::Lab),
    /// Print a completion script for a shell.
    #[command(after_help = "Example:\n  tegmen completion bash > ~/.local/share/bash-completion/completions/tegmen")]
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page.
    #[command(after_help = "Example:\n  tegmen man > tegmen.1 && man ./tegmen.1")]
    Man,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() && std::env::args_os().any(|argument| argument == "--json") => {
            let failure = output::Failure::usage(error.render().to_string().trim_end());
            output::Output { json: true }.failure(&failure);
            return ExitCode::from(failure.code);
        }
        Err(error) => error.exit(),
    };
    let out = output::Output { json: cli.json };
    let outcome = match cli.command {
        Command::Up(up) => up.run(out),
        Command::Serve(serve) => serve.run(out),
        Command::Get(get) => get.run(out, tegmen::coap::Code::GET),
        Command::Put(put) => put.run(out, tegmen::coap::Code::PUT),
        Command::Post(post) => post.run(out, tegmen::coap::Code::POST),
        Command::Delete(delete) => delete.run(out, tegmen::coap::Code::DELETE),
        Command::Fetch(fetch) => fetch.run(out, tegmen::coap::Code::FETCH),
        Command::Patch(patch) => patch.run(out, tegmen::coap::Code::PATCH),
        Command::Ipatch(patch) => patch.run(out, tegmen::coap::Code::IPATCH),
        Command::Observe(observe) => observe.run(out),
        Command::Probe(probe) => probe.run(out),
        Command::Keys(keys) => keys.run(out),
        Command::Ca(ca) => ca.run(out),
        Command::Oscore(oscore) => oscore.run(out),
        Command::Edhoc(edhoc) => edhoc.run(out),
        Command::Token(token) => token.run(out),
        Command::Policy(policy) => policy.run(out),
        Command::Device(device) => device.run(out),
        Command::Enrol(enrol) => enrol.run(out),
        Command::Group(group) => group.run(out),
        Command::Delegation(delegation) => delegation.run(out),
        Command::Revoke(revoke) => revoke.run(out),
        Command::Events(events) => events.run(out),
        Command::Key(key) => key.run(out),
        Command::User(users) => users.run(out),
        Command::Login(login) => login.run(out),
        Command::Backup(backup) => backup.run(out),
        Command::Audit(audit) => audit.run(out),
        Command::Agent(agent) => agent.run(out),
        Command::Bridge(bridge) => bridge.run(out),
        Command::Steer(steer) => steer.run(out),
        Command::Ndn(ndn) => ndn.run(out),
        Command::Lab(lab) => lab.run(out),
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "tegmen", &mut std::io::stdout());
            Ok(ExitCode::SUCCESS)
        }
        Command::Man => manual().map(|()| ExitCode::SUCCESS),
    };
    outcome.unwrap_or_else(|failure| {
        out.failure(&failure);
        ExitCode::from(failure.code)
    })
}

/// Prints one manual page that describes every command.
fn manual() -> Result<(), output::Failure> {
    let mut page = Vec::new();
    let mut command = Cli::command();
    command.build();
    let write = |page: &mut Vec<u8>, command: &clap::Command| -> std::io::Result<()> {
        clap_mangen::Man::new(command.clone()).render(page)
    };
    write(&mut page, &command).map_err(output::Failure::io)?;
    for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
        let man = clap_mangen::Man::new(sub.clone());
        man.render_name_section(&mut page).map_err(output::Failure::io)?;
        man.render_synopsis_section(&mut page).map_err(output::Failure::io)?;
        man.render_options_section(&mut page).map_err(output::Failure::io)?;
        man.render_extra_section(&mut page).map_err(output::Failure::io)?;
    }
    std::io::Write::write_all(&mut std::io::stdout(), &page).map_err(output::Failure::io)
}
