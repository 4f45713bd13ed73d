//! Sensor Measurement Lists (RFC 8428): reads and writes packs in JSON and CBOR, and resolves their records.

use crate::base64url::{from_base64url, to_base64url};
use crate::cbor::{Malformed, read_array, read_map_with, skip_value};
use minicbor::data::{IanaTag, Type};
use minicbor::{Decoder, Encoder};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::cell::Cell;
use std::fmt::{self, Write as _};

/// One record of a pack, with the names of RFC 8428, table 1; `None` means that the field is absent.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct Record {
    /// Base version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bver: Option<u64>,
    /// Base name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bn: Option<String>,
    /// Base time, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bt: Option<f64>,
    /// Base unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bu: Option<String>,
    /// Base value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bv: Option<f64>,
    /// Base sum.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bs: Option<f64>,
    /// Name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub n: Option<String>,
    /// Unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub u: Option<String>,
    /// Value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v: Option<f64>,
    /// Text value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vs: Option<String>,
    /// Boolean value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vb: Option<bool>,
    /// Data value, in base64url without padding, even if the pack was read from CBOR.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vd: Option<String>,
    /// Sum, the integral over time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub s: Option<f64>,
    /// Time in seconds. A value below 2^28 is relative to the current time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub t: Option<f64>,
    /// Update time: the next record arrives within this number of seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ut: Option<f64>,
}

/// The reason why a pack cannot be read or written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no SenML pack (RFC 8428): {0}")]
pub struct SenmlError(String);

/// The version of SenML that RFC 8428 defines. A pack without a version has this version.
const VERSION: u64 = 10;

/// The lowest time that is in seconds since 1970. A lower time is relative to the current time (RFC 8428, section
/// 4.5.3).
const FIRST_ABSOLUTE: f64 = 268_435_456.0;

/// The labels of RFC 8428, table 1.
const LABELS: [&str; 15] = ["bver", "bn", "bt", "bu", "bv", "bs", "n", "u", "v", "vs", "vb", "vd", "s", "t", "ut"];

/// Checks the records of a pack in their order. The bool is true if the record also has a field with an unknown label.
/// Such a field can contain the value of the record. In an error, the first record has the number 1.
fn check<'r>(records: impl IntoIterator<Item = (&'r Record, bool)>) -> Result<(), SenmlError> {
    let (mut version, mut base) = (None, Base::default());
    for ((record, has_unknown), number) in records.into_iter().zip(1..) {
        let refused = |why: String| SenmlError(format!("record {number}: {why}"));
        // RFC 8428, section 4.4.
        let own = record.bver.or(version).unwrap_or(VERSION);
        if !(1..=VERSION).contains(&own) {
            return Err(refused(format!("version {own} is not between 1 and {VERSION}")));
        }
        let first = *version.get_or_insert(own);
        if first != own {
            return Err(refused(format!("version {own} differs from version {first} of the first record")));
        }
        if !has_only_finite_numbers(record) {
            return Err(refused("there is a number that is not finite".to_owned()));
        }
        if let Some(name) = record.bn.as_deref() {
            base = Base { name, is_allowed: has_allowed_characters(name) };
        }
        check_measurement(record, &base, has_unknown).map_err(refused)?;
    }
    Ok(())
}

/// Returns true if all numbers of a record are JSON numbers (RFC 8428, section 5).
fn has_only_finite_numbers(record: &Record) -> bool {
    let Record { bt, bv, bs, v, s, t, ut, .. } = record;
    [bt, bv, bs, v, s, t, ut].into_iter().flatten().all(|number| number.is_finite())
}

/// A base name. Many records can have the same base name, so its characters are checked only once.
#[derive(Default)]
struct Base<'r> {
    name: &'r str,
    /// True if a name can have all characters of the base name.
    is_allowed: bool,
}

/// Returns true if a name can have these characters (RFC 8428, section 4.5.1).
fn has_allowed_characters(text: &str) -> bool {
    text.chars().all(|letter| letter.is_ascii_alphanumeric() || "-:./_".contains(letter))
}

