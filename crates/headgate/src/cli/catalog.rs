//! Commands on the catalog, for which no daemon runs.

use super::common::{DaemonArgs, Print};
use super::error::CliError;
use super::output::{date, description, json};
use clap::Subcommand;
use headgate_catalog::{CatalogCopy, CatalogError, Contents, Inspection};
use headgate_control::mend::{Checkup, Claim, Keep, Mended, Mender, Replace};
use serde::Serialize;
use std::io::Write;
use std::path::PathBuf;

/// Commands on the catalog.
#[derive(Debug, Subcommand)]
pub(super) enum Catalog {
    /// Check the catalog, its copies, and whether the images say the same
    #[command(after_help = "Exit status: 0 the catalog is good, 1 it is damaged or missing.")]
    Check {
        #[command(flatten)]
        print: Print,
    },
    /// Put the newest good copy in the place of the catalog, which is kept aside
    #[command(
        after_help = "Examples:\n  headgate catalog restore\n  headgate catalog restore catalog-000012.sqlite --replace"
    )]
    Restore {
        /// The copy: a file, or the name of one in the directory of copies [default: the newest
        /// good one]
        copy: Option<PathBuf>,
        /// Replace a catalog that is good
        #[arg(long)]
        replace: bool,
        #[command(flatten)]
        print: Print,
    },
    /// Make the catalog anew from what images and datastores say of themselves
    ///
    /// An image without a record becomes a disk with the default policy. Images that another host
    /// had last, and files in another format, are passed over and told.
    #[command(
        after_help = "Examples:\n  headgate catalog rebuild --dry-run\n  headgate catalog rebuild\n  \
        headgate catalog rebuild --dir /srv/disks --claim"
    )]
    Rebuild {
        /// A directory that was a datastore and is not known any more; may be repeated
        #[arg(long, value_name = "DIR")]
        dir: Vec<PathBuf>,
        /// Take images too that another host had last: after the loss of a state directory, this
        /// host is another one. That host must be stopped for good
        #[arg(long)]
        claim: bool,
        /// Replace a catalog that is good
        #[arg(long)]
        replace: bool,
        /// Print what the catalog would hold, and write nothing
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        print: Print,
    },
    /// Make an empty catalog where there is none, and leave all images alone
    Create {
        #[command(flatten)]
        print: Print,
    },
}

impl Catalog {
    pub(super) fn print(&self) -> Print {
        match self {
            Catalog::Check { print }
            | Catalog::Restore { print, .. }
            | Catalog::Rebuild { print, .. }
            | Catalog::Create { print } => *print,
        }
    }

    pub(super) fn run(self, daemon: &DaemonArgs, out: &mut dyn Write) -> Result<(), CliError> {
        let print = self.print();
        let mender = Mender::new(daemon.state_dir()?)?;
        let replace = |replace| if replace { Replace::Good } else { Replace::Never };
        let (mended, done) = match self {
            Catalog::Check { .. } => return check(&mender.check()?, print, out),
            Catalog::Restore { copy, replace: good, .. } => {
                (mender.restore(copy.as_deref(), replace(good))?, "restored")
            }
            Catalog::Rebuild { dir, claim, replace: good, dry_run, .. } => {
                let further = dir
                    .iter()
                    .map(|dir| {
                        std::path::absolute(dir).map_err(|source| CliError::File {
                            file: dir.clone(),
                            doing: "find",
                            source,
                        })
                    })
                    .collect::<Result<Vec<_>, _>>()?;
                let claim = if claim { Claim::All } else { Claim::Own };
                let (keep, done) = if dry_run {
                    (Keep::Nothing, "not written")
                } else {
                    (Keep::Catalog, "rebuilt")
                };
                (mender.rebuild(&further, claim, replace(good), keep)?, done)
            }
            Catalog::Create { .. } => (mender.create()?, "created"),
        };
        show(&mended, done, print, out)
    }
}

/// How much a catalog holds.
#[derive(Serialize)]
struct Holds {
    datastores: usize,
    disks: usize,
    exports: usize,
    virtual_machines: usize,
    removed_disks: usize,
    /// Disks with two copies.
    moves: usize,
}

impl Holds {
    fn of(contents: &Contents) -> Holds {
        Holds {
            datastores: contents.datastores.len(),
            disks: contents.disks.len(),
            exports: contents.exports.len(),
            virtual_machines: contents.vms.len(),
            removed_disks: contents.removed.len(),
            moves: contents.moves.len(),
        }
    }

