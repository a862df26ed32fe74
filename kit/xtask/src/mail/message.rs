// SPDX-License-Identifier: GPL-2.0-only
//! Reads and checks the texts of mails: commit messages and cover letters.

use std::collections::BTreeSet;

use anyhow::{bail, Result};

/// The most columns of a line, by Documentation/process/submitting-patches.rst.
const COLUMNS: usize = 75;

/// A commit message or cover letter.
pub struct Message {
    pub subject: String,
    pub body: String,
}

/// Splits a text into subject and body.
pub fn split(text: &str) -> Result<Message> {
    let Some((subject, body)) = text.trim_end().split_once("\n\n") else {
        bail!("write a subject, a blank line and a text");
    };
    Ok(Message {
        subject: subject.to_string(),
        body: body.trim_start_matches('\n').to_string(),
    })
}

/// Returns the faults of the message in `file`, with line numbers.
pub fn faults(file: &str, text: &str) -> Vec<String> {
    let Ok(message) = split(text) else {
        return vec![format!("{file}: write a subject, a blank line and a text")];
    };
    let mut faults = Vec::new();
    if message.subject.contains('\n') {
        faults.push(format!(
            "{file}: the subject has more than one line; add a blank line after the first"
        ));
    }
    if message.subject.ends_with('.') {
        faults.push(format!("{file}: the subject ends with a dot; remove it"));
    }
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        let columns = line.chars().count();
        // A URL and a Fixes tag cannot be wrapped.
        let breakable = !line.contains("://") && !line.starts_with("Fixes: ");
        if columns > COLUMNS && breakable {
            faults.push(format!(
                "{file}:{number}: {columns} columns; wrap the line at {COLUMNS}"
            ));
        }
        if line.ends_with([' ', '\t']) {
            faults.push(format!(
                "{file}:{number}: remove the blank at the end of the line"
            ));
        }
        // git am would cut the message at these.
        if line == "---" || line.starts_with("diff -") || line.starts_with("Index: ") {
            faults.push(format!(
                "{file}:{number}: git am would cut the message here; write the line another way"
            ));
        }
        if line.starts_with("Signed-off-by:") {
            faults.push(format!(
                "{file}:{number}: remove the Signed-off-by; the person who sends the mails adds it"
            ));
        }
    }
    faults
}

/// Adds trailers to a message. They form one block with the trailers that the message has.
pub fn with_trailers(message: &str, trailers: &[String]) -> String {
    let block = message.rsplit("\n\n").next().unwrap_or_default();
    let has = message.contains("\n\n") && block.lines().all(is_trailer);
    let old: BTreeSet<&str> = block.lines().collect();
    let new: Vec<&str> = trailers
        .iter()
        .map(String::as_str)
        .filter(|line| !(has && old.contains(line)))
        .collect();
    if new.is_empty() {
        return format!("{message}\n");
    }
    let between = if has { "\n" } else { "\n\n" };
    format!("{message}{between}{}\n", new.join("\n"))
}

/// Returns whether a line has the form `Some-tag: value`.
fn is_trailer(line: &str) -> bool {
    line.split_once(": ").is_some_and(|(tag, _)| {
        tag.starts_with(|c: char| c.is_ascii_uppercase())
            && tag.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_as_a_maintainer_wants_them() {
        let long = "x".repeat(COLUMNS + 1);
        for (text, fault) in [
            (format!("{long}\n\nWhy.\n"), ":1: 76 columns"),
            (format!("x: y\n\n{long}\n"), ":3: 76 columns"),
            ("x: y\nWhy.\n".to_string(), "a blank line"),
            ("x: y\n".to_string(), "a blank line"),
            ("x: y\nz\n\nWhy.\n".to_string(), "more than one line"),
            ("x: y.\n\nWhy.\n".to_string(), "with a dot"),
            (
                "x: y\n\nWhy. \n".to_string(),
                ":3: remove the blank at the end",
            ),
            ("x: y\n\nWhy.\n---\nz\n".to_string(), ":4: git am"),
            (
                "x: y\n\nWhy.\n\nSigned-off-by: A <a@b>\n".to_string(),
                ":5: remove the Signed-off-by",
            ),
        ] {
            let faults = faults("m", &text).join("\n");
            assert!(faults.contains(fault), "{text:?}: {faults:?}");
        }
        let fine = format!("{}\n\nLink: https://{long}\n", &long[1..]);
        assert!(faults("m", &fine).is_empty());
    }

    #[test]
    fn trailers_are_one_block() {
        let new = ["Assisted-by: LLM".to_string()];
        assert_eq!(
            with_trailers("a: b\n\nWhy.\n\nFixes: 1234 (\"x\")", &new),
            "a: b\n\nWhy.\n\nFixes: 1234 (\"x\")\nAssisted-by: LLM\n"
        );
        assert_eq!(
            with_trailers("a: b\n\nWhy.\n\nAssisted-by: LLM", &new),
            "a: b\n\nWhy.\n\nAssisted-by: LLM\n"
        );
        assert_eq!(with_trailers("a: b\n\nWhy.", &[]), "a: b\n\nWhy.\n");
    }
}
