//! `headgate man`: the manual pages, made from the same definitions as `--help`.

use super::error::CliError;
use clap::Command;
use clap_mangen::Man;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Where the daemon keeps what, for the page of the program itself.
const FILES: &[(&str, &str)] = &[
    ("/var/lib/headgate", "The state directory of a daemon that runs as root."),
    (
        "$XDG_STATE_HOME/headgate, ~/.local/state/headgate",
        "The state directory of a daemon that runs as anybody else.",
    ),
    ("STATE/headgate.sock", "The HTTP API."),
    ("STATE/nbd.sock", "The NBD server; an export's name is that of its disk."),
    ("STATE/vhost/DISK.sock", "The vhost-user-blk socket of a disk."),
];

/// The environment, for the page of the program itself.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("HEADGATE_STATE_DIR", "The state directory, unless --state-dir is given."),
    ("RUST_LOG", "What the daemon logs: error, warn, info, debug or trace, for all or by module."),
];

/// Writes a page for `command` and each of its subcommands, as `headgate-disk-create.1`. Returns
/// how many.
///
/// # Errors
/// When the directory cannot be made or a page cannot be written.
pub(super) fn write_pages(command: Command, directory: &Path) -> Result<usize, CliError> {
    let failed = |file: &Path, doing| {
        let file = file.to_owned();
        move |source| CliError::File { file, doing, source }
    };
    fs::create_dir_all(directory).map_err(failed(directory, "make"))?;
    // The list of subcommands has their help; a page for `help` would say nothing.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = 0;
    let mut rest = vec![command];
    while let Some(command) = rest.pop() {
        rest.extend(command.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned());
        let mut page = Vec::new();
        let man = Man::new(command.clone()).manual("Headgate");
        let file = directory.join(man.get_filename());
        write_page(&command, &man, &mut page).map_err(failed(&file, "write"))?;
        fs::write(&file, page).map_err(failed(&file, "write"))?;
        pages += 1;
    }
    Ok(pages)
}

fn write_page(command: &Command, man: &Man, out: &mut dyn Write) -> io::Result<()> {
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(out)?;
    }
    if command.has_subcommands() {
        man.render_subcommands_section(out)?;
    }
    if let Some(notes) = command.get_after_long_help().or(command.get_after_help()) {
        // Examples are commands, one to a line: they must not be filled.
        writeln!(out, ".SH NOTES\n.nf")?;
        for line in notes.to_string().lines() {
            writeln!(out, "{}", escaped(line))?;
        }
        writeln!(out, ".fi")?;
    }
    if command.get_display_name().unwrap_or(command.get_name()) == "headgate" {
        for (section, entries) in [("ENVIRONMENT", ENVIRONMENT), ("FILES", FILES)] {
            writeln!(out, ".SH {section}")?;
            for (name, meaning) in entries {
                writeln!(out, ".TP\n\\fB{}\\fR\n{}", escaped(name), escaped(meaning))?;
            }
        }
        man.render_version_section(out)?;
    }
    Ok(())
}

/// A line of text that roff takes for nothing else.
fn escaped(line: &str) -> String {
    let text = line.replace('\\', "\\e").replace('-', "\\-");
    match text.starts_with(['.', '\'']) {
        true => format!("\\&{text}"),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;
    use std::collections::BTreeMap;

    fn pages() -> BTreeMap<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let written = write_pages(Cli::command(), &dir.path().join("man")).unwrap();
        let pages: BTreeMap<String, String> = fs::read_dir(dir.path().join("man"))
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|e| (e.file_name().into_string().unwrap(), fs::read_to_string(e.path()).unwrap()))
            .collect();
        assert_eq!(pages.len(), written);
        pages
    }

    fn visit(command: &Command, name: &str, pages: &BTreeMap<String, String>) {
        let page = &pages[&format!("{name}.1")];
        for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
            let Some(long) = argument.get_long() else { continue };
            let option = format!("\\-\\-{}", long.replace('-', "\\-"));
            assert!(page.contains(&option), "{name}.1 lacks {option}");
        }
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            visit(sub, &format!("{name}-{}", sub.get_name()), pages);
        }
    }

    #[test]
    fn each_command_has_a_page_with_all_its_options() {
        let mut command = Cli::command().disable_help_subcommand(true);
        command.build();
        visit(&command, "headgate", &pages());
    }

    #[test]
    fn examples_keep_their_lines_and_text_is_no_request() {
        let pages = pages();
        assert!(pages["headgate.1"].contains(".SH FILES"));
        assert!(!pages["headgate-disk.1"].contains(".SH FILES"));
        let load = &pages["headgate-load.1"];
        let notes = &load[load.find(".SH NOTES\n.nf\n").unwrap()..];
        assert!(notes.contains("\n  headgate load"), "{notes}");
        assert_eq!(escaped(".SH \\x"), "\\&.SH \\ex");
    }
}
