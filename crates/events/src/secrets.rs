//! Secrets that addresses and requests may have in them are hidden before anything is written down.

use serde_json::Value;

/// What stands for a secret.
const HIDDEN: &str = "***";

/// Parts of names that mark a secret.
const MARKS: [&str; 7] =
    ["password", "passwd", "passphrase", "secret", "token", "psk", "credential"];

/// Whether a value of this name is a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let is_key = name == "key" || name.ends_with("-key") || name.ends_with("_key");
    is_key || MARKS.iter().any(|mark| name.contains(mark))
}

fn ends_value(c: char) -> bool {
    c.is_whitespace() || matches!(c, '&' | ',' | ';' | '"' | '\'' | ')' | '>' | '#')
}

fn in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

/// A text with the logins of its URIs hidden, and what is assigned to names such as `password=`.
pub fn hide_in_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("://") {
            out.push_str("://");
            let ends = |c: char| ends_value(c) || matches!(c, '/' | '?');
            let authority = after.split(ends).next().unwrap_or("");
            rest = after;
            if let Some(at) = authority.rfind('@') {
                out.push_str(HIDDEN);
                rest = &after[at..];
            }
            continue;
        }
        // Only here: whoever looks at each letter again at each letter takes for ever.
        let hides = c == '=' && is_secret(last_name(&out));
        out.push(c);
        rest = &rest[c.len_utf8()..];
        if hides {
            let value = rest.split(ends_value).next().unwrap_or("");
            if !value.is_empty() {
                out.push_str(HIDDEN);
            }
            rest = &rest[value.len()..];
        }
    }
    out
}

/// The name at a text's end.
fn last_name(text: &str) -> &str {
    let before = text.trim_end_matches(in_name);
    &text[before.len()..]
}

/// The same of all texts of a value, and of all fields with such names.
pub fn hide_in_value(value: &mut Value) {
    match value {
        Value::String(text) => *text = hide_in_text(text),
        Value::Array(all) => all.iter_mut().for_each(hide_in_value),
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::Null => {}
                    _ if is_secret(name) => *field = HIDDEN.into(),
                    _ => hide_in_value(field),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn logins_and_assigned_secrets_are_hidden_and_nothing_else() {
        for (text, hidden) in [
            ("nbds://ann:pw@host:10809/x", "nbds://***@host:10809/x"),
            ("nbd://a@b@host/?tls-psk=abc&x=1", "nbd://***@host/?tls-psk=***&x=1"),
            (
                "at 'http://u:p@h', and key=1 (secret=s)",
                "at 'http://***@h', and key=*** (secret=***)",
            ),
            ("nbd://host/mail@home", "nbd://host/mail@home"),
            ("mode=auto depth=3 monkey=4", "mode=auto depth=3 monkey=4"),
            ("\u{e9}password=\u{e9}\u{e9} x", "\u{e9}password=*** x"),
            ("token=", "token="),
            ("://", "://"),
        ] {
            assert_eq!(hide_in_text(text), hidden);
        }
    }

    #[test]
    fn fields_are_hidden_by_their_names_at_any_depth() {
        let mut value = json!({"a": [{"Password": "x", "name": "nbd://u:p@h"}],
                               "token": null, "private_key": {"d": 1}, "keys": 3});
        hide_in_value(&mut value);
        let hidden = json!({"a": [{"Password": "***", "name": "nbd://***@h"}],
                            "token": null, "private_key": "***", "keys": 3});
        assert_eq!(value, hidden);
    }

    #[test]
    fn the_longest_request_is_read_at_once() {
        let long = "a".repeat(2 << 20);
        assert_eq!(hide_in_text(&long).len(), long.len());
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_to_its_end(text in ".{0,60}") {
            let hidden = hide_in_text(&text);
            proptest::prop_assert!(!text.ends_with('z') || hidden.ends_with(['z', '*']));
        }
    }
}