/// Checks the number of values and the complete name of a record with this base name (RFC 8428, sections 4.2 and
/// 4.5.1). A record that contains only base fields has neither a value nor a complete name, as in section 5.1.7.
fn check_measurement(record: &Record, base: &Base<'_>, has_unknown: bool) -> Result<(), String> {
    let Record { n, u, v, vs, vb, vd, s, t, ut, .. } = record;
    let values = [v.is_some(), vs.is_some(), vb.is_some(), vd.is_some()].into_iter().filter(|there| *there).count();
    match values {
        0 if n.is_none() && u.is_none() && s.is_none() && t.is_none() && ut.is_none() => return Ok(()),
        0 if s.is_none() && !has_unknown => return Err("there is neither a value nor a sum".to_owned()),
        0 | 1 => {}
        _ => return Err(format!("there are {values} values")),
    }
    if vd.as_deref().is_some_and(|data| from_base64url(data).is_none()) {
        return Err("the data value is not in base64url".to_owned());
    }
    let own = n.as_deref().unwrap_or_default();
    let first = base.name.chars().chain(own.chars()).next();
    let begins = first.is_some_and(|first| first.is_ascii_alphanumeric());
    if begins && (base.is_allowed || base.name.is_empty()) && has_allowed_characters(own) {
        return Ok(());
    }
    Err(format!(
        "the name {:?} does not begin with a letter or a digit, or has a character other than letters, digits, -, :, ., / \
         and _",
        base.name.to_owned() + own
    ))
}

/// Checks the records that a reader has read, and returns them. The bool has the same meaning as in [`check`].
fn checked(records: Vec<(Record, bool)>) -> Result<Vec<Record>, SenmlError> {
    check(records.iter().map(|(record, has_unknown)| (record, *has_unknown)))?;
    Ok(records.into_iter().map(|(record, _)| record).collect())
}

/// The fields of a record in JSON. Each field occurs once.
struct Fields(serde_json::Map<String, serde_json::Value>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl<'de> Visitor<'de> for Reader {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a record")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = serde_json::Map::new();
                while let Some(name) = map.next_key::<String>()? {
                    if fields.contains_key(&name) {
                        return Err(A::Error::custom(format_args!("field {name} comes twice")));
                    }
                    fields.insert(name, map.next_value()?);
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(Reader)
    }
}

/// Reads a pack in JSON. Unknown fields are skipped unless their name ends in `_`.
///
/// # Errors
/// [`SenmlError`] if the pack is not valid.
pub fn from_json(bytes: &[u8]) -> Result<Vec<Record>, SenmlError> {
    let records: Vec<Fields> = serde_json::from_slice(bytes).map_err(|error| SenmlError(error.to_string()))?;
    let read = |Fields(fields)| {
        // RFC 8428, section 4.4.
        if let Some(name) = fields.keys().find(|name| name.ends_with('_')) {
            return Err(SenmlError(format!("field {name} must be understood")));
        }
        let has_unknown = fields.keys().any(|name| !LABELS.contains(&name.as_str()));
        let record = serde_json::from_value(fields.into()).map_err(|error| SenmlError(error.to_string()))?;
        Ok((record, has_unknown))
    };
    checked(records.into_iter().map(read).collect::<Result<_, _>>()?)
}

/// Writes a pack in JSON.
///
/// # Errors
/// [`SenmlError`] if the pack is not valid.
pub fn to_json(records: &[Record]) -> Result<Vec<u8>, SenmlError> {
    check(records.iter().map(|record| (record, false)))?;
    serde_json::to_vec(records).map_err(|error| SenmlError(error.to_string()))
}

/// Reads a pack in CBOR (RFC 8428, section 6).
///
/// # Errors
/// [`SenmlError`] if the pack is not valid, or if bytes follow it.
pub fn from_cbor(bytes: &[u8]) -> Result<Vec<Record>, SenmlError> {
    let mut decoder = Decoder::new(bytes);
    let (mut records, mut must_be_understood) = (Vec::new(), false);
    let read = read_array(&mut decoder, |decoder| {
        let (mut record, has_unknown) = (Record::default(), Cell::new(false));
        let read_key = |decoder: &mut Decoder<'_>| {
            has_unknown.set(true);
            must_be_understood |= ends_in_underscore(decoder)?;
            Ok(())
        };
        read_map_with(decoder, read_key, |label, decoder| {
            match label {
                -1 => record.bver = Some(decoder.u64()?),
                -2 => record.bn = Some(decoder.str()?.to_owned()),
                -3 => record.bt = Some(number(decoder)?),
                -4 => record.bu = Some(decoder.str()?.to_owned()),
                -5 => record.bv = Some(number(decoder)?),
                -6 => record.bs = Some(number(decoder)?),
                0 => record.n = Some(decoder.str()?.to_owned()),
                1 => record.u = Some(decoder.str()?.to_owned()),
                2 => record.v = Some(number(decoder)?),
                3 => record.vs = Some(decoder.str()?.to_owned()),
                4 => record.vb = Some(decoder.bool()?),
                5 => record.s = Some(number(decoder)?),
                6 => record.t = Some(number(decoder)?),
                7 => record.ut = Some(number(decoder)?),
                8 => record.vd = Some(to_base64url(decoder.bytes()?)),
                _ => {
                    has_unknown.set(true);
                    return Ok(false);
                }
            }
            Ok(true)
        })?;
        records.push((record, has_unknown.get()));
        Ok(())
    });
    read.map_err(|error| SenmlError(error.to_string()))?;
    if must_be_understood {
        return Err(SenmlError("there is a field that must be understood".to_owned()));
    }
    if decoder.position() < bytes.len() {
        return Err(SenmlError("there are bytes after the pack".to_owned()));
    }
    checked(records)
}

