//! `reproduce --traces`: where traces are, and those of the user's that take the place of others.

use crate::cli::error::CliError;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use headgate_report::FileTraces;
use headgate_sim::Scenario;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// The variable that names the directory where no option does.
const VARIABLE: &str = "HEADGATE_TRACES";

/// Where traces are.
#[derive(Debug, Args)]
pub(super) struct TraceChoice {
    /// Directory of the traces that some experiments replay, or, as NAME=FILE, a trace of yours in
    /// the place of one of them (FILE#DISK: one disk of it); may be given more than once [env:
    /// HEADGATE_TRACES, the directory]
    #[arg(long, value_name = "DIR|NAME=FILE", value_parser = OsStringValueParser::new().try_map(parse))]
    traces: Vec<TraceArg>,
}

/// One `--traces`.
#[derive(Clone, Debug, PartialEq, Eq)]
enum TraceArg {
    /// Where all traces are.
    Directory(PathBuf),
    /// A file in the place of a trace, by what the experiments call it.
    Own { name: String, file: String },
}

/// A trace has no slash in its name, so `./DIR` is a directory whatever it is called.
fn parse(given: OsString) -> Result<TraceArg, String> {
    let own = given.to_str().and_then(|text| text.split_once('='));
    match own.filter(|(name, _)| !name.contains('/')) {
        None if given.is_empty() => Err("expected a directory or NAME=FILE".into()),
        None => Ok(TraceArg::Directory(given.into())),
        Some(("", file)) => Err(format!("there is no name before '={file}', expected NAME=FILE")),
        Some((name, "")) => Err(format!("there is no file behind '{name}=', expected NAME=FILE")),
        Some((name, file)) => Ok(TraceArg::Own { name: name.into(), file: file.into() }),
    }
}

/// The options that find the same traces again, for a shell.
impl fmt::Display for TraceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for one in &self.traces {
            let value = match one {
                TraceArg::Directory(directory) => directory.display().to_string(),
                TraceArg::Own { name, file } => format!("{name}={file}"),
            };
            write!(f, " --traces {}", quoted(&value))?;
        }
        Ok(())
    }
}

/// As a shell reads it: quoted where it would read anything else.
fn quoted(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-=#:+,@".contains(c);
    match text.chars().all(plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

impl TraceChoice {
    /// The traces, looked at before anything runs.
    ///
    /// # Errors
    /// [`CliError::Usage`] if a name is none of a trace that the chosen experiments replay, or is
    /// given twice, or two directories are given; [`CliError::Stopped`] if a file cannot be read.
    pub(super) fn sources(
        &self,
        known: &[Scenario],
        chosen: &[&Scenario],
    ) -> Result<Sources, CliError> {
        let mut directory = None;
        let mut own: Vec<(String, String)> = Vec::new();
        for one in &self.traces {
            match one {
                TraceArg::Directory(given) => {
                    if let Some(before) = directory.replace(given.clone()) {
                        return Err(CliError::Usage(format!(
                            "--traces names two directories, {} and {}; give one, and single traces \
                             as NAME=FILE",
                            before.display(),
                            given.display()
                        )));
                    }
                }
                TraceArg::Own { name, file } => {
                    let name = full_name(known, name)?;
                    replayed(known, chosen, &name)?;
                    if own.iter().any(|(other, _)| *other == name) {
                        return Err(CliError::Usage(format!("--traces gives {name} twice")));
                    }
                    own.push((name, file.clone()));
                }
            }
        }
        let directory = directory.or_else(variable);
        let place = directory.as_deref().unwrap_or(Path::new("traces"));
        let files = own
            .iter()
            .fold(FileTraces::within(place), |files, (name, file)| files.with_file(name, file));
        for (name, _) in &own {
            files.check(name).map_err(CliError::Stopped)?;
        }
        Ok(Sources { directory, own, files })
    }
}

/// The directory that the environment names.
fn variable() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|directory| !directory.is_empty()).map(PathBuf::from)
}

/// The whole name of a trace, of which the ending may be left out.
fn full_name(known: &[Scenario], given: &str) -> Result<String, CliError> {
    let mut names: Vec<&str> =
        known.iter().flat_map(|scenario| &scenario.traces).map(String::as_str).collect();
    names.sort_unstable();
    names.dedup();
    let stem = |name: &str| name.split('.').next() == Some(given);
    match names.iter().find(|name| **name == given || stem(name)) {
        Some(name) => Ok((*name).to_owned()),
        None => Err(CliError::Usage(format!(
            "no experiment replays a trace '{given}', expected one of {}",
            names.join(", ")
        ))),
    }
}

