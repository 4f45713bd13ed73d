//! Checks datagrams that images contain as statics.

/// Returns the text of a static for the source file, if the compiled static has other bytes; `None` if it is up to
/// date.
pub(crate) fn stale(made: &[u8], name: &str, compiled: &[u8]) -> Option<String> {
    let rows = made.chunks(16).map(|row| row.iter().map(|byte| format!("0x{byte:02x}, ")).collect::<String>());
    let rows = rows.map(|row| format!("    {}\n", row.trim_end())).collect::<String>();
    (made != compiled).then(|| format!("pub static {name}: [u8; {}] = [\n{rows}];\n", made.len()))
}
