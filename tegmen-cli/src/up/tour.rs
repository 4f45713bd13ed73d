//! The demonstration of `tegmen up`, which is called the tour. Each step sends messages over real sockets, and prints
//! the result that it proves.

use super::delegated::Delegated;
use super::folder::Folder;
use super::group::Group;
use super::lamps::{Device, GROUP, LIGHT};
use super::parties::{AccessControl, Administration, OPERATOR, Oven, READING, Subscriber, Words, connect};
use super::step::{Step, unproved};
use crate::output::{Failure, Output, printable_lines};
use crate::random;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tegmen::coap::Code;
use tegmen_control::access::policy::Explanation;
use tegmen_host::client::{ClientError, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::hex::to_hex;
use tegmen_host::server::Event;
use tokio::time::MissedTickBehavior;

/// Maximum time until a revocation reaches the subscriber.
const PATIENCE: Duration = Duration::from_secs(10);

/// The number of the first step after the steps that show the group. If the tour leaves out the steps that show the
/// group, this number is `WITHOUT_GROUP`.
const WITH_GROUP: usize = 11;
const WITHOUT_GROUP: usize = 6;

/// The tour (the demonstration of `tegmen up`): its servers and clients, which are called parties, and the folder with
/// their files. The parties and the folder exist until the program ends, because the commands that the tour prints need
/// them.
pub(super) struct Tour {
    oven: Oven,
    display: Subscriber,
    panel: Subscriber,
    access: AccessControl,
    administration: Administration,
    /// Number of handshake flights that the client in the oven retransmitted in all its sessions. The oven is the
    /// publisher of the tour.
    retransmitted: u32,
    /// The members of the group; `None` before the first step that shows the group, or if the tour leaves out the steps
    /// that show the group.
    group: Option<Group>,
    /// The device with delegated sessions, and its delegation server; `None` before the first step that shows delegated
    /// sessions.
    delegated: Option<Delegated>,
    /// The folder with the files of the tour. It is removed last.
    folder: Folder,
}

/// A command that the tour prints, and that the user can try.
struct Try {
    about: &'static str,
    command: String,
    /// The expected exit code of the command.
    exit: u8,
}

impl Tour {
    /// Starts all parties. After the last step of the tour, the subscriber `display` passes the events of its clients
    /// to `events`. Until then, the steps themselves report these events.
    pub(super) async fn start(
        mut access: AccessControl,
        folder: Folder,
        events: impl Fn(Event) + Send + Sync + 'static,
    ) -> Result<Self, Failure> {
        let guest = credentials_file("guest", &random::bytes::<16>()?, &format!("GET {READING}"));
        let guest = Credentials::from_file(&folder.write(GUEST, &guest)?).map_err(Failure::new)?;
        access.control_groups();
        let is_over = Arc::clone(&access.walked);
        let events = move |event| {
            if is_over.load(Ordering::Relaxed) {
                events(event)
            }
        };
        let (administration, oven, display, panel) = tokio::try_join!(
            access.administer(&folder),
            Oven::enrol(&access),
            Subscriber::start(&Words::DISPLAY, &access, guest, events),
            Subscriber::start(&Words::PANEL, &access, Credentials::default(), |_| {}),
        )?;
        Ok(Self {
            oven,
            display,
            panel,
            access,
            administration,
            retransmitted: 0,
            group: None,
            delegated: None,
            folder,
        })
    }

    /// Runs all steps of the tour.
    ///
    /// # Errors
    /// The error of the first step with an unexpected result.
    pub(super) async fn walk(&mut self, out: Output) -> Result<(), Failure> {
        self.introduce(out);
        let (identity, key) = self.oven.session_key(Words::DISPLAY.name())?;
        let session = self.key(out, &identity, &key).await?;
        self.allowed(out, &session).await?;
        self.refused(out).await?;
        self.revoked(out, &identity, &session).await?;
        self.retransmitted += session.counters().retransmitted;
        self.used(out, &identity, &key).await?;
        self.group = Group::walk(&self.access, &self.folder, out).await?;
        let number = if self.group.is_some() { WITH_GROUP } else { WITHOUT_GROUP };
        self.delegated = Some(Delegated::walk(&self.access, &self.folder, out, number).await?);
        self.access.walked.store(true, Ordering::Relaxed);
        Ok(())
    }

    fn introduce(&self, out: Output) {
        let policy = self.access.policy.display().to_string();
        let address = self.access.server.addresses().first().map_or_else(String::new, ToString::to_string);
        let (rules, tests) = {
            let in_force = self.access.service.state().view().in_force();
            (in_force.policy.rules(), in_force.policy.tests())
        };
        out.line(
            || {
                format!(
                    "An access control server listens at {address}. Its policy has {rules} rules and passed its {tests} tests:\n  \
                     {policy}\n\
                     An oven publishes its temperature. It shares a protokey with that server, and no key with anyone else.\n\
                     A display and a panel subscribe.\n"
                )
            },
            || json!({ "event": "access", "address": address, "policy": policy, "rules": rules, "tests": tests }),
        );
    }

    /// Runs the step `key`: the oven (a publisher) opens a session with the display (a subscriber), and the display
    /// asks the access control server for the key of this session.
    async fn key(&self, out: Output, identity: &str, key: &[u8]) -> Result<Session, Failure> {
        let session = connect(self.display.address, identity, key).await.map_err(|error| unproved("key", &error))?;
        if !self.access.gave_key(identity, Words::DISPLAY.name()) {
            return Err(unproved("key", &"the access control server did not give the key"));
        }
        let ms = session.handshake_time().as_secs_f64() * 1e3;
        let step = Step {
            name: "key",
            title: "The oven opens a session with the display, which asks the access control server for the key.",
            facts: vec![format!("The session {identity} is open after {ms:.1} ms.")],
            proved: "the oven derives from its protokey the key that the access control server gives to the display",
            more: json!({ "session": identity, "subscriber": Words::DISPLAY.name(), "ms": ms }),
        };
        step.print(out, 1);
        Ok(session)
    }

    /// Runs the step `allowed`: the display (a subscriber) gets a reading of the oven (a publisher).
    async fn allowed(&self, out: Output, session: &Session) -> Result<(), Failure> {
        let reading = "21.5";
        let response = session.put(READING, reading.as_bytes()).await.map_err(|error| unproved("allowed", &error))?;
        if response.code != Code::CHANGED || self.display.reading().as_deref() != Some(reading) {
            return Err(unproved("allowed", &format!("the response {}", response.code)));
        }
        let explanation = self.explain(&Words::DISPLAY)?;
        if !explanation.decision.is_allowed() {
            return Err(unproved("allowed", &explanation));
        }
        let ms = response.round_trip.as_secs_f64() * 1e3;
        let step = Step {
            name: "allowed",
            title: "The oven sends a reading to the display.",
            facts: vec![
                format!("The reading is {reading}, and the response {} comes after {ms:.2} ms.", response.code),
                explanation.message.clone(),
            ],
            proved: "a subscriber that the policy allows gets a reading, protected by the key of this session",
            more: json!({ "reading": reading, "code": response.code.to_string(), "ms": ms, "reason": explanation.message }),
        };
        step.print(out, 2);
        Ok(())
    }

    /// Runs the step `refused`: the oven (a publisher) opens a session with the panel (a subscriber). The access
    /// control server does not give the key of this session to the panel, so the panel gets no reading of the oven.
    async fn refused(&mut self, out: Output) -> Result<(), Failure> {
        let (identity, key) = self.oven.session_key(Words::PANEL.name())?;
        let error = self.panel.refuses(&identity, &key).await.map_err(|why| unproved("refused", &why))?;
        let explanation = self.explain(&Words::PANEL)?;
        if explanation.decision.is_allowed() || self.access.gave_key(&identity, Words::PANEL.name()) {
            return Err(unproved("refused", &explanation));
        }
        let step = Step {
            name: "refused",
            title: "The oven opens a session with the panel, which gets no key: the handshake fails.",
            facts: vec![explanation.to_string()],
            proved: "the access control server decides by a rule, and a subscriber without the key reads nothing",
            more: json!({ "session": identity, "subscriber": Words::PANEL.name(), "error": error,
                          "code": explanation.decision.code(), "reason": explanation.message }),
        };
        step.print(out, 3);
        Ok(())
    }

    /// Runs the step `revoked`: the operator revokes the key of the session that the oven has opened with the display.
    async fn revoked(&mut self, out: Output, identity: &str, session: &Session) -> Result<(), Failure> {
        let began = Instant::now();
        self.access.service.revoke_session(OPERATOR, identity).await.map_err(Failure::new)?;
        let ended = tokio::time::timeout(PATIENCE, self.display.revoked.recv()).await.ok().flatten();
        if ended.is_none_or(|session| session.identity != identity) {
            return Err(unproved("revoked", &"the display did not end the session"));
        }
        let ms = began.elapsed().as_secs_f64() * 1e3;
        let error = match session.put(READING, b"99").await {
            Err(error @ ClientError::Ended { .. }) => error,
            Err(error) => return Err(unproved("revoked", &error)),
            Ok(response) => return Err(unproved("revoked", &format!("the response {}", response.code))),
        };
        if self.display.reading().as_deref() == Some("99") {
            return Err(unproved("revoked", &"the reading came"));
        }
        let reason = "the access control server notified the display of its list of revocations (RFC 9770)";
        let step = Step {
            name: "revoked",
            title: "The operator revokes the key, and the display ends the session.",
            facts: vec![
                format!("It ends after {ms:.1} ms: {reason}."),
                format!("The next request of the oven fails: {error}."),
            ],
            proved: "a revocation ends a session that is open",
            more: json!({ "session": identity, "ms": ms, "error": error.to_string(), "reason": reason }),
        };
        step.print(out, 4);
        Ok(())
    }

    /// Runs the step `used`: the oven (a publisher) tries to open a session with the identity of the revoked session.
    async fn used(&mut self, out: Output, identity: &str, key: &[u8]) -> Result<(), Failure> {
        let error = self.display.refuses(identity, key).await.map_err(|why| unproved("used", &why))?;
        let step = Step {
            name: "used",
            title: "The oven opens a session with the same identity and key: the handshake fails.",
            facts: Vec::new(),
            proved: "the access control server accepts a session identity once, so a revoked key stays useless",
            more: json!({ "session": identity, "error": error }),
        };
        step.print(out, 5);
        Ok(())
    }

    /// Returns the decision of the policy whether the subscriber `subject` may get readings of the oven (a publisher),
    /// with its reason.
    fn explain(&self, subject: &Words) -> Result<Explanation, Failure> {
        self.access.explain(subject, &Words::OVEN, Code::GET, READING)
    }

    /// Sends a reading each second. Opens a new session when a session ends, and reports each begin and end of a
    /// session. This function returns only with an error.
    ///
    /// # Errors
    /// The system gives no randomness.
    pub(super) async fn publish(&self, out: Output) -> Result<Infallible, Failure> {
        let mut seconds = tokio::time::interval(Duration::from_secs(1));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut was_refused = false;
        loop {
            let (identity, key) = self.oven.session_key(Words::DISPLAY.name())?;
            let report = |state: &str, text: String| {
                out.line(
                    || printable_lines(&text),
                    || json!({ "event": "oven", "session": identity, "state": state, "text": text }),
                );
            };
            seconds.tick().await;
            let session = match connect(self.display.address, &identity, &key).await {
                Ok(session) => session,
                Err(error) => {
                    if !std::mem::replace(&mut was_refused, true) {
                        report(
                            "refused",
                            format!("The oven gets no session with the display, and tries again: {error}"),
                        );
                    }
                    continue;
                }
            };
            was_refused = false;
            report("open", format!("The oven sends a reading to the display each second, in the session {identity}."));
            for tenths in (215..235).cycle() {
                seconds.tick().await;
                if let Err(error) = session.put(READING, format!("{}.{}", tenths / 10, tenths % 10).as_bytes()).await {
                    report("ended", format!("The session of the oven with the display is over: {error}"));
                    break;
                }
            }
        }
    }

    /// Prints commands that the user can try while the program runs.
    pub(super) fn suggest(&self, out: Output) -> Result<(), Failure> {
        out.text("\nTry next, in another terminal, while this runs:\n");
        for Try { about, command, exit } in self.tries()? {
            out.line(
                || format!("  {command}\n      {about}"),
                || json!({ "event": "try", "about": about, "command": command, "exit": exit }),
            );
        }
        Ok(())
    }

    fn tries(&self) -> Result<Vec<Try>, Failure> {
        let (identity, key) = self.oven.session_key(Words::DISPLAY.name())?;
        let oven = self.folder.write(SESSION, &credentials_file(&identity, &key, "PUT /*"))?;
        let (oven, guest) = (oven.display(), self.folder.path(GUEST));
        let (guest, policy, audit) = (guest.display(), self.access.policy.display(), self.access.audit.display());
        let display = format!("coaps://{}{READING}", self.display.address);
        let party = |option: &str, words: &Words| -> String {
            words.0.iter().map(|word| format!(" --{option} {word}")).collect()
        };
        let (panel, publisher) = (party("subject", &Words::PANEL), party("publisher", &Words::OVEN));
        let Administration { url, ca, bootstrap, .. } = &self.administration;
        let (ca, bootstrap, key) = (ca.display(), bootstrap.display(), self.folder.path("operator.key"));
        let key = key.display();
        let admin = format!("--server {url} --ca {ca} --key-file {key}");
        let first = format!("--server {url} --ca {ca} --key-file {bootstrap}");
        let scopes = "--scope devices:read --scope devices:write --scope policy:write --scope revoke \
                      --scope groups:read --scope groups:write";
        let tried = |about, command, exit| Try { about, command, exit };
        let mut tries = vec![
            tried("Read the last reading at the display.", format!("tegmen get --credentials {guest} {display}"), 0),
            tried(
                "Write there with the same key, which has no right to do so.",
                format!("tegmen put --credentials {guest} {display} 99"),
                1,
            ),
            tried("Be the oven for one session.", format!("tegmen put --credentials {oven} {display} 23"), 0),
            tried(
                "Be the oven with the same session identity, which was accepted once.",
                format!("tegmen put --credentials {oven} {display} 24"),
                1,
            ),
            tried(
                "Explain why the panel was refused.",
                format!("tegmen policy explain {policy}{panel}{publisher} GET {READING}"),
                3,
            ),
            tried(
                "Create a key for yourself as an operator.",
                format!("tegmen key create me {scopes} --output {key} {first}"),
                0,
            ),
            tried("List the devices.", format!("tegmen device list {admin}"), 0),
            tried(
                "Revoke all keys of the oven: its session ends here.",
                format!("tegmen device disable oven {admin}"),
                0,
            ),
            tried("Enable the oven: it gets a new session here.", format!("tegmen device enable oven {admin}"), 0),
            tried("Change the policy, and apply it.", format!("tegmen policy apply {policy} {admin}"), 0),
            tried("Verify the log of all decisions so far.", format!("tegmen audit verify {audit}"), 0),
        ];
        let openssl = self.delegated.as_ref().map(|delegated| delegated.commands(&self.folder)).transpose()?;
        tries.extend(openssl.into_iter().flat_map(|[open, resume]| {
            [
                tried("Open a session with the delegation server in the name of the meter, by OpenSSL.", open, 0),
                tried("Resume it at the meter, which has no certificate: OpenSSL prints Reused.", resume, 0),
            ]
        }));
        tries.extend(self.group.as_ref().map(|group| self.tries_of(group, &admin)).transpose()?.into_iter().flatten());
        Ok(tries)
    }

    /// Returns the commands for the group. `admin` contains the options with which an operator authenticates.
    fn tries_of(&self, group: &Group, admin: &str) -> Result<[Try; 4], Failure> {
        let Device { name, key, dir, .. } = &group.switch;
        let credentials = self.folder.write("switch.toml", &credentials_file(name, &key[..], "GET /*"))?;
        let switch = |about, value| Try {
            about,
            command: format!(
                "tegmen group send coap://{}{LIGHT} -m PUT -e {value} --group-wait 1 --state {} --credentials {}",
                group.at,
                dir.display(),
                credentials.display()
            ),
            exit: 0,
        };
        let operate = |about, command| Try { about, command: format!("tegmen group {command} {admin}"), exit: 0 };
        Ok([
            switch("Be the switch, and turn on the lamps.", "on"),
            operate("Show the group and its members.", format!("show {GROUP}")),
            operate("Evict the porch.", format!("remove {GROUP} porch")),
            switch("Be the switch again: the porch stays on, and is missing.", "off"),
        ])
    }

    /// Ends all servers and clients of the tour, and removes their folder. Returns the number of handshake flights that
    /// they retransmitted.
    pub(super) async fn stop(self) -> u32 {
        let Self { display, panel, access, administration, retransmitted, group, delegated, folder, .. } = self;
        administration.stop().await;
        let of_lamps = group.map_or(0, Group::stop);
        let of_delegated = match delegated {
            Some(delegated) => delegated.stop().await,
            None => 0,
        };
        let of_subscribers = display.stop().await + panel.stop().await;
        // The database and the log are closed before the folder goes.
        let of_access = access.stop().await;
        drop(folder);
        retransmitted + of_lamps + of_delegated + of_subscribers + of_access
    }
}

/// The name of the credentials file for a client that reads resources of the display.
const GUEST: &str = "guest.toml";
/// The name of the file with the identity and the key of one session of the oven (a publisher).
const SESSION: &str = "session.toml";

/// Returns the text of a credentials file with one key.
fn credentials_file(identity: &str, key: &[u8], allow: &str) -> String {
    format!("[[psk]]\nidentity = \"{identity}\"\nkey = \"{}\"\nallow = [\"{allow}\"]\n", to_hex(key))
}
