//! The size of each component of an image. The source line of an instruction determines its component. The symbol of a
//! constant or variable determines its component.

use super::build::output_of;
use super::elf::ERASED;
use super::{Error, lines};
use object::read::elf::ElfFile32;
use object::{Object, ObjectSection, ObjectSymbol, SectionFlags, SectionKind, SymbolKind, elf};
use serde::Serialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// Sizes of one component, in bytes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub struct Bytes {
    /// Size of code and constants, in bytes.
    pub text: u64,
    /// Size of initialized variables, in bytes.
    pub data: u64,
    /// Size of other variables, in bytes.
    pub bss: u64,
}

/// Returns the size of each component of an image. The names of the components are: `P-256` (of the provider for
/// motes), `crypto` (other cryptography), `DTLS`, `CoAP`, `6LoWPAN`, `IP`, `application`, `common` (buffers and time),
/// `runtime` (code of the compiler) and `unnamed` (bytes without a symbol, such as padding and constants without a
/// name). `sources` has the crate and the source line of each instruction.
pub(super) fn of(
    image: &Path,
    instructions: &[(String, u64)],
    sources: &[(String, String)],
    sections: Bytes,
) -> Result<BTreeMap<String, Bytes>, Error> {
    let mut components: BTreeMap<String, Bytes> = BTreeMap::new();
    for ((_, len), (krate, at)) in instructions.iter().zip(sources) {
        components.entry(component(krate, at).to_owned()).or_default().text += len;
    }
    for (section, len, name) in variables(image)? {
        let bytes = components.entry(component_of_symbol(&name).to_owned()).or_default();
        match section {
            SectionKind::UninitializedData => bytes.bss += len,
            SectionKind::Data => bytes.data += len,
            _ => bytes.text += len,
        }
    }
    let named = components.values().fold(Bytes::default(), |sum, bytes| Bytes {
        text: sum.text + bytes.text,
        data: sum.data + bytes.data,
        bss: sum.bss + bytes.bss,
    });
    let unnamed = Bytes {
        text: sections.text.saturating_sub(named.text),
        data: sections.data.saturating_sub(named.data),
        bss: sections.bss.saturating_sub(named.bss),
    };
    components.insert("unnamed".to_owned(), unnamed);
    components.retain(|_, bytes| *bytes != Bytes::default());
    Ok(components)
}

/// The component for key agreement and signatures on secp256r1, in the provider for motes.
pub(super) const P256: &str = "P-256";

/// Returns the address and the length of each instruction of an image.
pub(super) fn instructions(image: &Path) -> Result<Vec<(String, u64)>, Error> {
    let listing = output_of(Command::new("arm-none-eabi-objdump").arg("--disassemble").arg(image))?;
    Ok(listed(&listing))
}

/// Returns the address and the length of each instruction in a listing. Constants that a function loads are between its
/// instructions. Their bytes count for the instruction before them.
fn listed(listing: &str) -> Vec<(String, u64)> {
    let mut found: Vec<(String, u64)> = Vec::new();
    let (mut last, mut end) = (None, 0);
    for line in listing.lines() {
        let mut fields = line.split('\t');
        let (Some(address), Some(code), Some(mnemonic)) = (fields.next(), fields.next(), fields.next()) else {
            last = None; // the next function begins, or another section
            continue;
        };
        let Ok(at) = u64::from_str_radix(address.trim().trim_end_matches(':'), 16) else { continue };
        let len = code.split_whitespace().map(|part| part.len() as u64 / 2).sum::<u64>();
        match last.and_then(|index: usize| found.get_mut(index)) {
            Some((_, before)) if mnemonic.starts_with('.') => {
                *before += at + len - end;
            }
            _ => {
                found.push((format!("{at:x}"), len));
                last = Some(found.len() - 1);
            }
        }
        end = at + len;
    }
    found
}

