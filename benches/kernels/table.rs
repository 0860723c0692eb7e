//! The table.

use crate::contender::Contender;
use crate::question::{Answer, Question};

/// What the runs said, by contender and question.
pub type Answers = Vec<(Contender, Question, Answer)>;

/// Median, least and most.
pub fn spread(values: &[f64]) -> Option<(f64, f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some((*sorted.get(sorted.len() / 2)?, *sorted.first()?, *sorted.last()?))
}

fn cell(answers: &[&Answer]) -> String {
    let of = |value: fn(&Answer) -> f64| -> Vec<f64> { answers.iter().map(|a| value(a)).collect() };
    let value = spread(&of(|answer| answer.value));
    let used = spread(&of(|answer| answer.used * 100.0));
    let (Some((value, least, most)), Some((used, _, _))) = (value, used) else {
        return "-".to_owned();
    };
    let digits = if most < 100.0 { 1 } else { 0 };
    format!("{value:.digits$} ({least:.digits$} to {most:.digits$}), {used:.0} %")
}

/// Prints it in Markdown: median, least and most of the runs, and the part of the storage's rate
/// that all tenants got together.
pub fn print(contenders: &[Contender], questions: &[Question], answers: &Answers) {
    let columns: Vec<&str> = questions.iter().map(|question| question.column()).collect();
    println!("| | {} |\n|---|{}", columns.join(" | "), "---|".repeat(columns.len()));
    for &contender in contenders {
        let cells: Vec<String> = questions
            .iter()
            .map(|&question| {
                let here = answers.iter().filter(|(c, q, _)| (*c, *q) == (contender, question));
                cell(&here.map(|(_, _, answer)| answer).collect::<Vec<_>>())
            })
            .collect();
        println!("| {} | {} |", contender.name(), cells.join(" | "));
    }
}
