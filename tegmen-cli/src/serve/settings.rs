//! The settings of a server. An option on the command line has priority over the environment, and the environment has
//! priority over the configuration file.

use super::Serve;
use super::config_file::{self, Mistake, Places, keys};
use super::options::Sections;
use crate::Cli;
use clap::{ArgMatches, Command, CommandFactory as _, FromArgMatches as _};
use std::ffi::OsString;
use std::path::Path;

/// The settings of a server, and the lines of the configuration file that set them.
pub(super) struct Settings {
    pub(super) sections: Sections,
    matches: ArgMatches,
    places: Places,
}

/// Returns the command `tegmen serve`, with all its options.
pub(super) fn command() -> Command {
    let mut command = Cli::command();
    command.build();
    command.find_subcommand("serve").cloned().unwrap_or_default()
}

fn parse(arguments: &[OsString]) -> Result<ArgMatches, clap::Error> {
    let matches = Cli::command().try_get_matches_from(arguments)?;
    Ok(matches.subcommand_matches("serve").cloned().unwrap_or_default())
}

impl Settings {
    /// Reads the command line of this process again, and the configuration file if there is one.
    ///
    /// # Errors
    /// All mistakes, one line of text for each mistake.
    pub(super) fn read(file: Option<&Path>) -> Result<Self, Vec<String>> {
        let mut arguments: Vec<OsString> = std::env::args_os().collect();
        let mut places = Places::default();
        let wrong = |places: &Places, error: &clap::Error| {
            config_file::together(error).iter().map(|mistake| places.describe(mistake)).collect::<Vec<_>>()
        };
        if let Some(file) = file {
            let given = parse(&arguments).map_err(|error| wrong(&places, &error))?;
            let (options, found) = config_file::read(file, &command(), &given)?;
            arguments.extend(options);
            places = found;
        }
        let matches = parse(&arguments).map_err(|error| wrong(&places, &error))?;
        let serve = Serve::from_arg_matches(&matches).map_err(|error| wrong(&places, &error))?;
        Ok(Self { sections: serve.sections, matches, places })
    }

    /// Returns the texts of mistakes. If the configuration file contains the wrong setting, the text has the line of
    /// this setting in the file.
    pub(super) fn describe(&self, mistakes: &[Mistake]) -> Vec<String> {
        mistakes.iter().map(|mistake| self.places.describe(mistake)).collect()
    }

    /// Returns the present values of all options, for [`Self::differences`].
    pub(super) fn values(&self) -> Values {
        Values(self.matches.clone())
    }

    /// Returns the names of the options whose values differ from `before`.
    pub(super) fn differences(&self, before: &Values) -> Vec<String> {
        let values = |matches: &ArgMatches, id: &str| {
            matches.get_raw(id).map(|values| values.map(OsString::from).collect::<Vec<_>>())
        };
        let differs = |id: &str| values(&self.matches, id) != values(&before.0, id);
        let command = command();
        let different = keys(&command).filter(|arg| differs(arg.get_id().as_str()));
        different.filter_map(|arg| arg.get_long().map(str::to_owned)).collect()
    }
}

/// The values of all options.
pub(super) struct Values(ArgMatches);
