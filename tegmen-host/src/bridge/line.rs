//! The serial line of a mote: a device, a UNIX socket, a TCP connection, or QEMU with an image.

use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::process::Stdio;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::unix::pipe;
use tokio::net::{TcpStream, UnixStream};
use tokio::process::{Child, Command};

/// The location of a mote's serial line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line {
    /// A serial device or a pseudo-terminal. The bridge sets it to 115,200 baud and eight bits without translation.
    Device(PathBuf),
    /// A UNIX socket at which a program listens, as QEMU does with `-serial unix:PATH,server=on,wait=off`.
    Unix(PathBuf),
    /// A TCP address at which a program listens: HOST:PORT.
    Tcp(String),
    /// An image for QEMU. The bridge starts QEMU as a child process. The standard input and output of this process are
    /// the serial line.
    Image(PathBuf),
}

/// The reason why a serial line cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The path does not exist.
    #[error("{0} is neither a serial device nor a UNIX socket nor HOST:PORT; is the mote plugged in, or QEMU started?")]
    Missing(String),
    /// The path names neither a serial device nor a UNIX socket.
    #[error("{0} is neither a serial device nor a UNIX socket; to run a firmware image in QEMU, use --image")]
    WrongKind(String),
    /// The serial device or the socket exists, but cannot be used.
    #[error("{line} cannot be opened: {source}{}", advice(.source))]
    Refused {
        /// The path of the device or socket, or HOST:PORT.
        line: String,
        /// The error of the system.
        source: io::Error,
    },
    /// The image does not exist.
    #[error("there is no image {0}: `cargo build --release` in firmware/ makes them (its README names the compiler)")]
    NoImage(String),
    /// QEMU is not installed.
    #[error("qemu-system-arm is not installed: sudo apt-get install qemu-system-arm")]
    NoQemu,
    /// QEMU cannot be started.
    #[error("qemu-system-arm does not start: {0}")]
    Qemu(#[source] io::Error),
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            "; serial devices mostly belong to the group dialout: sudo usermod -aG dialout $USER"
        }
        ErrorKind::ConnectionRefused => "; nobody listens there: is QEMU running, with server=on?",
        _ => "",
    }
}

/// An open serial line.
pub(super) struct Ends {
    pub(super) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(super) writer: Box<dyn AsyncWrite + Send + Unpin>,
    qemu: Option<Child>,
}

impl Line {
    /// Finds the serial line that a text names: the path of a device or a UNIX socket, or HOST:PORT.
    ///
    /// # Errors
    /// [`LineError`] if the text is neither HOST:PORT nor the path of a device or a socket, or if the system refuses
    /// access to the path.
    pub fn find(text: &str) -> Result<Self, LineError> {
        match std::fs::metadata(text) {
            Ok(meta) if meta.file_type().is_socket() => Ok(Self::Unix(text.into())),
            Ok(meta) if meta.file_type().is_char_device() => Ok(Self::Device(text.into())),
            Ok(_) => Err(LineError::WrongKind(text.to_owned())),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                Err(LineError::Refused { line: text.to_owned(), source: error })
            }
            Err(_) => match text.rsplit_once(':') {
                Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => Ok(Self::Tcp(text.to_owned())),
                _ => Err(LineError::Missing(text.to_owned())),
            },
        }
    }

    pub(super) async fn open(&self) -> Result<Ends, LineError> {
        let refused = |source| LineError::Refused { line: self.to_string(), source };
        match self {
            Self::Device(path) => {
                let (reader, writer) = open_device(path).map_err(refused)?;
                Ok(Ends { reader: Box::new(reader), writer: Box::new(writer), qemu: None })
            }
            Self::Unix(path) => {
                let (reader, writer) = UnixStream::connect(path).await.map_err(refused)?.into_split();
                Ok(Ends { reader: Box::new(reader), writer: Box::new(writer), qemu: None })
            }
            Self::Tcp(address) => {
                let stream = TcpStream::connect(address).await.map_err(refused)?;
                stream.set_nodelay(true).map_err(refused)?;
                let (reader, writer) = stream.into_split();
                Ok(Ends { reader: Box::new(reader), writer: Box::new(writer), qemu: None })
            }
            Self::Image(path) => start_qemu(path),
        }
    }
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Device(path) | Self::Unix(path) | Self::Image(path) => path.display().fmt(f),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

/// Opens a serial device. A program waits for data of a terminal in the same way as for data of a pipe, so this
/// function returns the types of tokio for pipes.
fn open_device(path: &std::path::Path) -> io::Result<(pipe::Receiver, pipe::Sender)> {
    use rustix::fs::OFlags;
    use rustix::termios::{OptionalActions, isatty, tcgetattr, tcsetattr};
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let flags = i32::try_from(flags).map_err(io::Error::other)?;
    let file = std::fs::OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
    if isatty(&file) {
        let mut settings = tcgetattr(&file)?;
        settings.make_raw();
        settings.set_speed(BAUD)?;
        tcsetattr(&file, OptionalActions::Now, &settings)?;
    }
    Ok((pipe::Receiver::from_file_unchecked(file.try_clone()?)?, pipe::Sender::from_file_unchecked(file)?))
}

fn start_qemu(image: &std::path::Path) -> Result<Ends, LineError> {
    if !image.is_file() {
        return Err(LineError::NoImage(image.display().to_string()));
    }
    let mut qemu = Command::new(QEMU);
    qemu.args(["-machine", "lm3s6965evb", "-cpu", "cortex-m3", "-display", "none", "-monitor", "none", "-no-reboot"]);
    qemu.args(["-chardev", "stdio,id=line,signal=off", "-serial", "chardev:line", "-kernel"]).arg(image);
    qemu.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = qemu.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => LineError::NoQemu,
        _ => LineError::Qemu(error),
    })?;
    match (child.stdout.take(), child.stdin.take()) {
        (Some(reader), Some(writer)) => {
            Ok(Ends { reader: Box::new(reader), writer: Box::new(writer), qemu: Some(child) })
        }
        _ => Err(LineError::Qemu(io::Error::other("it has no standard input and output"))),
    }
}

impl Ends {
    /// Returns the reason why the other side closed the serial line.
    pub(super) async fn epitaph(&mut self) -> String {
        match &mut self.qemu {
            None => "the other side closed it".to_owned(),
            Some(qemu) => {
                // Behind its reason it prints all registers.
                let mut said = String::new();
                if let Some(mut stderr) = qemu.stderr.take() {
                    let _ = stderr.read_to_string(&mut said).await;
                }
                let reason = said.lines().find(|line| line.starts_with("qemu")).unwrap_or("it gave no reason");
                match qemu.wait().await {
                    Ok(status) => format!("QEMU ended ({status}): {reason}"),
                    Err(error) => error.to_string(),
                }
            }
        }
    }

    /// Ends the QEMU process, if the serial line belongs to one.
    pub(super) async fn end(&mut self) {
        if let Some(qemu) = &mut self.qemu {
            // It may have ended by itself.
            let _ = qemu.kill().await;
        }
    }
}

/// The speed of the UART of Tegmen's motes, in baud.
const BAUD: u32 = 115_200;
const QEMU: &str = "qemu-system-arm";
