//! The agent of a subscriber. The agent gives the keys of sessions with publishers to the programs of one user of this
//! machine, over a Unix socket.
//!
//! A program with another DTLS stack asks the agent instead of the access control server. The program opens a
//! connection, sends one line and reads one line. Then the agent closes the connection.
//!
//! ```text
//! session IDENTITY           the key of the session identity that a publisher shows in a handshake
//! publisher NAME             a fresh session identity for a handshake with a publisher, and its key
//!
//! key IDENTITY KEY SECONDS   the key in hexadecimal, and the time for which the session may be used; 0 without a limit
//! error CODE TEXT            no key: a stable code, and the cause with the next step
//! ```
//!
//! Only the owner of the socket may use it. The file has the mode 0600, and the agent asks the operating system which
//! user runs the program at the other end of a connection. The agent stores no key.

mod line;

pub use line::{Answer, MAX_ANSWER, MAX_QUESTION, Question};

use crate::access::protokey::{MAX_IDENTITY, NONCE_LEN, SessionIdentity};
use crate::subscriber::{NotGranted, introspect};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tegmen_host::client::Session;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixSocket, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use zeroize::Zeroizing;

/// Maximum number of connections at the same time; further connections wait.
const CONNECTIONS: usize = 64;
/// Maximum time in which a program must send its question, and maximum time in which it must read the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Maximum number of bytes that the agent discards after an answer, before it closes the connection.
const MAX_UNREAD: u64 = 1 << 16;
/// The pause after the system refused a connection, for example because the process has too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// The reason why a socket cannot be opened, or why an agent gives no answer.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another agent listens at this path.
    #[error("another agent serves at {0}: end it, or choose another path")]
    InUse(String),
    /// Other users can replace files in the directory of the path, or in a directory above it.
    #[error("other users can replace files in {0}: choose a directory that only you or root can write to")]
    OpenDirectory(String),
    /// The path names a file that is no socket.
    #[error("{0} exists and is no socket: choose another path")]
    NoSocket(String),
    /// The system refuses an operation.
    #[error("the socket {path} {step}: {source}")]
    System {
        /// The path.
        path: String,
        /// The operation that failed, and what the user has to do next.
        step: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// The program at the other end of the socket is no agent.
    #[error("{0} is not the socket of an agent of Tegmen: correct the path")]
    NoAgent(String),
}

impl SocketError {
    fn system(path: &Path, step: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.display().to_string();
        move |source| Self::System { path, step, source }
    }
}

/// An answer of the agent, for the operator's log. It never contains a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    /// `given` if the agent gives a key; otherwise the code of the error.
    pub code: &'static str,
    /// The session identity, if the answer has one.
    pub identity: Option<String>,
    /// The ID of the process that asked. `None` if the system does not report the ID.
    pub process: Option<i32>,
    /// The cause of an error, and what the user has to do next.
    pub text: String,
}

/// The Unix socket of an agent. The file of the socket is removed when this value is dropped.
pub struct Agent {
    listener: UnixListener,
    path: PathBuf,
    /// The numeric ID of the user who may use the socket.
    user: u32,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

impl Agent {
    /// Opens the socket at `path`. Replaces a socket that an earlier agent left at this path. No program can connect
    /// before the permissions of the socket are set. `user` is the numeric ID of the user who owns the socket and may
    /// use it; `None` is the user of this process. The caller must be in the context of a Tokio runtime.
    ///
    /// # Errors
    /// [`SocketError`], whose text also names what the user has to do next.
    pub fn bind(path: &Path, user: Option<u32>) -> Result<Self, SocketError> {
        if let Ok(metadata) = std::fs::symlink_metadata(path) {
            let name = path.display().to_string();
            if !metadata.file_type().is_socket() {
                return Err(SocketError::NoSocket(name));
            }
            if std::os::unix::net::UnixStream::connect(path).is_ok() {
                return Err(SocketError::InUse(name));
            }
            std::fs::remove_file(path)
                .map_err(SocketError::system(path, "of an earlier agent cannot be removed; remove it"))?;
        }
        let failed = || SocketError::system(path, "cannot be opened; correct the path, or the permissions there");
        if let Some(open) = open_directory(path).map_err(failed())? {
            return Err(SocketError::OpenDirectory(open.display().to_string()));
        }
        let socket = UnixSocket::new_stream().map_err(failed())?;
        socket.bind(path).map_err(failed())?;
        let permit = || {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o600))?;
            std::os::unix::fs::lchown(path, user, None)?;
            let owner = std::fs::symlink_metadata(path)?.uid();
            socket.listen(CONNECTIONS as u32).map(|listener| (listener, owner))
        };
        match permit() {
            Ok((listener, user)) => Ok(Self { listener, path: path.to_owned(), user }),
            Err(error) => {
                let _ = std::fs::remove_file(path);
                Err(SocketError::system(path, "cannot be given to its user; only root can give it to another one")(
                    error,
                ))
            }
        }
    }

    /// Answers the questions of local programs for session keys, until the future is dropped. `server` is a session
    /// with the access control server, in which the subscriber has proved its identity. `on_event` receives an event
    /// for each connection of a program, and must return quickly.
    pub async fn serve(&self, server: Session, on_event: impl Fn(Event) + Send + Sync + 'static) {
        let (places, on_event) = (Arc::new(Semaphore::new(CONNECTIONS)), Arc::new(on_event));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            let Ok((stream, _)) = self.listener.accept().await else {
                tokio::time::sleep(PAUSE).await;
                continue;
            };
            let (user, server, on_event) = (self.user, server.clone(), Arc::clone(&on_event));
            tokio::spawn(async move {
                let event = converse(stream, user, &server).await;
                drop(place);
                on_event(event);
            });
        }
    }
}

