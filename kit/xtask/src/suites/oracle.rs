// SPDX-License-Identifier: GPL-2.0-only
//! The oracle of rule 1: the kernel's own vsock_test, vsock_perf and socat, as they are and with
//! every connected socket in a sockmap. A transparent sockmap makes no difference.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{bail, Context, Result};
use walkdir::WalkDir;

use crate::guest::boot::Outcome;
use crate::guest::initramfs::Initramfs;
use crate::guest::programs::Programs;
use crate::host::env::Env;
use crate::host::files::Key;
use crate::host::toolroot::ToolRoot;
use crate::host::{proc, step};
use crate::kernel::build::Image;
use crate::kernel::tree::Tree;
use crate::suites::selftests::{Case, Verdict};

/// In the kernel.
const TESTS: &str = "tools/testing/vsock";

/// What is made there.
const PROGRAMS: &[&str] = &["vsock_test", "vsock_perf"];

/// How the sockets are: in no map, in one without a program, in one that passes everything.
pub const MODES: &[&str] = &["outside", "map", "pass"];

/// Before each result in the guest's console.
const RESULT: &str = "oracle:";

/// Before the name of a case that failed once.
const AGAIN: &str = "oracle-again:";

/// What the guest runs. Each case has a server and a client of its own and a time limit, as one that
/// hangs would take the others with it. Arguments: how often a case is tried, the case, or `all`,
/// and the modes.
const GUEST_MAIN: &str = r#"#!/bin/sh
for i in vsock vsock_loopback; do modprobe -q $i; done
cd /oracle
tries=$1 only=$2
shift 2
port=2000
# How a program is run in a mode.
in_mode() {
    if [ $mode = outside ]; then
        exec timeout -s KILL 30 "$@"
    fi
    exec timeout -s KILL 30 env LD_PRELOAD=/oracle/libpreload.so PRELOAD_MODE=$mode "$@"
}
# Tells a result, and what was said if it is a bad one. The tests have time limits of their own that
# a busy machine can miss, so what fails is tried once more, and that is told too.
tell() {
    if [ $1 = fail ] && [ $try -lt $tries ]; then
        echo "@AGAIN@ $mode $2"
        return
    fi
    echo "@RESULT@ $mode $1 $2"
    [ $1 = pass ] || sed 's/^/oracle| /' /tmp/server /tmp/client
}
# Runs a case if it is wanted, by its number or its name, and again if it fails.
case_of() {
    if [ $only != all ] && [ $only != "$1" ] && [ $only != "$2" ]; then return; fi
    for try in $(seq $tries); do
        verdict=fail
        "$@"
        [ $verdict = fail ] || break
    done
}
listening() {
    for i in $(seq 100); do
        grep -q "$(printf ':%04X 00000000:0000 0A' $1)" /proc/net/tcp && return
        usleep 20000
    done
}
vsock_test() {
    port=$((port + 1))
    in_mode ./vsock_test --mode=server --control-port=$port --peer-cid=1 --pick=$1 \
        > /tmp/server 2>&1 &
    server=$!
    listening $port
    (in_mode ./vsock_test --mode=client --control-host=127.0.0.1 --control-port=$port \
        --peer-cid=1 --pick=$1) > /tmp/client 2>&1
    client=$?
    wait $server
    server=$?
    verdict=fail
    if [ $client$server = 00 ] && ! grep -q "^$1 - .*skipped$" /tmp/server /tmp/client; then
        verdict=pass
    fi
    tell $verdict "vsock_test $2"
}
# The reader stops at a hang-up whatever is left, so the bytes that it got are not compared.
vsock_perf() {
    in_mode ./vsock_perf --port 3000 > /tmp/server 2>&1 &
    server=$!
    sleep 1
    (in_mode ./vsock_perf --port 3000 --sender 1 --bytes 32M --buf-size 64K) > /tmp/client 2>&1
    client=$?
    wait $server
    server=$?
    verdict=fail
    [ $client$server = 00 ] && grep -q "total bytes sent: 33554432" /tmp/client && verdict=pass
    tell $verdict vsock_perf
}
# Both ends have the socket in a map; the file has to be the same.
socat_copies() {
    in_mode socat -u VSOCK-LISTEN:3001 CREATE:/tmp/copy > /tmp/server 2>&1 &
    server=$!
    sleep 1
    (in_mode socat -u OPEN:/tmp/data VSOCK-CONNECT:1:3001) > /tmp/client 2>&1
    client=$?
    wait $server
    server=$?
    verdict=fail
    [ $client$server = 00 ] && cmp /tmp/data /tmp/copy >> /tmp/server 2>&1 && verdict=pass
    tell $verdict "socat"
    rm -f /tmp/copy
}
# One that listens sends, and reads what comes back.
socat_answers() {
    in_mode socat VSOCK-LISTEN:3002 EXEC:cat > /tmp/server 2>&1 &
    server=$!
    sleep 1
    (in_mode socat -t 10 - VSOCK-CONNECT:1:3002 < /tmp/data > /tmp/copy) 2> /tmp/client
    client=$?
    wait $server
    server=$?
    verdict=fail
    [ $client$server = 00 ] && cmp /tmp/data /tmp/copy >> /tmp/server 2>&1 && verdict=pass
    tell $verdict "socat, both directions"
    rm -f /tmp/copy
}
head -c 4194309 /dev/urandom > /tmp/data
./vsock_test --list | tail -n +2 > /tmp/list
for mode in $@; do
    while read -r id name; do case_of vsock_test $id "$name" < /dev/null; done < /tmp/list
    case_of vsock_perf
    case_of socat_copies
    case_of socat_answers
