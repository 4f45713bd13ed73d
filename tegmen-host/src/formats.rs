//! Content-Formats by name, and the conversion of representations to text for people.

use crate::{problem, senml};
use tegmen_store::clock::now;

/// A Content-Format of the IANA registry.
struct Format {
    number: u16,
    /// The short name of the format on the command line.
    name: &'static str,
    media_type: &'static str,
}

const FORMATS: &[Format] = &[
    Format { number: 0, name: "text", media_type: "text/plain; charset=utf-8" },
    Format { number: 40, name: "link", media_type: "application/link-format" },
    Format { number: 41, name: "xml", media_type: "application/xml" },
    Format { number: 42, name: "bytes", media_type: "application/octet-stream" },
    Format { number: 50, name: "json", media_type: "application/json" },
    Format { number: 51, name: "json-patch", media_type: "application/json-patch+json" },
    Format { number: 52, name: "merge-patch", media_type: "application/merge-patch+json" },
    Format { number: 60, name: "cbor", media_type: "application/cbor" },
    Format { number: 61, name: "cwt", media_type: "application/cwt" },
    Format { number: 63, name: "cbor-seq", media_type: "application/cbor-seq" },
    Format { number: 110, name: "senml", media_type: "application/senml+json" },
    Format { number: 112, name: "senml-cbor", media_type: "application/senml+cbor" },
    Format { number: 257, name: "problem", media_type: "application/concise-problem-details+cbor" },
];

/// Returns the number of a Content-Format. The text is a number, a short name such as `json`, or a media type.
pub fn parse(text: &str) -> Option<u16> {
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let same = |format: &&Format| format.name == text || format.media_type.split(';').next() == Some(text);
    FORMATS.iter().find(same).map(|format| format.number)
}

/// Returns the media type of a Content-Format.
pub fn media_type(number: u16) -> Option<&'static str> {
    FORMATS.iter().find(|format| format.number == number).map(|format| format.media_type)
}

/// Returns the short names, for help texts.
pub fn names() -> String {
    FORMATS.iter().map(|format| format.name).collect::<Vec<_>>().join(", ")
}

/// Returns a representation in a form for people: indented JSON, CBOR in diagnostic notation (RFC 8949, section 8),
/// SenML as a table, one link on each line, and problem details as text. Returns `None` if the representation should be
/// shown without changes.
pub fn show(format: Option<u32>, bytes: &[u8]) -> Option<String> {
    match format? {
        40 => Some(std::str::from_utf8(bytes).ok()?.replace(",<", ",\n<")),
        50..=52 => {
            let value: serde_json::Value = serde_json::from_slice(bytes).ok()?;
            serde_json::to_string_pretty(&value).ok()
        }
        60 | 61 | 63 => Some(minicbor::display(bytes).to_string()),
        110 => Some(senml::table(&senml::from_json(bytes).ok()?, now() as f64)),
        112 => Some(senml::table(&senml::from_cbor(bytes).ok()?, now() as f64)),
        257 => problem::Problem::from_cbor(bytes).ok().map(|problem| problem.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