/// Searches the directory of a path, and all directories above it. Returns the first directory in which users other
/// than root and the user of this process can replace files. Such users could replace the socket by a socket of another
/// program, or by a link to another file.
fn open_directory(path: &Path) -> io::Result<Option<PathBuf>> {
    const STICKY: u32 = 0o1000;
    const OTHERS_WRITE: u32 = 0o022;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let own = UnixStream::pair()?.0.peer_cred()?.uid();
    for directory in std::fs::canonicalize(parent)?.ancestors() {
        let metadata = std::fs::metadata(directory)?;
        let mode = metadata.permissions().mode();
        if ![0, own].contains(&metadata.uid()) || (mode & OTHERS_WRITE != 0 && mode & STICKY == 0) {
            return Ok(Some(directory.to_owned()));
        }
    }
    Ok(None)
}

/// Reads the question that arrives on a connection, and writes the answer.
async fn converse(mut stream: UnixStream, user: u32, server: &Session) -> Event {
    let peer = stream.peer_cred().ok();
    let process = peer.and_then(|peer| peer.pid());
    let (code, identity, answer) = match peer {
        Some(peer) if peer.uid() == user => match read(&mut stream).await {
            Some(question) => answer(question, server).await,
            None => error(
                "malformed",
                None,
                "the line is no question: send `session IDENTITY` or `publisher NAME`, and a line feed".to_owned(),
            ),
        },
        _ => error("other-user", None, format!("only user {user} may use this socket: ask as that user")),
    };
    let line = answer.line();
    let write = async {
        stream.write_all(line.as_bytes()).await?;
        stream.shutdown().await
    };
    let written = timeout(PATIENCE, write).await;
    // A connection that is closed with unread bytes is reset, and the program may lose its answer.
    let _ = timeout(PATIENCE, tokio::io::copy(&mut stream.take(MAX_UNREAD), &mut tokio::io::sink())).await;
    let text = match (answer, written) {
        (_, Ok(Err(_)) | Err(_)) => "the program did not read its answer".to_owned(),
        (Answer::Key { .. }, _) => String::new(),
        (Answer::Error { text, .. }, _) => text,
    };
    Event { code, identity, process, text }
}

fn error(code: &'static str, identity: Option<String>, text: String) -> (&'static str, Option<String>, Answer) {
    (code, identity, Answer::Error { code: code.to_owned(), text })
}

/// Reads the question of a program. Returns `None` if the line is not a valid question, is too long, or does not arrive
/// in time.
async fn read(stream: &mut UnixStream) -> Option<Question> {
    let mut line = Vec::with_capacity(MAX_QUESTION);
    let mut limited = stream.take(MAX_QUESTION as u64);
    let whole = async {
        while !line.ends_with(b"\n") {
            if limited.read_buf(&mut line).await.ok()? == 0 {
                return None;
            }
        }
        Some(())
    };
    timeout(PATIENCE, whole).await.ok()??;
    Question::parse(line.strip_suffix(b"\n")?)
}

async fn answer(question: Question, server: &Session) -> (&'static str, Option<String>, Answer) {
    let identity = match question {
        Question::Session(identity) => identity,
        Question::Publisher(name) => {
            let mut nonce = [0; NONCE_LEN];
            if let Err(why) = getrandom::fill(&mut nonce) {
                return error("no-randomness", None, format!("the system gives no randomness: {why}"));
            }
            match SessionIdentity::write(&name, &nonce, &mut [0; MAX_IDENTITY]) {
                Some(identity) => identity.as_str().to_owned(),
                None => return error(NotGranted::Refused.code(), None, NotGranted::Refused.to_string()),
            }
        }
    };
    let key = match SessionIdentity::parse(identity.as_bytes()) {
        Some(parsed) => introspect(server, parsed).await,
        None => Err(NotGranted::Refused),
    };
    match key {
        Ok(key) => ("given", Some(identity.clone()), Answer::Key { identity, key }),
        Err(why) => error(why.code(), Some(identity), why.to_string()),
    }
}

/// Asks the agent at a path, and waits for its answer.
///
/// # Errors
/// [`SocketError`], whose text also names what the user has to do next.
pub fn ask(path: &Path, question: &Question) -> Result<Answer, SocketError> {
    let failed = |step| SocketError::system(path, step);
    let mut stream = std::os::unix::net::UnixStream::connect(path)
        .map_err(failed("cannot be reached: is the agent running, and is this your socket?"))?;
    stream.write_all(question.line().as_bytes()).map_err(failed("takes no question"))?;
    let mut line = Zeroizing::new(Vec::with_capacity(MAX_ANSWER));
    stream
        .take(MAX_ANSWER as u64)
        .read_to_end(&mut line)
        .map_err(failed("gives no answer: see the log of the agent"))?;
    let answer = line.strip_suffix(b"\n").and_then(Answer::parse);
    answer.ok_or_else(|| SocketError::NoAgent(path.display().to_string()))
}

#[cfg(test)]
mod tests;