fn replayed(known: &[Scenario], chosen: &[&Scenario], name: &str) -> Result<(), CliError> {
    let replays = |scenario: &Scenario| scenario.traces.iter().any(|trace| trace == name);
    if chosen.iter().any(|scenario| replays(scenario)) {
        return Ok(());
    }
    let who = known.iter().filter(|scenario| replays(scenario));
    let who: Vec<&str> = who.map(|scenario| scenario.name.as_str()).collect();
    Err(CliError::Usage(format!(
        "none of the chosen experiments replays {name}; those that do are {}",
        who.join(", ")
    )))
}

/// Where the traces of this command are.
pub(super) struct Sources {
    directory: Option<PathBuf>,
    /// Names of traces, and the user's files in their place.
    own: Vec<(String, String)>,
    pub(super) files: FileTraces,
}

impl Sources {
    /// Experiments that can be run, and those whose traces are not there, each with the reason.
    ///
    /// # Errors
    /// [`CliError::Usage`] if a trace of the user's is replayed by none that can be run: nobody who
    /// gives a trace wants it left out.
    pub(super) fn divide<'a>(&self, chosen: Vec<&'a Scenario>) -> Result<Divided<'a>, CliError> {
        let (mut can, mut cannot) = (Vec::new(), Vec::new());
        for scenario in chosen {
            match self.lacks(scenario) {
                None => can.push(scenario),
                Some(why) => cannot.push((scenario, why)),
            }
        }
        for (name, file) in &self.own {
            if can.iter().any(|scenario| scenario.traces.contains(name)) {
                continue;
            }
            let why: Vec<String> = cannot
                .iter()
                .filter(|(scenario, _)| scenario.traces.contains(name))
                .map(|(scenario, why)| format!("{}: {why}", scenario.name))
                .collect();
            return Err(CliError::Usage(format!("{file} is not replayed: {}", why.join("; "))));
        }
        Ok((can, cannot))
    }

    /// Why an experiment cannot be run.
    fn lacks(&self, scenario: &Scenario) -> Option<String> {
        let missing = self.files.missing(&scenario.traces);
        let first = missing.first()?;
        let options =
            "--traces DIR has them all, --traces NAME=FILE puts one of yours in the place";
        Some(match &self.directory {
            Some(directory) => format!(
                "it replays traces, and {} is not there; {options}",
                directory.join(first).display()
            ),
            None => format!(
                "it replays traces, and {} {} not there; {options}",
                missing.join(", "),
                if missing.len() == 1 { "is" } else { "are" }
            ),
        })
    }

    /// The user's files that an experiment replays: what it calls them, and where they are.
    pub(super) fn own_of<'a>(&'a self, scenario: &Scenario) -> Vec<(&'a str, &'a str)> {
        let own = self.own.iter().filter(|(name, _)| scenario.traces.contains(name));
        own.map(|(name, file)| (name.as_str(), file.as_str())).collect()
    }
}

/// Experiments that can be run, and those that cannot.
pub(super) type Divided<'a> = (Vec<&'a Scenario>, Vec<(&'a Scenario, String)>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_and_a_file_for_a_name_are_told_apart() {
        let read = |text: &str| parse(OsString::from(text));
        let own =
            |name: &str, file: &str| Ok(TraceArg::Own { name: name.into(), file: file.into() });
        assert_eq!(read("web=a/b=c#vda"), own("web", "a/b=c#vda"));
        for directory in ["traces", "/a/b=c", "./a=b"] {
            assert_eq!(read(directory), Ok(TraceArg::Directory(directory.into())));
        }
        for wrong in ["", "=x", "x="] {
            assert!(read(wrong).unwrap_err().contains("NAME=FILE"), "{wrong}");
        }
    }

    #[test]
    fn the_options_are_as_a_shell_reads_them() {
        let given = ["my traces", "a=it's"].map(|text| parse(OsString::from(text)).unwrap());
        let choice = TraceChoice { traces: given.to_vec() };
        assert_eq!(choice.to_string(), r" --traces 'my traces' --traces 'a=it'\''s'");
    }
}
