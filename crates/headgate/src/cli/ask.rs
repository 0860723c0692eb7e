//! Questions before what cannot be taken back. Only a person at a terminal is asked: a script that
//! waits for an answer would wait for ever.

use super::error::CliError;
use std::io::{self, BufRead, IsTerminal, Write};

/// What an answer has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted<'a> {
    /// `y` or `yes`.
    Yes,
    /// This name, letter by letter.
    Name(&'a str),
}

/// Goes on when the answer is the one that is wanted, and when there is nobody to ask.
pub(super) fn ask(question: &str, wanted: Wanted<'_>) -> Result<(), CliError> {
    let (stdin, stderr) = (io::stdin(), io::stderr());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        return Ok(());
    }
    answered(question, wanted, &mut stdin.lock(), &mut stderr.lock())
}

fn answered(
    question: &str,
    wanted: Wanted<'_>,
    answers: &mut dyn BufRead,
    questions: &mut dyn Write,
) -> Result<(), CliError> {
    let how = match wanted {
        Wanted::Yes => "[y/N]".to_owned(),
        Wanted::Name(name) => format!("Type '{name}' to go on:"),
    };
    write!(questions, "{question} {how} ")?;
    questions.flush()?;
    let mut answer = String::new();
    answers.read_line(&mut answer)?;
    let answer = answer.trim();
    let agreed = match wanted {
        Wanted::Yes => matches!(answer.to_ascii_lowercase().as_str(), "y" | "yes"),
        Wanted::Name(name) => answer == name,
    };
    agreed.then_some(()).ok_or(CliError::Declined)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(wanted: Wanted<'_>, answer: &str) -> (bool, String) {
        let mut asked = Vec::new();
        let result = answered("Remove disk 'db'?", wanted, &mut answer.as_bytes(), &mut asked);
        (result.is_ok(), String::from_utf8(asked).unwrap())
    }

    #[test]
    fn only_the_answer_that_is_wanted_goes_on() {
        for yes in ["y\n", "Yes\n", " yes \n"] {
            assert_eq!(outcome(Wanted::Yes, yes), (true, "Remove disk 'db'? [y/N] ".into()));
        }
        for no in ["", "\n", "n\n", "db\n", "yess\n"] {
            assert!(!outcome(Wanted::Yes, no).0, "{no:?}");
        }
        assert!(outcome(Wanted::Name("db"), "db\n").0);
        for no in ["", "yes\n", "db0\n", "DB\n"] {
            assert!(!outcome(Wanted::Name("db"), no).0, "{no:?}");
        }
    }
}
