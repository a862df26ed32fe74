// SPDX-License-Identifier: GPL-2.0-only
//! The part of README.md that the report writes.

pub const BEGIN: &str = "<!-- results: cargo xtask bench --report -->";
pub const END: &str = "<!-- end of results -->";

/// Returns the text with `table` between the markers; None if it does not have both.
pub fn with_table(readme: &str, table: &str) -> Option<String> {
    let (before, rest) = readme.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_part_between_the_markers_changes() {
        let readme = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let wanted = format!("a\n{BEGIN}\nnew\n{END}\nb\n");
        assert_eq!(with_table(&readme, "new\n"), Some(wanted.clone()));
        assert_eq!(with_table(&wanted, "new\n"), Some(wanted));
    }

    #[test]
    fn without_markers_there_is_no_part() {
        assert_eq!(with_table("a\n", "new\n"), None);
        assert_eq!(with_table(&format!("{BEGIN}\n"), "new\n"), None);
    }
}