done
echo "@RESULT@ end"
"#;

/// vsock_test and vsock_perf, built if the cache has none.
pub fn ensure(env: &Env, root: &ToolRoot, tree: &Tree) -> Result<PathBuf> {
    let source = tree.path.join(TESTS);
    let mut key = Key::new().add(&root.key);
    let mut files = Vec::new();
    for entry in WalkDir::new(&source).sort_by_file_name() {
        let entry = entry?;
        if entry.file_type().is_file() {
            key = key
                .add(entry.file_name().as_encoded_bytes())
                .add(fs::read(entry.path())?);
            files.push(entry.into_path());
        }
    }
    env.make_dir(&format!("vsock-tests-{}", key.finish()), |dir| {
        // make writes beside the source, so it gets a copy. The headers are found from there.
        let work = tempfile::tempdir_in(&env.logs)?;
        let copy = work.path().join(TESTS);
        fs::create_dir_all(&copy)?;
        symlink(
            tree.path.join("tools/include"),
            work.path().join("tools/include"),
        )?;
        for file in &files {
            let name = file.file_name().context("a file has a name")?;
            fs::copy(file, copy.join(name))?;
        }
        let mut make = root.command(&copy, "make");
        make.args(PROGRAMS);
        step::run(env, "build vsock_test", make)?;
        for program in PROGRAMS {
            fs::copy(copy.join(program), dir.join(program))
                .with_context(|| format!("make did not make {program}"))?;
        }
        Ok(())
    })
}

/// What init is to run in all modes in one guest.
pub fn all() -> Vec<String> {
    let first = ["2", "all"].iter();
    first.chain(MODES).map(|arg| arg.to_string()).collect()
}

/// What init is to run for one case in a guest of its own.
pub fn one(case: &OneCase) -> Vec<String> {
    ["1", &case.id, case.mode].map(String::from).to_vec()
}

/// A case in one mode.
#[derive(Clone, Debug)]
pub struct OneCase {
    pub mode: &'static str,
    /// What [`GUEST_MAIN`] selects it by.
    pub id: String,
    /// As in the results.
    pub name: String,
}

/// All cases.
pub fn cases(root: &ToolRoot, tests: &Path) -> Result<Vec<OneCase>> {
    // It ends with a bad status, whatever it printed.
    let mut list = root.command(tests, "sh");
    list.args(["-c", "./vsock_test --list || :"]);
    let mut programs = listed(&proc::output(list)?);
    for (id, name) in [
        ("vsock_perf", "vsock_perf"),
        ("socat_copies", "socat"),
        ("socat_answers", "socat, both directions"),
    ] {
        programs.push((id.to_string(), name.to_string()));
    }
    let mut cases = Vec::new();
    for mode in MODES {
        cases.extend(programs.iter().map(|(id, name)| OneCase {
            mode,
            id: id.clone(),
            name: format!("{mode}: {name}"),
        }));
    }
    Ok(cases)
}

/// Numbers and names in what `vsock_test --list` prints, after its headline.
fn listed(output: &str) -> Vec<(String, String)> {
    let lines = output.lines().skip(1).filter_map(|line| {
        let (id, name) = line.trim().split_once(char::is_whitespace)?;
        Some((id.to_string(), format!("vsock_test {}", name.trim())))
    });
    lines.collect()
}

