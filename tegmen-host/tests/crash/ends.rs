//! A mote with flash memory and a host with a directory, and the faults that can happen to them.

use std::path::{Path, PathBuf};
use tegmen::oscore::{Aead, Parameters, RederivableContext};
use tegmen_flash::{Flash, Kept, Page, RECORD_LEN};
use tegmen_host::contexts::{self, ContextError, ContextFile, StoredContext};
use tegmen_host::provider::HostCrypto;
use zeroize::Zeroizing;

/// The error that the power failed before the operation was complete.
#[derive(Debug)]
pub(crate) struct Cut;

/// One of the two endpoints of the context: the mote or the host.
pub(crate) trait End {
    fn context(&mut self) -> &mut RederivableContext;

    /// Reserves message numbers (a lease) if none is left. If this returns [`Cut`], the power failed, and the endpoint
    /// has restarted.
    fn lease_one(&mut self) -> Result<(), Cut>;
}

// --- the mote ---

/// Two pages of flash memory. The power fails after `power` bytes were changed.
struct Memory {
    pages: [Vec<u8>; 2],
    power: Option<usize>,
}

impl Memory {
    fn step(&mut self) -> Result<(), Cut> {
        match &mut self.power {
            Some(0) => Err(Cut),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Flash for Memory {
    type Error = Cut;
    const PAGE_LEN: usize = 10 * RECORD_LEN;

    fn read(&self, page: Page, at: usize, out: &mut [u8; RECORD_LEN]) {
        out.copy_from_slice(&self.pages[page as usize][at..at + RECORD_LEN]);
    }

    fn program(&mut self, page: Page, at: usize, record: &[u8; RECORD_LEN]) -> Result<(), Cut> {
        for (i, byte) in record.iter().enumerate() {
            let cut = self.step();
            self.pages[page as usize][at + i] &= if cut.is_err() { byte | 0x5a } else { *byte };
            cut?;
        }
        Ok(())
    }

    fn erase(&mut self, page: Page) -> Result<(), Cut> {
        for at in 0..Self::PAGE_LEN {
            self.step()?;
            self.pages[page as usize][at] = 0xff;
        }
        Ok(())
    }
}

/// Number of message numbers that a mote reserves at once (a lease).
const LEASE: u64 = 16;

pub(crate) struct Mote {
    secret: [u8; 16],
    kept: Option<Kept<Memory>>,
    context: RederivableContext,
}

impl Mote {
    pub(crate) fn new(secret: [u8; 16]) -> Self {
        let memory = Memory { pages: [vec![0xff; Memory::PAGE_LEN], vec![0xff; Memory::PAGE_LEN]], power: None };
        let kept = Kept::format(memory, 0).unwrap();
        let context = RederivableContext::new::<HostCrypto>(&parameters(&secret)).unwrap();
        Self { secret, kept: Some(kept), context }
    }

    /// Cuts the power, and starts from the content of the flash memory.
    pub(crate) fn power_cut(&mut self) {
        let mut memory = self.kept.take().unwrap().into_flash();
        memory.power = None;
        let kept = Kept::open(memory).unwrap();
        self.context = RederivableContext::resume::<HostCrypto>(&parameters(&self.secret), kept.value()).unwrap();
        self.kept = Some(kept);
    }

    pub(crate) fn cut_after(&mut self, bytes: usize) {
        let mut memory = self.kept.take().unwrap().into_flash();
        memory.power = Some(bytes);
        self.kept = Some(Kept::open(memory).unwrap());
    }

    /// Moves the next message number back by one lease ([`LEASE`]), so that numbers repeat. The checks of the test must
    /// detect this fault.
    pub(crate) fn forget_the_last_lease(&mut self) {
        let kept = self.kept.as_ref().unwrap().value().saturating_sub(LEASE);
        self.context = RederivableContext::resume::<HostCrypto>(&parameters(&self.secret), kept).unwrap();
    }
}

fn parameters(secret: &[u8; 16]) -> Parameters<'_> {
    let aead = Aead::AesCcm16_64_128;
    Parameters { master_secret: secret, master_salt: &[], sender_id: b"m", recipient_id: b"h", id_context: None, aead }
}

impl End for Mote {
    fn context(&mut self) -> &mut RederivableContext {
        &mut self.context
    }

    fn lease_one(&mut self) -> Result<(), Cut> {
        if self.context.lease().left() > 0 {
            return Ok(());
        }
        let end = self.context.lease().end() + LEASE;
        match self.kept.as_mut().unwrap().keep(end) {
            Ok(()) => {
                self.context.lease_mut().extend(end);
                Ok(())
            }
            Err(Cut) => {
                self.power_cut();
                Err(Cut)
            }
        }
    }
}

// --- the host ---

pub(crate) struct Host {
    directory: PathBuf,
    stored: Option<StoredContext>,
    backup: Option<Vec<u8>>,
    cut: Option<When>,
}

enum When {
    Before,
    After,
}

impl Host {
    pub(crate) fn new(secret: [u8; 16], directory: PathBuf) -> Self {
        let file = ContextFile {
            sender_id: b"h".to_vec(),
            recipient_id: b"m".to_vec(),
            master_secret: Zeroizing::new(secret.to_vec()),
            master_salt: Vec::new(),
            id_context: None,
            aead: Aead::AesCcm16_64_128,
            created: contexts::now(),
            expires: None,
            allow: None,
            rederivation: false,
        };
        contexts::create(&directory.join("context"), &file).unwrap();
        let stored = StoredContext::open(&directory.join("context")).unwrap();
        Self { directory, stored: Some(stored), backup: None, cut: None }
    }

    fn dir(&self) -> PathBuf {
        self.directory.join("context")
    }

    fn numbers(&self) -> PathBuf {
        self.dir().join("numbers.toml")
    }

    pub(crate) fn power_cut(&mut self) {
        self.cut = None;
        if let Some(stored) = self.stored.take() {
            stored.abandon();
        }
        self.stored = Some(StoredContext::open(&self.dir()).unwrap());
    }

    pub(crate) fn cut_before_next_lease(&mut self) {
        self.cut = Some(When::Before);
    }

    pub(crate) fn cut_after_next_lease(&mut self) {
        self.cut = Some(When::After);
    }

    pub(crate) fn orderly_restart(&mut self) {
        self.stored = None;
        self.stored = Some(StoredContext::open(&self.dir()).unwrap());
    }

    pub(crate) fn take_backup(&mut self) {
        self.backup = std::fs::read(self.numbers()).ok();
    }

    /// Restores the backup of the file of sequence numbers, and opens the context. If `in_place` is true, writes over
    /// the present file; otherwise makes a new file. Returns false if there is no backup, or if the present file is
    /// equal to the backup and `in_place` is true. In all other cases checks that the restored file is refused,
    /// recovers the context, and returns true.
    pub(crate) fn restore_backup(&mut self, in_place: bool) -> bool {
        let Some(backup) = self.backup.clone() else { return false };
        if let Some(stored) = self.stored.take() {
            stored.abandon();
        }
        if in_place && std::fs::read(self.numbers()).is_ok_and(|now| now == backup) {
            self.stored = Some(StoredContext::open(&self.dir()).unwrap());
            return false;
        }
        if !in_place {
            std::fs::remove_file(self.numbers()).unwrap();
        }
        std::fs::write(self.numbers(), backup).unwrap();
        self.refused_and_recovered();
        true
    }

    pub(crate) fn tear_file(&mut self, at: u64) {
        if let Some(stored) = self.stored.take() {
            stored.abandon();
        }
        let whole = std::fs::read(self.numbers()).unwrap();
        let cut = at as usize % (whole.len() - 1);
        std::fs::write(self.numbers(), &whole[..cut]).unwrap();
        self.refused_and_recovered();
    }

    fn refused_and_recovered(&mut self) {
        assert!(matches!(StoredContext::open(&self.dir()), Err(ContextError::Numbers { .. })));
        contexts::recover(&self.dir()).unwrap();
        self.stored = Some(StoredContext::open(&self.dir()).unwrap());
    }

    pub(crate) fn try_copy(&mut self) {
        let copy = self.directory.join("copy");
        let _ = std::fs::remove_dir_all(&copy);
        std::fs::create_dir_all(&copy).unwrap();
        for file in ["context.toml", "numbers.toml"] {
            std::fs::copy(self.dir().join(file), copy.join(file)).unwrap();
        }
        assert!(StoredContext::open(Path::new(&copy)).is_err(), "a copy was opened");
    }

    pub(crate) fn try_double_start(&mut self) {
        assert!(matches!(StoredContext::open(&self.dir()), Err(ContextError::InUse { .. })));
    }
}

impl End for Host {
    fn context(&mut self) -> &mut RederivableContext {
        &mut self.stored.as_mut().unwrap().context
    }

    fn lease_one(&mut self) -> Result<(), Cut> {
        let stored = self.stored.as_mut().unwrap();
        if stored.context.lease().left() > 0 {
            // A host leases many: it uses them up sooner here, so that more is leased.
            return Ok(());
        }
        match self.cut.take() {
            None => {
                stored.lease_one().unwrap();
                Ok(())
            }
            Some(When::Before) => {
                self.power_cut();
                Err(Cut)
            }
            Some(When::After) => {
                stored.lease_one().unwrap();
                self.power_cut();
                Err(Cut)
            }
        }
    }
}