/// Returns the section, the size and the name of each constant and variable.
fn variables(image: &Path) -> Result<Vec<(SectionKind, u64, String)>, Error> {
    let bytes = std::fs::read(image).map_err(|error| Error::File(image.into(), error))?;
    let file = ElfFile32::<object::Endianness>::parse(&*bytes);
    let file = file.map_err(|error| Error::Elf(image.into(), error.to_string()))?;
    let symbols = file.symbols().filter(|symbol| symbol.kind() == SymbolKind::Data && symbol.size() > 0);
    let found = symbols.filter_map(|symbol| {
        let section = file.section_by_index(symbol.section_index()?).ok()?;
        let SectionFlags::Elf { sh_flags } = section.flags() else { return None };
        let kept = sh_flags & u64::from(elf::SHF_ALLOC) != 0 && section.name() != Ok(ERASED);
        let writable = sh_flags & u64::from(elf::SHF_WRITE) != 0;
        let kind = match section.kind() {
            SectionKind::UninitializedData => SectionKind::UninitializedData,
            _ if writable => SectionKind::Data,
            _ => SectionKind::ReadOnlyData,
        };
        let name = format!("{:#}", rustc_demangle::demangle(symbol.name().ok()?));
        kept.then_some((kind, symbol.size(), name))
    });
    Ok(found.collect())
}

/// Returns the component to which a source line belongs.
fn component(krate: &str, at: &str) -> &'static str {
    let file = at.strip_prefix("src/").unwrap_or(at);
    let module = file.split(['/', '.', ':']).next().unwrap_or_default();
    match krate {
        "tegmen-firmware" => "application",
        "tegmen-base" if file.starts_with("crypto/p256") => P256,
        "tegmen" | "tegmen-base" => component_of_module(module),
        "tegmen-coap" | "tegmen-proxy" => "CoAP",
        "tegmen-oscore" => "OSCORE",
        "tegmen-edhoc" => "EDHOC",
        // The state machine of EDHOC.
        _ if krate.starts_with("lakers-") => "EDHOC",
        "tegmen-ndn" if module == "lowpan" => "6LoWPAN",
        "tegmen-ndn" => "NDN",
        "tegmen-lowpan" => component_of_network(module),
        "tegmen-tickets" => "DTLS",
        "tegmen-delegation" | "tegmen-flash" => "delegation",
        "tegmen-x509" => "common",
        lines::CORE | "compiler-builtins" | "libm" => "runtime",
        // All other crates in an image implement ciphers and hashes, or are dependencies of these crates.
        _ => "crypto",
    }
}

fn component_of_module(module: &str) -> &'static str {
    match module {
        "crypto" | "secret" => "crypto",
        "coap" => "CoAP",
        "dtls" | "endpoint" | "replay" => "DTLS",
        _ => "common",
    }
}

fn component_of_network(module: &str) -> &'static str {
    match module {
        "ip" | "slip" => "IP",
        _ => "6LoWPAN",
    }
}

/// Returns the component to which a constant or variable belongs. It follows from the path in the symbol's name.
fn component_of_symbol(name: &str) -> &'static str {
    let path = name.trim_start_matches('<');
    let (krate, rest) = path.split_once("::").unwrap_or((path, ""));
    match krate {
        "tegmen_base" if rest.starts_with("crypto::p256::") => P256,
        "tegmen" | "tegmen_base" => component_of_module(rest.split(':').next().unwrap_or_default()),
        "tegmen_coap" | "tegmen_proxy" => "CoAP",
        "tegmen_oscore" => "OSCORE",
        "tegmen_edhoc" | "lakers" | "lakers_shared" => "EDHOC",
        "tegmen_ndn" => "NDN",
        "tegmen_lowpan" => component_of_network(rest.split(':').next().unwrap_or_default()),
        "tegmen_tickets" => "DTLS",
        "tegmen_delegation" | "tegmen_flash" => "delegation",
        "tegmen_x509" => "common",
        "core" | "compiler_builtins" => "runtime",
        "aes" | "ccm" | "sha2" | "cipher" | "ctr" | "cbc_mac" | "chacha20" | "ghash" | "polyval" | "aes_gcm" => {
            "crypto"
        }
        _ => "application",
    }
}

#[cfg(test)]
mod tests;
