//! The report on sensitivities: tables as one self-contained HTML file.

use super::{Claim, Reach, Tried};
use crate::html::{escaped, head};
use headgate_sim::{Judgement, Origin, Scenario};
use std::fmt::Write as _;

/// Writes the report. `command` is what was typed.
pub fn sensitivity_report(command: &str, all: &[(&Scenario, Vec<Tried>)]) -> String {
    let mut page = head("Headgate: what claims depend on");
    let every = || all.iter().flat_map(|(_, tried)| tried);
    let _ = write!(
        page,
        "<p>{}.</p>\n<p class=\"quiet\">Headgate {}, printed by <code>{}</code>. Each table has the \
         claims of an experiment at several values of a parameter that was chosen freely; the \
         file's own value is in bold. Numbers are means over the seeds, \
         with ! where one of the seeds is not as expected. What holds at the file's own value only \
         is no claim about what it names.</p>\n",
        counted(every()),
        env!("CARGO_PKG_VERSION"),
        escaped(command),
    );
    contents(&mut page, all);
    for (scenario, tried) in all {
        let Scenario { name, title, .. } = scenario;
        let _ = writeln!(page, "<h2 id=\"{0}\">{0}: {1}</h2>", escaped(name), escaped(title));
        tried.iter().for_each(|one| section(&mut page, one));
    }
    page.push_str("</body>\n</html>\n");
    page
}

/// How many claims reach how far, in words.
fn counted<'a>(all: impl Iterator<Item = &'a Tried> + Clone) -> String {
    let part = |reach: Reach| match all.clone().map(|one| one.count(reach)).sum::<usize>() {
        0 => None,
        many => Some(format!("{many} {}", reach.name())),
    };
    let parts: Vec<String> = Reach::ALL.into_iter().filter_map(part).collect();
    format!("Of the claims, {}", parts.join(", "))
}

fn contents(page: &mut String, all: &[(&Scenario, Vec<Tried>)]) {
    page.push_str("<table>\n<tr><th>experiment</th><th>parameter</th>");
    for reach in Reach::ALL {
        let _ = write!(page, "<th class=\"n\">{}</th>", reach.name());
    }
    page.push_str("</tr>\n");
    for one in all.iter().flat_map(|(_, tried)| tried) {
        let _ = write!(
            page,
            "<tr><td><a href=\"#{0}\">{0}</a></td><td>{1}</td>",
            escaped(&one.experiment),
            escaped(&one.name)
        );
        for reach in Reach::ALL {
            let _ = write!(page, "<td class=\"n\">{}</td>", one.count(reach));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
}

fn section(page: &mut String, one: &Tried) {
    let seeds: Vec<String> = one.seeds.iter().map(u64::to_string).collect();
    let _ = writeln!(
        page,
        "<h3>{}</h3>\n<p>{}</p>\n<p class=\"quiet\">Seeds {}.</p>",
        escaped(&one.name),
        escaped(&one.about),
        seeds.join(", ")
    );
    page.push_str(
        "<table>\n<tr><th>variant</th><th>number</th><th class=\"n\">paper</th><th>expected</th>",
    );
    for value in &one.values {
        let value_of = escaped(&value.value);
        let _ = match value.origin {
            Origin::File => write!(page, "<th class=\"n own\">{value_of}</th>"),
            Origin::Other => write!(page, "<th class=\"n\">{value_of}</th>"),
        };
    }
    page.push_str("<th class=\"reach\">holds</th></tr>\n");
    one.claims.iter().for_each(|claim| row(page, one, claim));
    page.push_str("</table>\n");
    if let Some(together) = one.together {
        let _ = writeln!(page, "<p>All of it is one claim. It holds: {}.</p>", together.name());
    }
}

fn row(page: &mut String, one: &Tried, claim: &Claim) {
    let _ = write!(
        page,
        "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td>",
        escaped(&claim.variant),
        escaped(&claim.what),
        claim.paper.map_or_else(String::new, |paper| escaped(&claim.unit.show(paper))),
        escaped(&claim.expected)
    );
    for (value, at) in one.values.iter().zip(&claim.at) {
        let class = match at.judgement {
            Judgement::Holds => "yes",
            _ => "no",
        };
        let own = match value.origin {
            Origin::File => " own",
            Origin::Other => "",
        };
        let _ = write!(page, "<td class=\"n {class}{own}\">{}</td>", escaped(&claim.show(at)));
    }
    let class = match claim.reach {
        Reach::Everywhere => "holds",
        Reach::InPart => "off",
        Reach::OwnPointOnly => "differs",
        Reach::Elsewhere | Reach::Nowhere => "fails",
    };
    let _ = writeln!(page, "<td class=\"reach {class}\">{}</td></tr>", claim.reach.name());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sensitivity::{At, Value};
    use crate::testing::on_500_iops;
    use headgate_sim::Unit;

    #[test]
    fn the_page_has_every_value_and_says_which_is_the_files_own() {
        let at = |ours: f64, judgement| At { ours: Some(ours), judgement, published: None };
        let value = |value: &str, origin| Value { value: value.into(), origin };
        let tried = Tried {
            experiment: "x".into(),
            name: "unit".into(),
            about: "a < b".into(),
            seeds: vec![1, 2],
            values: vec![value("64K", Origin::File), value("<9>", Origin::Other)],
            claims: vec![Claim {
                line: 3,
                variant: "one".into(),
                what: "iops of a".into(),
                expected: "at least 400.0/s".into(),
                paper: Some(450.0),
                unit: Unit::PerSecond,
                at: vec![at(500.0, Judgement::Holds), at(300.0, Judgement::Fails)],
                reach: Reach::OwnPointOnly,
            }],
            together: None,
        };
        let scenario = on_500_iops("x", "");
        let page = sensitivity_report("headgate <this>", &[(&scenario, vec![tried.clone()])]);
        for text in [
            "<th class=\"n own\">64K</th><th class=\"n\">&lt;9&gt;</th>",
            "<td class=\"n yes own\">500.0/s</td><td class=\"n no\">300.0/s !</td>",
            "<td class=\"reach differs\">differs: at its own point only</td>",
            "Of the claims, 1 differs: at its own point only.",
            "a &lt; b",
            "450.0/s",
            "headgate &lt;this&gt;",
            "Seeds 1, 2.",
        ] {
            assert!(page.contains(text), "{text}\n{page}");
        }
        assert!(!page.contains("All of it is one claim"));
        let one = Tried { together: Some(Reach::Nowhere), ..tried };
        let page = sensitivity_report("x", &[(&scenario, vec![one])]);
        assert!(page.contains("All of it is one claim. It holds: nowhere."), "{page}");
        assert!(page.contains("Of the claims, 1 nowhere."), "{page}");
    }
}
