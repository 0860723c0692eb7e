//! Writes a report with tables and figures as one self-contained HTML file.

use crate::plot::{DrawError, svg};
use crate::{Experiment, Tally, by_paper, distributions, figures, predictions, published};
use headgate_sim::{Finding, Outcome, Scenario, Standing};
use std::fmt::Write as _;

impl Experiment<'_> {
    /// Expectations that do not hold.
    pub fn failed(&self) -> usize {
        Tally::of(self.findings).failed
    }
}

/// More figures than this stand beside each other, and are smaller.
const MOST_LARGE: usize = 6;

const STYLE: &str = "
body { font: 16px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 100rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.3rem; margin-top: 3rem; border-top: 1px solid #ccc; padding-top: 1.2rem; }
p { max-width: 48rem; } .quiet { color: #666; } a { color: #0057a0; white-space: nowrap; }
table { border-collapse: collapse; margin: 1rem 0; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: 0.25rem 0.8rem 0.25rem 0; border-bottom: 1px solid #e4e4e4; vertical-align: top; }
th { color: #555; font-weight: 600; border-bottom-color: #999; } td.n, th.n { text-align: right; white-space: nowrap; }
tr.why td { padding-top: 0.8rem; color: #444; font-style: italic; border-bottom: none; }
.holds { color: #04713f; } .differs { color: #8a5a00; } .off { color: #7a3e9d; } .fails { color: #b3261e; font-weight: 700; }
td.yes { background: #e5f3ec; } td.no { background: #f7e3e1; color: #7d1f18; } th.own, td.own { font-weight: 700; } .reach { padding-left: 0.8rem; white-space: nowrap; }
.figures { display: grid; gap: 1.5rem; max-width: 64rem; } .figures.many { grid-template-columns: 1fr 1fr; max-width: none; }
.figures svg { width: 100%; height: auto; } code { background: #f3f3f3; padding: 0.1rem 0.3rem; }
";

/// A page up to its title.
pub(crate) fn head(title: &str) -> String {
    let title = escaped(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
    )
}

/// Writes the report. `command` is what was typed.
pub fn report(command: &str, experiments: &[Experiment<'_>]) -> Result<String, DrawError> {
    let mut page = head("Headgate: experiments reproduced");
    let findings: usize = experiments.iter().map(|experiment| experiment.findings.len()).sum();
    let _ = write!(
        page,
        "<p>{}, {findings} numbers, {}.</p>\n\
         <p class=\"quiet\">Headgate {}, printed by <code>{}</code>. The figures show the run with the first seed of each variant; \
         numbers are means over all seeds, with the smallest and the largest.</p>\n",
        match experiments.len() {
            1 => "One experiment".to_owned(),
            n => format!("{n} experiments"),
        },
        summary(&Tally::of_all(experiments), "all as expected and as published"),
        env!("CARGO_PKG_VERSION"),
        escaped(command),
    );
    papers(&mut page, experiments);
    contents(&mut page, experiments);
    predicted(&mut page, experiments)?;
    for experiment in experiments {
        section(&mut page, experiment)?;
    }
    page.push_str("</body>\n</html>\n");
    Ok(page)
}

fn contents(page: &mut String, experiments: &[Experiment<'_>]) {
    page.push_str("<table>\n<tr><th>experiment</th><th></th><th>published in</th><th class=\"n\">numbers</th>\
         <th class=\"n\">as expected</th><th class=\"n\">published</th><th class=\"n\">within 20 %</th><th></th></tr>\n");
    for experiment in experiments {
        let tally = Tally::of(experiment.findings);
        let Scenario { name, title, source, .. } = experiment.scenario;
        let _ = writeln!(
            page,
            "<tr><td><a href=\"#{0}\">{0}</a></td><td>{1}</td><td>{2}</td><td class=\"n\">{3}</td><td class=\"n\">{4}</td>\
             <td class=\"n\">{5}</td><td class=\"n\">{6}</td><td>{7}</td></tr>",
            escaped(name),
            escaped(title),
            escaped(source),
            tally.checks,
            tally.as_expected,
            tally.numbers,
            tally.within_20,
            sum(experiment)
        );
    }
    page.push_str("</table>\n");
}

fn sum(experiment: &Experiment<'_>) -> String {
    summary(&Tally::of(experiment.findings), "holds")
}

/// A summary of the verdicts: good only where nothing is left to say.
fn summary(tally: &Tally, good: &str) -> String {
    let class = match tally {
        Tally { failed: 1.., .. } => "fails",
        Tally { known: 1.., .. } => "differs",
        Tally { differ: 1.., .. } | Tally { outside_bound: 1.., .. } => "off",
        _ => return format!("<span class=\"holds\">{good}</span>"),
    };
    format!("<span class=\"{class}\">{}</span>", tally.short())
}

/// A row for each paper.
fn papers(page: &mut String, experiments: &[Experiment<'_>]) {
    page.push_str("<table>\n<tr><th>paper</th>");
    for column in Tally::COLUMNS {
        let _ = write!(page, "<th class=\"n\">{column}</th>");
    }
    page.push_str("</tr>\n");
    let all = ("all", Tally::of_all(experiments));
    for (paper, tally) in by_paper(experiments).into_iter().chain([all]) {
        let _ = write!(page, "<tr><td>{}</td>", escaped(paper));
        for count in tally.counts() {
            let _ = write!(page, "<td class=\"n\">{count}</td>");
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
}

/// What advice predicted, beside what came of it, where any experiment moved disks by advice.
fn predicted(page: &mut String, experiments: &[Experiment<'_>]) -> Result<(), DrawError> {
    let each = predictions::of_each(experiments);
    let Some(figure) = predictions::figure(&each) else { return Ok(()) };
    page.push_str(
        "<h2 id=\"predictions\">What advice predicted</h2>\n\
         <p>Each advice that moved disks at once, with all seeds: the latency of reads that it predicted for each datastore \
         that a disk left or reached, and what reads took there until the next advice, in the tenth of the intervals with the \
         most reads outstanding. Where load falls in between, as much as was predicted for is seldom there to be measured.</p>\n\
         <table>\n<tr><th>experiment</th><th class=\"n\">predictions</th><th class=\"n\">off by, median</th>\
         <th class=\"n\">without sign, median</th><th class=\"n\">90 %</th></tr>\n",
    );
    for (name, found) in &each {
        let errors = predictions::Errors::of(found);
        let _ = writeln!(
            page,
            "<tr><td><a href=\"#{0}\">{0}</a></td><td class=\"n\">{1}</td><td class=\"n\">{2:+.1} %</td>\
             <td class=\"n\">{3:.1} %</td><td class=\"n\">{4:.1} %</td></tr>",
            escaped(name),
            errors.count,
            errors.middle * 100.0,
            errors.size[0] * 100.0,
            errors.size[1] * 100.0
        );
    }
    let _ = writeln!(page, "</table>\n<div class=\"figures\">\n{}\n</div>", svg(&[figure])?);
    Ok(())
}

fn section(page: &mut String, experiment: &Experiment<'_>) -> Result<(), DrawError> {
    let Scenario { name, title, about, source, .. } = experiment.scenario;
    let _ = writeln!(page, "<h2 id=\"{0}\">{0}: {1}</h2>", escaped(name), escaped(title));
    for paragraph in about.split("\n\n").filter(|paragraph| !paragraph.trim().is_empty()) {
        let _ = writeln!(page, "<p>{}</p>", prose(paragraph.trim()));
    }
    let seeds: Vec<String> = experiment.seeds.iter().map(u64::to_string).collect();
    let published_in = if source.is_empty() {
        String::new()
    } else {
        format!("Published in {}. ", escaped(source))
    };
    let _ = writeln!(
        page,
        "<p class=\"quiet\">{published_in}Seeds {}. {}</p>",
        seeds.join(", "),
        sum(experiment)
    );
    for (name, file) in &experiment.own_traces {
        let _ = writeln!(
            page,
            "<p><b>{} in the place of {}</b>: not what was published, and what is expected was not \
             set with it.</p>",
            escaped(file),
            escaped(name)
        );
    }
    findings(page, experiment.findings);
    if let Some(figure) = published(experiment.scenario, experiment.findings) {
        let _ = writeln!(page, "<div class=\"figures\">\n{}\n</div>", figure.svg()?);
    }
    let first = experiment.seeds.first();
    let shown: Vec<&Outcome> =
        experiment.outcomes.iter().filter(|outcome| Some(&outcome.seed) == first).collect();
    let many = if shown.len() > MOST_LARGE { " many" } else { "" };
    let _ = writeln!(page, "<div class=\"figures{many}\">");
    let over_seeds = distributions(experiment.scenario, experiment.findings);
    for figure in over_seeds.into_iter().chain(figures(experiment.scenario, &shown)) {
        page.push_str(&svg(&[figure])?);
        page.push('\n');
    }
    page.push_str("</div>\n");
    Ok(())
}

fn findings(page: &mut String, findings: &[Finding]) {
    page.push_str(
        "<table>\n<tr><th>variant</th><th>number</th><th class=\"n\">paper</th><th class=\"n\">ours</th><th class=\"n\">range</th>\
         <th>expected</th><th></th><th>as published</th></tr>\n",
    );
    let mut why = "";
    for finding in findings {
        if finding.about != why {
            why = &finding.about;
            let _ =
                writeln!(page, "<tr class=\"why\"><td colspan=\"8\">{}</td></tr>", escaped(why));
        }
        let show = |value: f64| escaped(&finding.shown_unit().show(value));
        let of_one = |value: f64| escaped(&finding.unit.show(value));
        let standing = finding.standing();
        let class = class(standing);
        let word = standing.name();
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td>{}</td>\
             <td class=\"{class}\">{word}</td><td class=\"{class}\">{}</td></tr>",
            escaped(&finding.variant),
            escaped(&finding.what),
            finding.paper.map_or_else(String::new, show),
            finding.ours().map_or_else(|| "nothing".into(), show),
            finding.range().map_or_else(String::new, |(least, most)| format!(
                "{} to {}",
                of_one(least),
                of_one(most)
            )),
            escaped(&finding.expected),
            finding.published.as_ref().map_or_else(String::new, |published| published.show()),
        );
        let published = finding.published.as_ref().and_then(|one| one.reason.as_ref());
        let reason = match standing {
            Standing::Differs => finding.differs.as_ref(),
            Standing::OffPaper => published,
            Standing::Holds | Standing::Fails | Standing::NotRun => None,
        };
        if let Some(reason) = reason {
            let _ = writeln!(
                page,
                "<tr><td></td><td colspan=\"7\" class=\"quiet\">{}</td></tr>",
                escaped(reason)
            );
        }
    }
    page.push_str("</table>\n");
}

fn class(standing: Standing) -> &'static str {
    match standing {
        Standing::Holds => "holds",
        Standing::OffPaper => "off",
        Standing::Differs => "differs",
        Standing::Fails | Standing::NotRun => "fails",
    }
}

/// Text in which `code` is between backquotes.
fn prose(text: &str) -> String {
    let mut prose = String::new();
    for (index, part) in text.split('`').enumerate() {
        let (open, close) = if index % 2 == 1 { ("<code>", "</code>") } else { ("", "") };
        prose.extend([open, &escaped(part), close]);
    }
    prose
}

pub(crate) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_sim::{Quiet, judge, run};

    #[test]
    fn a_report_has_everything_and_needs_nothing() {
        let scenario = Scenario::parse(
            "one.toml",
            r#"
            name = "one"
            title = "Less < more & \"quoted\""
            about = "First.\n\nSecond `code`."
            duration = "3s"
            windows = { end = "1s..3s" }
            datastore = [{ name = "lun", device = "rate=500,latency=1ms" }]
            vm = [{ name = "a", disk = [{}], workload = [{ kind = "closed", outstanding = 4 }] }]
            [[expect]]
            about = "The device's rate"
            measure = "iops"
            of = "a"
            window = "end"
            equals = 500
            within = "2%"
            paper = 498
            [[expect]]
            measure = "iops"
            of = "a"
            window = "end"
            at-least = 900
            [[expect]]
            measure = "iops"
            of = "a"
            window = "end"
            at-least = 800
            differs = "the device is too slow"
            [[expect]]
            measure = "iops"
            of = "a"
            window = "end"
            at-least = 400
            paper = 1000
            off-paper = "of another <device>"
            "#,
        )
        .unwrap_or_else(|e| panic!("{e}"));
        let outcomes = [run(&scenario, "default", 7, &mut Quiet).unwrap_or_else(|e| panic!("{e}"))];
        let findings = judge(&scenario, &outcomes);
        let experiment = Experiment {
            scenario: &scenario,
            seeds: &[7],
            outcomes: &outcomes,
            findings: &findings,
            own_traces: vec![("web.csv", "my <web>.csv")],
        };
        assert_eq!(experiment.failed(), 1);
        let page = report("headgate reproduce <one>", &[experiment]).unwrap();
        for text in [
            "Less &lt; more &amp; &quot;quoted&quot;",
            "<p>Second <code>code</code>.</p>",
            "headgate reproduce &lt;one&gt;",
            "Seeds 7.",
            "<b>my &lt;web&gt;.csv in the place of web.csv</b>",
            "498.0/s",
            "1 not as expected, 1 known to differ, 1 off the published number</span>",
            "<td class=\"holds\">holds</td><td class=\"holds\">within 5 % (+0.4 %)</td>",
            "<td class=\"off\">off paper</td><td class=\"off\">differs (-50.0 %)</td>",
            "of another &lt;device&gt;",
            "throughput (IOPS)",
            "ours / published",
        ] {
            assert!(page.contains(text), "{text}");
        }
        assert_eq!(page.matches("<svg").count(), 2);
        for outside in ["<script", "src=", "<link", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
    }
}
