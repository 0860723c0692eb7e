use headgate_sim::{Scenario, ScenarioError};

/// File names and texts of `experiments/*.toml`, by name.
const EXPERIMENTS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/experiments.rs"));

/// All experiments inside the program, in the order of their files.
pub fn experiments() -> Result<Vec<Scenario>, ScenarioError> {
    EXPERIMENTS.iter().map(|(file, text)| Scenario::parse(file, text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_experiments_are_named_like_their_files() {
        let all = experiments().unwrap_or_else(|e| panic!("{e}"));
        assert!(!all.is_empty());
        for (scenario, (file, _)) in all.iter().zip(EXPERIMENTS) {
            assert_eq!(format!("{}.toml", scenario.name), *file);
            assert!(!scenario.expectations.is_empty(), "{file} expects nothing");
        }
    }
}
