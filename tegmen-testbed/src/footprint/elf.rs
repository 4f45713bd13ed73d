//! Reads the ELF file of an image: the sizes of its sections, the addresses that link.x defines, and the notes of the
//! image.

use super::Error;
use object::read::elf::ElfFile32;
use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SectionKind, elf};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The content of an image's ELF file, before the image runs.
pub(super) struct Image {
    pub(super) path: PathBuf,
    pub(super) text: u64,
    pub(super) data: u64,
    pub(super) bss: u64,
    pub(super) marks: u64,
    pub(super) stack_top: u64,
    pub(super) stack_limit: u64,
    /// The name of each measured region, by its number. The map is empty if the image contains no measurements.
    pub(super) operations: BTreeMap<u32, String>,
    /// For each type, its size in bytes. The key is the name of the type.
    pub(super) sizes: BTreeMap<String, u64>,
}

impl Image {
    pub(super) fn read(path: &Path) -> Result<Self, Error> {
        let bytes = std::fs::read(path).map_err(|error| Error::File(path.into(), error))?;
        let broken = |what: &str| Error::Elf(path.into(), what.into());
        let file = ElfFile32::<object::Endianness>::parse(&*bytes).map_err(|error| broken(&error.to_string()))?;

        let (mut text, mut data, mut bss) = (0, 0, 0);
        for section in file.sections() {
            let SectionFlags::Elf { sh_flags } = section.flags() else { continue };
            if section.name() == Ok(ERASED) {
                continue;
            }
            let loaded = sh_flags & u64::from(elf::SHF_ALLOC) != 0;
            let writable = sh_flags & u64::from(elf::SHF_WRITE) != 0;
            match (loaded, section.kind()) {
                (false, _) => {}
                (true, SectionKind::UninitializedData) => bss += section.size(),
                (true, _) if writable => data += section.size(),
                (true, _) => text += section.size(),
            }
        }

        let symbol = |name: &str| {
            let found = file.symbols().find(|symbol| symbol.name() == Ok(name));
            found.map(|symbol| symbol.address()).ok_or_else(|| broken(&format!("has no symbol {name}")))
        };
        let notes = match file.section_by_name(".footprint") {
            Some(section) => section.data().map_err(|error| broken(&error.to_string()))?,
            None => &[],
        };
        let (mut operations, mut sizes) = (BTreeMap::new(), BTreeMap::new());
        for note in notes.chunks_exact(Note::LEN).map(Note::parse) {
            match note.kind {
                1 => _ = operations.insert(note.value, note.name),
                2 => _ = sizes.insert(note.name, note.value.into()),
                _ => return Err(broken("has a note of an unknown kind")),
            }
        }
        Ok(Self {
            path: path.into(),
            text,
            data,
            bss,
            marks: symbol("_marks")?,
            stack_top: symbol("_stack_top")?,
            stack_limit: symbol("_stack_limit")?,
            operations,
            sizes,
        })
    }
}

/// The name of the ELF section with erased flash memory. QEMU needs this section, but a real device does not. So its
/// bytes do not count as part of the image's size (link.x).
pub(super) const ERASED: &str = ".erased";

/// A `measure::Note` of the firmware crate, in the form in which an ELF file contains it.
struct Note {
    kind: u32,
    value: u32,
    name: String,
}

impl Note {
    const LEN: usize = 32;

    fn parse(bytes: &[u8]) -> Self {
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        let name = String::from_utf8_lossy(&bytes[8..Self::LEN]);
        Self { kind: word(0), value: word(4), name: name.trim_end_matches('\0').to_owned() }
    }
}
