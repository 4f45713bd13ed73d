//! Runs the motes of the firmware as images for a Cortex-M3 in QEMU.

use super::{Error, packet_or_done, turn};
use crate::footprint::build;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;
use tegmen::buf::Writer;
use tegmen::time::Instant;
use tegmen_lowpan::slip::{Control, Decoder, Start, encode};

/// Builds the images of both motes. Returns the path of the server's image, and then that of the client's image.
///
/// # Errors
/// [`Error::Build`]. If a tool is missing, the message contains the command that installs it.
pub fn images(project: &Path, target: &Path) -> Result<[PathBuf; 2], Error> {
    build::chosen_images(project, target, "compact", ["cosim_server", "cosim_client"]).map_err(Error::Build)
}

/// A mote that runs in a separate QEMU process. The process ends when this value is dropped.
pub struct Emulated {
    qemu: Child,
    line: ChildStdin,
    frames: Receiver<Vec<u8>>,
}

impl Emulated {
    /// Starts the image in QEMU. When the mote requests its start data, answers with `start`.
    ///
    /// # Errors
    /// [`Error`], if QEMU or the mote does not start.
    pub fn start(image: &Path, start: Start) -> Result<Self, Error> {
        let mut qemu = Command::new("qemu-system-arm");
        qemu.args(["-machine", "lm3s6965evb", "-cpu", "cortex-m3", "-display", "none", "-monitor", "none"]);
        // A mote that restarts has failed.
        qemu.args(["-no-reboot", "-chardev", "stdio,id=line,signal=off", "-serial", "chardev:line", "-kernel"]);
        qemu.arg(image).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut qemu = qemu.spawn().map_err(Error::Line)?;
        let ends = qemu.stdin.take().zip(qemu.stdout.take());
        let (line, output) = ends.ok_or_else(|| Error::Line(std::io::ErrorKind::BrokenPipe.into()))?;
        let mut mote = Self { qemu, line, frames: listen(output) };
        let question = mote.hear()?;
        if !matches!(Control::parse(&question), Ok(Control::SeedPlease)) {
            return Err(Error::Garbled(question));
        }
        let mut answer = [0; Control::MAX_LEN];
        let mut writer = Writer::new(&mut answer);
        Control::Start(start).write(&mut writer).map_err(|_| Error::Line(std::io::ErrorKind::InvalidInput.into()))?;
        mote.say(writer.written())?;
        Ok(mote)
    }

    fn say(&mut self, frame: &[u8]) -> Result<(), Error> {
        self.line.write_all(&encode(frame).collect::<Vec<_>>()).and_then(|()| self.line.flush()).map_err(Error::Line)
    }

    fn hear(&mut self) -> Result<Vec<u8>, Error> {
        self.frames.recv_timeout(PATIENCE).map_err(|error| match error {
            RecvTimeoutError::Timeout => Error::Silent,
            RecvTimeoutError::Disconnected => Error::Ended(self.epitaph()),
        })
    }

    /// Returns the line that contains the reason why QEMU ended. QEMU prints all registers after this line.
    fn epitaph(&mut self) -> String {
        let mut said = String::new();
        if let Some(mut errors) = self.qemu.stderr.take() {
            let _ = errors.read_to_string(&mut said);
        }
        said.lines().find(|line| line.starts_with("qemu")).unwrap_or("it gave no reason").to_owned()
    }
}

impl super::Mote for Emulated {
    fn take_turn(&mut self, now: Instant, packet: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        self.say(&turn(now, packet))?;
        let mut packets = Vec::new();
        loop {
            let frame = self.hear()?;
            // The mote has asked for its seed again, because the seed had not arrived yet.
            if matches!(Control::parse(&frame), Ok(Control::SeedPlease)) {
                continue;
            }
            match packet_or_done(frame)? {
                Some(packet) => packets.push(packet),
                None => return Ok(packets),
            }
        }
    }
}

impl Drop for Emulated {
    fn drop(&mut self) {
        // The QEMU process may have ended already.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// Starts a thread that reads frames from the serial line of the mote, until QEMU closes this line. The returned
/// receiver can wait for a frame with a timeout.
fn listen(mut line: ChildStdout) -> Receiver<Vec<u8>> {
    let (sender, frames) = mpsc::channel();
    std::thread::spawn(move || {
        let mut storage = [0; 1280];
        let mut decoder = Decoder::new(&mut storage);
        let mut bytes = [0; 512];
        while let Ok(len @ 1..) = line.read(&mut bytes) {
            for byte in &bytes[..len] {
                if let Some(frame) = decoder.push(*byte)
                    && sender.send(frame.to_vec()).is_err()
                {
                    return;
                }
            }
        }
    });
    frames
}

/// Maximum real time until a mote reports that it has processed a packet or a change of the time. A mote usually needs
/// about a millisecond, so a mote that exceeds this time has failed.
const PATIENCE: Duration = Duration::from_secs(20);
