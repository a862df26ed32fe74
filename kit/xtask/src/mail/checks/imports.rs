// SPDX-License-Identifier: GPL-2.0-only
//! Checks the imports of the kit: a folder imports only those below it, and no modules form a
//! cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{ensure, Result};
use walkdir::WalkDir;

use crate::mail::checks::subject::Subject;

/// The top modules of kit/xtask/src, from bottom to top. Those of one layer do not import each
/// other.
const LAYERS: &str = "host; kernel; guest; suites measure mail; verbs; main";

/// The modules that each module imports, by their paths without `crate::`.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Checks the imports of the checkout.
pub fn check(subject: &Subject) -> Result<String> {
    let imports = read(&subject.env.repo.join("kit/xtask/src"))?;
    let mut wrong = against_layers(&imports);
    wrong.extend(cycle(&imports).map(|cycle| format!("break the cycle {}", cycle.join(" -> "))));
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(format!("{} modules", imports.len()))
}

/// Reads the imports of all modules in a folder, but not those of their tests, which come last.
fn read(src: &Path) -> Result<Imports> {
    let mut texts = BTreeMap::new();
    for entry in WalkDir::new(src) {
        let entry = entry?;
        let file = entry.path().strip_prefix(src)?.display().to_string();
        if let Some(module) = file.strip_suffix(".rs") {
            let module = module.trim_end_matches("/mod").replace('/', "::");
            texts.insert(module, fs::read_to_string(entry.path())?);
        }
    }
    let mut imports = Imports::new();
    for (module, text) in &texts {
        let code = text.split("\n#[cfg(test)]\n").next().unwrap_or(text);
        let code: Vec<_> = code
            .lines()
            .filter(|line| !line.trim().starts_with("//"))
            .collect();
        let used = imports.entry(module.clone()).or_default();
        for path in paths(&code.join("\n")) {
            used.extend(resolve(module, &path, |name| texts.contains_key(name)));
        }
        used.remove(module);
    }
    Ok(imports)
}

/// Returns all paths in a text, such as `a::b` and `a::c` for `a::{b, c}`.
fn paths(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    // The path before each open brace, and the path that is being read.
    let (mut open, mut path) = (vec![String::new()], String::new());
    for c in text.chars().chain([' ']) {
        if c.is_alphanumeric() || c == '_' || c == ':' {
            path.push(c);
            continue;
        }
        let whole = format!("{}{path}", open.last().map_or("", String::as_str));
        let opens_group = c == '{' && path.ends_with("::");
        if opens_group {
            open.push(whole);
        } else if !path.is_empty() {
            found.push(whole);
        }
        match c {
            '{' if !opens_group => open.push(String::new()),
            '}' if open.len() > 1 => drop(open.pop()),
            // No group goes on here, whatever braces the texts in the code have.
            ';' => open.truncate(1),
            _ => {}
        }
        path.clear();
    }
    found
}

/// Returns the module of the kit that a path in `module` leads to, if it leads to one.
fn resolve(module: &str, path: &str, exists: impl Fn(&str) -> bool) -> Option<String> {
    let mut at: Vec<&str> = module.split("::").filter(|part| *part != "main").collect();
    match path.split_once("::")?.0 {
        "crate" => at.clear(),
        "self" | "super" => {}
        child if exists(&[&at[..], &[child]].concat().join("::")) => {}
        _ => return None,
    }
    for part in path.split("::") {
        match part {
            "crate" | "self" => {}
            "super" => drop(at.pop()),
            part => at.push(part),
        }
    }
    // The last parts name items of the module.
    while !at.is_empty() && !exists(&at.join("::")) {
        at.pop();
    }
    Some(if at.is_empty() {
        "main".to_string()
    } else {
        at.join("::")
    })
}

/// Returns the imports that lead to a module in the same layer or in a higher one.
fn against_layers(imports: &Imports) -> Vec<String> {
    let top = |module: &str| module.split("::").next().unwrap_or_default().to_string();
    let layer = |top: &str| {
        LAYERS
            .split(';')
            .position(|tops| tops.split(' ').any(|t| t == top))
    };
    let mut wrong = Vec::new();
    for (module, used) in imports {
        let from = top(module);
        if layer(&from).is_none() {
            wrong.push(format!(
                "{from}: add this module to LAYERS in mail/checks/imports.rs"
            ));
        }
        for to in used
            .iter()
            .filter(|to| top(to) != from && layer(&top(to)) >= layer(&from))
        {
            wrong.push(format!(
                "{module} may not import {to}; the order is: {LAYERS}"
            ));
        }
    }
    wrong
}

/// Returns the modules of a cycle, if there is one.
fn cycle(imports: &Imports) -> Option<Vec<&str>> {
    let mut left: BTreeSet<&str> = imports.keys().map(String::as_str).collect();
    let next = |left: &BTreeSet<&str>, module: &str| {
        let used = imports.get(module)?.iter().map(String::as_str);
        used.into_iter().find(|to| left.contains(to))
    };
    // A module that imports no module that is left is in no cycle.
    while let Some(free) = left
        .iter()
        .copied()
        .find(|module| next(&left, module).is_none())
    {
        left.remove(free);
    }
    let mut walk = vec![*left.first()?];
    loop {
        let to = next(&left, walk.last()?)?;
        let seen = walk.iter().position(|module| *module == to);
        walk.push(to);
        if let Some(start) = seen {
            return Some(walk.split_off(start));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kit(files: &[(&str, &str)]) -> Imports {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = dir.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        read(dir.path()).unwrap()
    }

    #[test]
    fn cycles_are_found() {
        let a = (
            "host/a.rs",
            "use crate::host::{\n    b::{self, B},\n    c,\n};\n",
        );
        for (file, text) in [
            ("host/b.rs", "fn f() {\n    super::a::g()\n}\n"),
            ("host/b.rs", "use super::c::D;\n"),
        ] {
            let imports = kit(&[a, (file, text), ("host/c.rs", "use crate::host::a;\n")]);
            assert!(cycle(&imports).is_some(), "{text}");
        }
        let tests = "// crate::host::a\n#[cfg(test)]\nmod tests {\n    use crate::host::a;\n}\n";
        assert_eq!(
            cycle(&kit(&[a, ("host/b.rs", tests), ("host/c.rs", "")])),
            None
        );
        let imports = kit(&[
            ("host/p.rs", "mod child;\nfn f() {\n    child::f()\n}\n"),
            ("host/p/child.rs", "use super::P;\n"),
        ]);
        assert_eq!(
            cycle(&imports).unwrap(),
            ["host::p", "host::p::child", "host::p"]
        );
    }

    #[test]
    fn imports_go_down() {
        let imports = kit(&[
            ("host/mod.rs", "pub mod a;\n"),
            ("host/a.rs", "use crate::kernel::b;\nuse std::fs;\n"),
            ("kernel/b.rs", "use crate::host::X;\nuse crate::Cli;\n"),
            ("mail/c.rs", "use crate::kernel::b::{self, Y};\n"),
            ("suites/d.rs", "use crate::mail::c;\n"),
            ("main.rs", "mod host;\nfn f() {\n    kernel::b::f()\n}\n"),
        ]);
        let found = against_layers(&imports);
        let found: Vec<_> = found
            .iter()
            .filter_map(|text| text.split(';').next())
            .collect();
        assert_eq!(
            found,
            [
                "host::a may not import kernel::b",
                "kernel::b may not import main",
                "suites::d may not import mail::c"
            ]
        );
    }
}
