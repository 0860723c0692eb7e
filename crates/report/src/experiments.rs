use crate::tally::PAPERS;
use headgate_sim::{Scenario, ScenarioError};

/// File names and texts of `experiments/*.toml`, by name.
const EXPERIMENTS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/experiments.rs"));

/// All experiments inside the program: paper by paper in the order of [`PAPERS`], which has those
/// that take long behind the others, and by name.
pub fn experiments() -> Result<Vec<Scenario>, ScenarioError> {
    let mut all: Vec<Scenario> = EXPERIMENTS
        .iter()
        .map(|(file, text)| Scenario::parse(file, text))
        .collect::<Result<_, _>>()?;
    let paper = |scenario: &Scenario| {
        PAPERS.iter().position(|(prefix, _)| {
            scenario.name.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('-'))
        })
    };
    all.sort_by_key(paper);
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_experiments_are_named_like_their_files() {
        for (file, text) in EXPERIMENTS {
            let scenario = Scenario::parse(file, text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(format!("{}.toml", scenario.name), *file);
            assert!(!scenario.expectations.is_empty(), "{file} expects nothing");
        }
    }

    #[test]
    fn they_come_paper_by_paper_and_none_is_of_no_paper() {
        let all = experiments().unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(all.len(), EXPERIMENTS.len());
        let papers = all.iter().map(|scenario| scenario.name.split_once('-').unwrap().0);
        let mut seen: Vec<&str> = papers.collect();
        seen.dedup();
        assert_eq!(seen, PAPERS.map(|(prefix, _)| prefix));
        let names: Vec<&str> = all.iter().map(|scenario| scenario.name.as_str()).collect();
        assert!(names.windows(2).all(|two| two[0] < two[1] || two[0][..2] != two[1][..2]));
    }
}
