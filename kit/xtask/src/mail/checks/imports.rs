// SPDX-License-Identifier: GPL-2.0-only
//! Checks the imports of the kit: a folder imports only those below it, and no modules form a cycle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{ensure, Result};
use walkdir::WalkDir;

use crate::mail::checks::subject::Subject;

/// The top modules of kit/xtask/src, from bottom to top. Those of one layer do not import each other.
const LAYERS: &str = "host; kernel; guest; suites measure; mail; verbs; main";

/// The modules that each module imports, by their paths without `crate::`.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Checks the imports of the checkout.
pub fn check(subject: &Subject) -> Result<String> {
    let imports = read(&subject.env.repo.join("kit/xtask/src"))?;
    let mut wrong = against_layers(&imports);
    wrong.extend(cycle(&imports).map(|modules| format!("break the import cycle: {modules}")));
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
        let lines = code.lines().filter(|line| !line.trim().starts_with("//"));
        let code = lines.collect::<Vec<_>>().join("\n");
        let used = imports.entry(module.clone()).or_default();
        for root in ["crate::", "super::"] {
            // Only the start of a path counts, and not a text in quotes.
            for (at, _) in code.match_indices(root) {
                if !code[..at].ends_with([':', '"']) {
                    let paths = expand("", &code[at..]).into_iter();
                    used.extend(paths.map(|path| resolve(module, &path, &texts)));
                }
            }
        }
        // A module can name its children without a root.
        used.extend(
            texts
                .keys()
                .filter(|child| {
                    let name = child.rsplit("::").next().unwrap_or_default();
                    parent(child) == module && code.contains(&format!("{name}::"))
                })
                .cloned(),
        );
        used.remove(module);
    }
    Ok(imports)
}

/// Returns the paths that a text begins with, such as `a::b` and `a::c` for `a::{b, c}`.
fn expand(prefix: &str, text: &str) -> Vec<String> {
    let word = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let rest = text.trim_start_matches(word);
    let path = format!("{prefix}{}", &text[..text.len() - rest.len()]);
    let Some(group) = rest.strip_prefix('{').filter(|_| path.ends_with("::")) else {
        return vec![path];
    };
    let (mut paths, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        if depth == 0 && (c == ',' || c == '}') {
            paths.extend(expand(&path, group[start..at].trim()));
            start = at + 1;
        }
        depth += i32::from(c == '{') - i32::from(c == '}');
        if depth < 0 {
            break;
        }
    }
    paths
}

/// Returns the module that a path in `module` leads to.
fn resolve(module: &str, path: &str, modules: &BTreeMap<String, String>) -> String {
    let (mut base, mut rest) = match path.strip_prefix("crate::") {
        Some(rest) => ("", rest),
        None => (module, path),
    };
    while let Some(above) = rest.strip_prefix("super::") {
        (base, rest) = (parent(base), above);
    }
    let path = format!("{base}::{rest}");
    let mut name = path.trim_start_matches(':');
    // The last parts of a path name items of the module.
    while !name.is_empty() && !modules.contains_key(name) {
        name = parent(name);
    }
    if name.is_empty() { "main" } else { name }.to_string()
}

/// Returns the module around a module.
fn parent(module: &str) -> &str {
    module.rsplit_once("::").map_or("", |(parent, _)| parent)
}

/// Returns the imports that lead to a module of the same layer or a higher one.
fn against_layers(imports: &Imports) -> Vec<String> {
    let top = |module: &str| module.split("::").next().unwrap_or_default().to_string();
    let layer = |module: &str| {
        let has = |tops: &str| tops.split(' ').any(|name| name == top(module));
        // A module that LAYERS lacks may import nothing.
        LAYERS.split(';').position(has)
    };
    let mut wrong = Vec::new();
    for (module, used) in imports {
        for to in used {
            if top(to) != top(module) && layer(to) >= layer(module) {
                wrong.push(format!(
                    "{module} may not import {to}; the order is: {LAYERS}"
                ));
            }
        }
    }
    wrong
}

/// Returns the modules that import each other in a cycle, if there are any.
fn cycle(imports: &Imports) -> Option<String> {
    let mut left: BTreeSet<&String> = imports.keys().collect();
    loop {
        // A module in a cycle imports another module of the cycle, and is imported by one.
        let imports = |from: &String, to: &String| imports[from].contains(to);
        let before = left.clone();
        left.retain(|module| {
            before.iter().any(|other| imports(module, other))
                && before.iter().any(|other| imports(other, module))
        });
        if left.len() == before.len() {
            let names: Vec<&str> = left.iter().map(|module| module.as_str()).collect();
            return (!names.is_empty()).then(|| names.join(", "));
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
        assert_eq!(cycle(&imports).unwrap(), "host::p, host::p::child");
    }

    #[test]
    fn imports_go_down() {
        let imports = kit(&[
            ("host/mod.rs", "pub mod a;\n"),
            ("host/a.rs", "use crate::kernel::b;\nuse std::fs;\n"),
            ("kernel/b.rs", "use crate::host::X;\nuse crate::Cli;\n"),
            ("mail/c.rs", "use crate::kernel::b::{self, Y};\n"),
            ("suites/d.rs", "use crate::mail::c;\n"),
            ("main.rs", "mod kernel;\nfn f() {\n    kernel::b::f()\n}\n"),
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