/// Reads the label of a field that is not an integer. Table 4 of RFC 8428 has only integers. Returns true if the label
/// is a text that ends in `_`: then a reader must understand the field.
fn ends_in_underscore(decoder: &mut Decoder<'_>) -> Result<bool, Malformed> {
    if !matches!(decoder.datatype()?, Type::String | Type::StringIndef) {
        return skip_value(decoder).map(|()| false);
    }
    let mut last = None;
    for part in decoder.str_iter()? {
        last = part?.chars().next_back().or(last);
    }
    Ok(last == Some('_'))
}

fn number(decoder: &mut Decoder<'_>) -> Result<f64, Malformed> {
    match decoder.datatype()? {
        Type::F16 | Type::F32 | Type::F64 => Ok(decoder.f64()?),
        // A decimal fraction (tag 4) is exponent and mantissa (RFC 8949, section 3.4.4).
        Type::Tag => {
            if decoder.tag()? != IanaTag::Decimal || decoder.array()? != Some(2) {
                return Err(Malformed::Syntax);
            }
            let (exponent, mantissa) = (decoder.int()?, mantissa(decoder)?);
            // The conversion of the text returns the nearest number. A multiplication by a power of ten would round
            // twice.
            format!("{mantissa}e{exponent}").parse().map_err(|_| Malformed::Syntax)
        }
        _ => Ok(i128::from(decoder.int()?) as f64),
    }
}

/// Reads the mantissa of a decimal fraction: an integer, or a bignum (RFC 8949, section 3.4.3) below 2^128. Returns its
/// decimal digits.
fn mantissa(decoder: &mut Decoder<'_>) -> Result<String, Malformed> {
    if decoder.datatype()? != Type::Tag {
        return Ok(decoder.int()?.to_string());
    }
    let tag = decoder.tag()?;
    let number = decoder.bytes()?.iter().try_fold(0_u128, |number, byte| {
        number.checked_mul(256).and_then(|number| number.checked_add(u128::from(*byte)))
    });
    let number = number.ok_or(Malformed::TooLong)?;
    match IanaTag::try_from(tag) {
        Ok(IanaTag::PosBignum) => Ok(number.to_string()),
        // The number is -1 - n.
        Ok(IanaTag::NegBignum) => Ok(format!("-{}", number.checked_add(1).ok_or(Malformed::TooLong)?)),
        _ => Err(Malformed::Syntax),
    }
}

/// Writes a pack in CBOR.
///
/// # Errors
/// [`SenmlError`] if the pack is not valid.
pub fn to_cbor(records: &[Record]) -> Result<Vec<u8>, SenmlError> {
    check(records.iter().map(|record| (record, false)))?;
    let mut encoder = Encoder::new(Vec::new());
    // A vector takes everything.
    let _ = write_pack(&mut encoder, records);
    Ok(encoder.into_writer())
}

