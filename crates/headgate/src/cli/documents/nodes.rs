//! Nodes of documents: values and fields, with the lines that they stand on.

use crate::cli::error::CliError;
use headgate_model::Name;
use saphyr::{MarkedYamlOwned, YamlDataOwned};
use saphyr_parser::ScalarStyle;
use std::fmt::Display;
use std::str::FromStr;

pub(super) type Node = MarkedYamlOwned;
pub(super) type Read<T> = Result<T, CliError>;

pub(super) const RATE: &str = "a rate in IOPS, a whole number without a unit";

/// A node, the file that it is in, and what it says something of.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) file: &'a str,
    pub(super) node: &'a Node,
}

impl<'a> At<'a> {
    pub(super) fn line(self) -> String {
        format!("{}:{}", self.file, self.node.span.start.line())
    }

    pub(super) fn wrong<T>(self, error: impl Display, expected: impl Into<String>) -> Read<T> {
        let error = format!("{}: {error}", self.line());
        Err(CliError::Document { error, expected: expected.into() })
    }

    pub(super) fn is_null(self) -> bool {
        match &self.node.data {
            YamlDataOwned::Representation(text, ScalarStyle::Plain, None) => {
                matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL")
            }
            _ => false,
        }
    }

    /// A scalar as it is written. Whether it was in quotes makes no difference.
    pub(super) fn text(self, what: &str) -> Read<&'a str> {
        match &self.node.data {
            YamlDataOwned::Representation(text, _, None) => Ok(text),
            YamlDataOwned::Representation(_, _, Some(_)) | YamlDataOwned::Tagged(..) => {
                self.wrong(format!("{what} has a tag"), "a value without one")
            }
            YamlDataOwned::Mapping(_) => self.wrong(format!("{what} has fields"), "one value"),
            YamlDataOwned::Sequence(_) => self.wrong(format!("{what} is a list"), "one value"),
            _ => self.wrong(format!("{what} is no value"), "one value"),
        }
    }

    pub(super) fn value<T: FromStr<Err: Display>>(self, what: &str, expected: &str) -> Read<T> {
        let text = self.text(what)?;
        if self.is_null() {
            return self.wrong(format!("{what} has no value"), expected);
        }
        text.parse().or_else(|e| self.wrong(format!("{what}: {e}"), expected))
    }

    pub(super) fn list(self, what: &str) -> Read<Vec<At<'a>>> {
        match &self.node.data {
            YamlDataOwned::Sequence(list) => {
                Ok(list.iter().map(|node| At { file: self.file, node }).collect())
            }
            _ if self.is_null() => Ok(Vec::new()),
            _ => self.wrong(format!("{what} is no list"), "a list: each thing after a '-'"),
        }
    }

    pub(super) fn fields(self, what: &str) -> Read<Fields<'a>> {
        let YamlDataOwned::Mapping(map) = &self.node.data else {
            return self.wrong(format!("{what} has no fields"), "fields, such as 'name: gold'");
        };
        let mut fields = Vec::new();
        for (key, node) in map {
            let key = At { file: self.file, node: key };
            fields.push((key.text("a field's name")?, key, At { file: self.file, node }));
        }
        Ok(Fields { at: self, fields, known: Vec::new() })
    }
}

/// The fields of a thing. What nobody asks for is an error in the end.
pub(super) struct Fields<'a> {
    at: At<'a>,
    fields: Vec<(&'a str, At<'a>, At<'a>)>,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    pub(super) fn take(&mut self, name: &'static str) -> Option<At<'a>> {
        self.known.push(name);
        let at = self.fields.iter().position(|(key, ..)| *key == name)?;
        Some(self.fields.remove(at).2)
    }

    /// One that may be absent or null.
    pub(super) fn may<T: FromStr<Err: Display>>(
        &mut self,
        name: &'static str,
        of: &str,
        expected: &str,
    ) -> Read<Option<T>> {
        match self.take(name).filter(|at| !at.is_null()) {
            None => Ok(None),
            Some(at) => at.value(&format!("{name} of {of}"), expected).map(Some),
        }
    }

    pub(super) fn must<T: FromStr<Err: Display>>(
        &mut self,
        name: &'static str,
        of: &str,
        expected: &str,
    ) -> Read<T> {
        let at = self.at;
        self.may(name, of, expected)?
            .map_or_else(|| at.wrong(format!("{of} has no {name}"), expected), Ok)
    }

    /// The thing's name, and what it is called from now on.
    pub(super) fn name(&mut self, kind: &str) -> Read<(Name, String)> {
        let name: Name = self.must("name", &format!("a {kind}"), "a name")?;
        let called = format!("{kind} '{name}'");
        Ok((name, called))
    }

    pub(super) fn end(self, of: &str) -> Read<()> {
        let Some((key, at, _)) = self.fields.first() else { return Ok(()) };
        at.wrong(format!("{of} has no field '{key}'"), format!("one of {}", self.known.join(", ")))
    }
}
