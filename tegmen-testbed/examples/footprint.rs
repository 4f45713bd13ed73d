//! `cargo run -p tegmen-testbed --example footprint [-- [--json] [--update]]`: measures the firmware against its budget.

use std::path::Path;
use std::process::ExitCode;
use tegmen_testbed::footprint::{Options, Verdict, run};

fn main() -> ExitCode {
    let mut options = Options::default();
    for argument in std::env::args().skip(1) {
        match argument.as_str() {
            "--json" => options.json = true,
            "--update" => options.update = true,
            other => {
                eprintln!("{other}: unknown; the options are --json and --update");
                return ExitCode::from(2);
            }
        }
    }
    // Cargo gives the path of the project at run time; a compiled-in path can be that of another copy.
    let Some(testbed) = std::env::var_os("CARGO_MANIFEST_DIR") else {
        eprintln!("footprint: to be started by cargo run");
        return ExitCode::from(2);
    };
    match run(&Path::new(&testbed).join(".."), &options) {
        Ok(Verdict::WithinBudget) => ExitCode::SUCCESS,
        Ok(Verdict::OverBudget) => ExitCode::from(1),
        Err(error) => {
            eprintln!("footprint: {error}");
            ExitCode::from(2)
        }
    }
}
