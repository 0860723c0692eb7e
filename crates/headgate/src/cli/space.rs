//! The words of a file system's space.

use headgate_api::space::FileSystem;

/// Figures of so many seconds ago are late: the daemon looks every ten.
const LATE: u64 = 20;

/// The lines that describe it.
pub(super) fn lines(file_system: Option<&FileSystem>) -> Vec<(&'static str, Option<String>)> {
    let Some(found) = file_system else { return Vec::new() };
    let FileSystem { size, free, used_percent, allocated, provisioned, .. } = found;
    let ratio = found.overcommit.map_or_else(|| "no room".into(), |ratio| format!("{ratio:.2}"));
    let age = match (&found.reason, found.age_seconds) {
        (Some(reason), age) => format!(" ({age} s ago: {reason})"),
        (None, age) if age > LATE => format!(" ({age} s ago)"),
        (None, _) => String::new(),
    };
    vec![
        ("file system", Some(format!("{size}, {free} free, {used_percent} % used{age}"))),
        ("provisioned", Some(format!("{provisioned}, of which {allocated} are allocated"))),
        ("over-commitment", Some(format!("{ratio}, at most {}", found.overcommit_max))),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use headgate_units::Bytes;

    #[test]
    fn space_is_told_in_three_lines() {
        let found = FileSystem {
            size: Bytes::from_gib(10),
            free: Bytes::from_gib(2),
            used_percent: 80,
            allocated: Bytes::from_gib(3),
            provisioned: Bytes::from_gib(20),
            overcommit: Some(4.0),
            overcommit_max: Default::default(),
            age_seconds: 12,
            reason: Some("No such file or directory".into()),
        };
        let text: Vec<String> = lines(Some(&found)).into_iter().filter_map(|line| line.1).collect();
        assert_eq!(
            text,
            [
                "10 GiB, 2 GiB free, 80 % used (12 s ago: No such file or directory)",
                "20 GiB, of which 3 GiB are allocated",
                "4.00, at most 10"
            ]
        );
        assert!(lines(None).is_empty());
    }
}