    fn text(&self) -> String {
        let Holds { datastores, disks, exports, virtual_machines, removed_disks, moves } = self;
        let moves =
            if *moves > 0 { format!(", {moves} unfinished move(s)") } else { String::new() };
        format!(
            "{datastores} datastore(s), {disks} disk(s), {exports} export(s), settings of \
             {virtual_machines} virtual machine(s), {removed_disks} removed disk(s){moves}"
        )
    }
}

#[derive(Serialize)]
struct FileReport {
    path: PathBuf,
    /// Seconds since 1970, of a copy.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<u64>,
    good: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    schema: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holds: Option<Holds>,
}

impl FileReport {
    fn new(
        path: PathBuf,
        at: Option<u64>,
        found: Option<&Result<Inspection, CatalogError>>,
    ) -> FileReport {
        let good = found.and_then(|found| found.as_ref().ok());
        let reason = match found {
            None => Some("it is missing".to_owned()),
            Some(found) => found.as_ref().err().map(ToString::to_string),
        };
        FileReport {
            path,
            at,
            good: good.is_some(),
            reason,
            schema: good.map(|found| found.version),
            holds: good.map(|found| Holds::of(&found.contents)),
        }
    }

    fn text(&self) -> String {
        match (&self.holds, &self.reason) {
            (Some(holds), _) => format!("good: {}", holds.text()),
            (None, Some(reason)) => reason.clone(),
            (None, None) => "it cannot be read".into(),
        }
    }

    /// With the path, once: what is wrong may name it.
    fn line(&self) -> String {
        let (path, text) = (self.path.display().to_string(), self.text());
        if text.contains(&path) { text } else { format!("{path}: {text}") }
    }
}

#[derive(Serialize)]
struct CheckReport {
    catalog: FileReport,
    copies: Vec<FileReport>,
    differences: Vec<String>,
}

fn check(found: &Checkup, print: Print, out: &mut dyn Write) -> Result<(), CliError> {
    let copy = |(copy, found): &(CatalogCopy, Result<Inspection, CatalogError>)| {
        FileReport::new(copy.path.clone(), Some(copy.at), Some(found))
    };
    let report = CheckReport {
        catalog: FileReport::new(found.path.clone(), None, found.catalog.as_ref()),
        copies: found.copies.iter().map(copy).collect(),
        differences: found.differences.clone(),
    };
    if print.json {
        json(out, &report)?;
    } else {
        writeln!(out, "{}", report.catalog.line())?;
        for copy in &report.copies {
            let at = copy.at.map(date).unwrap_or_default();
            writeln!(out, "  copy of {at}, {}", copy.line())?;
        }
        if report.copies.is_empty() {
            writeln!(out, "  there are no copies")?;
        }
        for line in &report.differences {
            writeln!(out, "  {line}")?;
        }
    }
    if report.catalog.good {
        return Ok(());
    }
    Err(CliError::Found(
        "the catalog is not good: 'headgate catalog restore' takes the newest good copy, 'headgate \
         catalog rebuild' makes a new one"
            .into(),
    ))
}

#[derive(Serialize)]
struct MendReport {
    done: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    aside: Option<PathBuf>,
    holds: Holds,
    disks: Vec<String>,
    notes: Vec<String>,
}

fn show(
    mended: &Mended,
    done: &'static str,
    print: Print,
    out: &mut dyn Write,
) -> Result<(), CliError> {
    let report = MendReport {
        done,
        from: mended.from.as_ref().map(|copy| copy.path.clone()),
        aside: mended.aside.clone(),
        holds: Holds::of(&mended.contents),
        disks: mended.contents.disks.iter().map(|disk| disk.name.to_string()).collect(),
        notes: mended.notes.clone(),
    };
    if print.json {
        return Ok(json(out, &report)?);
    }
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let lines = [
        ("catalog", Some(done.to_owned())),
        ("from", path(&report.from)),
        ("the former one", path(&report.aside)),
        ("holds", Some(report.holds.text())),
    ];
    out.write_all(description(&lines).as_bytes())?;
    report.notes.iter().try_for_each(|note| writeln!(out, "note: {note}"))?;
    Ok(())
}