fn write_pack(
    encoder: &mut Encoder<Vec<u8>>,
    records: &[Record],
) -> Result<(), minicbor::encode::Error<std::convert::Infallible>> {
    encoder.array(records.len() as u64)?;
    for record in records {
        let texts = [(-2, &record.bn), (-4, &record.bu), (0, &record.n), (1, &record.u), (3, &record.vs)];
        let numbers = [
            (-3, record.bt),
            (-5, record.bv),
            (-6, record.bs),
            (2, record.v),
            (5, record.s),
            (6, record.t),
            (7, record.ut),
        ];
        let data = record.vd.as_deref().and_then(from_base64url);
        let count = texts.iter().filter(|(_, text)| text.is_some()).count()
            + numbers.iter().filter(|(_, number)| number.is_some()).count()
            + [record.bver.is_some(), record.vb.is_some(), data.is_some()].iter().filter(|there| **there).count();
        encoder.map(count as u64)?;
        if let Some(version) = record.bver {
            encoder.i8(-1)?.u64(version)?;
        }
        for (key, text) in texts {
            if let Some(text) = text {
                encoder.i8(key)?.str(text)?;
            }
        }
        for (key, number) in numbers {
            if let Some(number) = number {
                encoder.i8(key)?;
                // Whole numbers are shortest as such; a negative zero is none.
                match number as i64 {
                    whole if (whole as f64).to_bits() == number.to_bits() && number.abs() < 9e15 => {
                        encoder.i64(whole)?
                    }
                    _ => encoder.f64(number)?,
                };
            }
        }
        if let Some(value) = record.vb {
            encoder.i8(4)?.bool(value)?;
        }
        if let Some(data) = data {
            encoder.i8(8)?.bytes(&data)?;
        }
    }
    Ok(())
}

/// Returns the records after the base fields were applied (RFC 8428, section 4.6): name, unit, time and values are
/// complete. The records have a version only if the version is not 10. `now` is the time at which the pack arrived, in
/// seconds since 1970: a time below 2^28 is relative to it (section 4.5.3). A record without a time was measured at
/// about the time `now`. It also has no time in the result.
pub fn resolve(records: &[Record], now: f64) -> Vec<Record> {
    let mut base = Record::default();
    let mut resolved = Vec::new();
    for record in records {
        for (to, from) in [(&mut base.bn, &record.bn), (&mut base.bu, &record.bu)] {
            if from.is_some() {
                to.clone_from(from);
            }
        }
        for (to, from) in [(&mut base.bt, record.bt), (&mut base.bv, record.bv), (&mut base.bs, record.bs)] {
            *to = from.or(*to);
        }
        base.bver = record.bver.or(base.bver);
        let has_value = record.vs.is_some() || record.vb.is_some() || record.vd.is_some();
        if record.v.is_none() && record.s.is_none() && !has_value {
            continue;
        }
        let add = |base: Option<f64>, own: Option<f64>| match (base, own) {
            (None, None) => None,
            (base, own) => Some(base.unwrap_or(0.0) + own.unwrap_or(0.0)),
        };
        resolved.push(Record {
            bver: base.bver.filter(|version| *version != VERSION),
            n: Some(base.bn.clone().unwrap_or_default() + record.n.as_deref().unwrap_or_default()),
            u: record.u.clone().or_else(|| base.bu.clone()),
            v: if has_value { record.v } else { add(base.bv, record.v) },
            s: add(base.bs, record.s),
            t: add(base.bt, record.t).map(|time| if time < FIRST_ABSOLUTE { now + time } else { time }),
            vs: record.vs.clone(),
            vb: record.vb,
            vd: record.vd.clone(),
            ut: record.ut,
            ..Record::default()
        });
    }
    resolved
}

/// Returns the records as a table: name, value, unit, time. `now` has the same meaning as for [`resolve`].
pub fn table(records: &[Record], now: f64) -> String {
    let rows: Vec<[String; 4]> = resolve(records, now)
        .iter()
        .map(|record| {
            let value = match record {
                Record { v: Some(v), .. } => v.to_string(),
                Record { vs: Some(vs), .. } => vs.clone(),
                Record { vb: Some(vb), .. } => vb.to_string(),
                Record { vd: Some(vd), .. } => vd.clone(),
                Record { s, .. } => format!("sum {}", s.unwrap_or(0.0)),
            };
            let time = record.t.map(|t| t.to_string()).unwrap_or_default();
            [record.n.clone().unwrap_or_default(), value, record.u.clone().unwrap_or_default(), time]
        })
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2)];
    let mut text = String::new();
    for [name, value, unit, time] in &rows {
        let [a, b, c] = widths;
        let line = format!("{name:a$}  {value:>b$} {unit:c$}  {time}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text.truncate(text.trim_end().len());
    text
}

#[cfg(test)]
mod tests;
