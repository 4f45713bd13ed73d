//! Compares datagrams that a test makes with the datagrams that the source code of the images contains as statics.

/// Returns the source text of the static `name` with the bytes `made`, if the static in the source code has other bytes
/// (`compiled`). Returns `None` if the bytes are equal.
pub(crate) fn stale(made: &[u8], name: &str, compiled: &[u8]) -> Option<String> {
    let rows = made.chunks(16).map(|row| row.iter().map(|byte| format!("0x{byte:02x}, ")).collect::<String>());
    let rows = rows.map(|row| format!("    {}\n", row.trim_end())).collect::<String>();
    (made != compiled).then(|| format!("pub static {name}: [u8; {}] = [\n{rows}];\n", made.len()))
}
