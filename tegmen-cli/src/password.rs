//! Passwords of users, from a file or a terminal.

use crate::files::read_secret;
use crate::output::Failure;
use std::path::Path;
use zeroize::Zeroizing;

/// Reads a password from a file that only its owner can read, or asks for it on the terminal. Spaces around the
/// password are removed.
pub(crate) fn read(file: Option<&Path>, name: &str) -> Result<Zeroizing<String>, Failure> {
    match file {
        Some(file) => read_secret(file).map_err(|why| Failure::usage(format!("--password-file: {why}"))),
        None => ask(&format!("Password of {name}: ")),
    }
}

/// Reads a new password from a file, or asks for it twice on the terminal.
pub(crate) fn choose(file: Option<&Path>, name: &str) -> Result<Zeroizing<String>, Failure> {
    let password = read(file, name)?;
    if file.is_none() && *ask("The same again: ")? != *password {
        return Err(Failure::usage("the two passwords differ: repeat the command"));
    }
    Ok(password)
}

fn ask(prompt: &str) -> Result<Zeroizing<String>, Failure> {
    let typed = rpassword::prompt_password(prompt).map(Zeroizing::new);
    let typed = typed.map_err(|error| {
        Failure::usage(format!("there is no terminal to ask for the password ({error}): give it with --password-file"))
    })?;
    Ok(Zeroizing::new(typed.trim().to_owned()))
}