/// The result of a guest that ran one case. One that did not come to its end has failed.
pub fn parse_one(case: &OneCase, outcome: &Outcome) -> Case {
    let failed = |why: String| Case {
        name: case.name.clone(),
        verdict: Verdict::Fail,
        why: vec![why],
    };
    if let Err(error) = outcome.clean() {
        return failed(format!("{error:#}"));
    }
    match parse(&outcome.log) {
        Ok(cases) => match &cases[..] {
            [result] if result.name == case.name => result.clone(),
            _ => failed(format!("{} results", cases.len())),
        },
        Err(error) => failed(format!("{error:#}")),
    }
}

/// An archive in which the tests run as init's arguments tell.
pub fn initramfs<'a>(
    env: &'a Env,
    root: &'a ToolRoot,
    image: &Image,
    tests: &Path,
    programs: &Programs,
) -> Result<Initramfs<'a>> {
    let mut initramfs = Initramfs::new(
        env,
        root,
        &GUEST_MAIN
            .replace("@RESULT@", RESULT)
            .replace("@AGAIN@", AGAIN),
    );
    initramfs.modules(image)?;
    for program in PROGRAMS {
        initramfs.program(&format!("/oracle/{program}"), &tests.join(program))?;
    }
    initramfs
        .program("/oracle/libpreload.so", &programs.preload)?
        .program("/usr/bin/socat", Path::new("/usr/bin/socat"))?;
    Ok(initramfs)
}

/// The results in a console log: `MODE: CASE`. An error if the guest did not come to its end.
pub fn parse(log: &str) -> Result<Vec<Case>> {
    let mut cases: Vec<Case> = Vec::new();
    let mut ended = false;
    let mut again = Vec::new();
    for line in log.lines().map(str::trim_end) {
        if let Some(name) = line.strip_prefix(AGAIN) {
            again.push(name.trim().to_string());
            continue;
        }
        if let Some(said) = line.strip_prefix("oracle| ") {
            if let Some(case) = cases.last_mut() {
                case.why.push(said.to_string());
            }
            continue;
        }
        let Some(result) = line.strip_prefix(RESULT) else {
            continue;
        };
        let mut words = result.trim().splitn(3, ' ');
        match (words.next(), words.next(), words.next()) {
            (Some("end"), None, None) => ended = true,
            (Some(mode), Some(verdict), Some(name)) => cases.push(Case {
                name: format!("{mode}: {name}"),
                verdict: if verdict == "pass" {
                    Verdict::Pass
                } else {
                    Verdict::Fail
                },
                why: match again.pop() {
                    Some(_) if verdict == "pass" => vec!["at the second try".to_string()],
                    _ => Vec::new(),
                },
            }),
            _ => bail!("cannot make sense of {line:?}"),
        }
    }
    if !ended || cases.is_empty() {
        bail!(
            "vsock_test did not come to its end, after {} cases",
            cases.len()
        );
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_and_what_was_said() {
        let log = "oracle: outside pass vsock_test A b\nnoise\noracle: pass fail vsock_test C\n\
                   oracle| server died\noracle: end\n";
        let cases = parse(log).unwrap();
        assert_eq!(cases.len(), 2);
        assert_eq!(cases[0].name, "outside: vsock_test A b");
        assert_eq!(cases[0].verdict, Verdict::Pass);
        assert_eq!(cases[1].verdict, Verdict::Fail);
        assert_eq!(cases[1].why, ["server died"]);
    }

    #[test]
    fn list_of_cases() {
        let list = "ID\tTest name\n0\tSOCK_STREAM connection reset\n1\tSOCK_STREAM bind only\n";
        let cases = listed(list);
        assert_eq!(cases.len(), 2);
        assert_eq!(cases[0].0, "0");
        assert_eq!(cases[1].1, "vsock_test SOCK_STREAM bind only");
    }

    #[test]
    fn a_second_try_is_told() {
        let log = "oracle-again: pass socat\noracle: pass pass socat\noracle: end\n";
        let cases = parse(log).unwrap();
        assert_eq!(cases.len(), 1);
        assert_eq!(cases[0].verdict, Verdict::Pass);
        assert_eq!(cases[0].why, ["at the second try"]);
    }

    #[test]
    fn a_guest_that_stopped_is_an_error() {
        assert!(parse("oracle: outside pass vsock_test A\n").is_err());
        assert!(parse("oracle: end\n").is_err());
    }
}
